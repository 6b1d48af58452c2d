"""Noisy labels under label differential privacy: released once, trained on anywhere."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.labels.label_plan import BestMechanism, LabelPlan
    from tulle.labels.mechanisms.added_noise import LaplaceNoise, LaplaceNoiseClipped
    from tulle.labels.mechanisms.bin_response import BinRr
    from tulle.labels.mechanisms.catalogue import LABEL_MECHANISMS
    from tulle.labels.mechanisms.class_response import BinaryRr, ClassRr
    from tulle.labels.mechanisms.prior_response import PriorRr
    from tulle.labels.mechanisms.stepped_noise import (
        DiscreteLaplaceNoise,
        DiscreteLaplaceNoiseClipped,
        StaircaseNoise,
        StaircaseNoiseClipped,
    )
    from tulle.labels.mechanisms.unbiased_response import UnbiasedRr
    from tulle.labels.mechanisms.unit_noise import JointRr, JointSubset, UnitRr
    from tulle.labels.verbs import evaluate, evaluate_raw, plan, read_release, release

__all__ = [
    "LABEL_MECHANISMS",
    "BestMechanism",
    "BinRr",
    "BinaryRr",
    "ClassRr",
    "DiscreteLaplaceNoise",
    "DiscreteLaplaceNoiseClipped",
    "JointRr",
    "JointSubset",
    "LabelPlan",
    "LaplaceNoise",
    "LaplaceNoiseClipped",
    "PriorRr",
    "StaircaseNoise",
    "StaircaseNoiseClipped",
    "UnbiasedRr",
    "UnitRr",
    "evaluate",
    "evaluate_raw",
    "plan",
    "read_release",
    "release",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
