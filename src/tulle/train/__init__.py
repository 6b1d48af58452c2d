"""Training with semi-sensitive features: Mosaic, private steps, and their models."""

from typing import TYPE_CHECKING

import tulle.train.requirements  # noqa: F401
from tulle.quality.metrics import QualityMetrics, relative_auc_loss
from tulle.train.banded.banded_noise import NoiseMemory
from tulle.train.budget_split import ExplicitSplit, PaperSplit, RatioSplit
from tulle.train.examples import ExampleSet
from tulle.train.fitting import FitResult, fit, make_plan
from tulle.train.graphed.products import Products
from tulle.train.label_training import fit_on_reports
from tulle.train.methods.baseline import NonPrivateConfig
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.label_projection.method import LabelProjectionConfig
from tulle.train.methods.label_projection.projection import Projection, SmoothingPrior
from tulle.train.methods.method import Accounting
from tulle.train.methods.mosaic.cell_settings import CellSettings, StageShares
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
from tulle.train.models.factorization_machine import FactorizationMachine
from tulle.train.models.logistic_regression import LogisticRegression
from tulle.train.models.mlp import MLP
from tulle.train.optimizers.adam import Adam
from tulle.train.optimizers.rmsprop import RMSprop
from tulle.train.optimizers.sgd import SGD
from tulle.train.optimizers.yogi import Yogi
from tulle.train.phases import (
    EarlyStopping,
    LabelCorrection,
    LabelPhase,
    PlainPhase,
    PrivatePhase,
    PublicTower,
)
from tulle.train.private_updates import NoisePlacement
from tulle.train.run_options import LedgerCharge, RunOptions
from tulle.train.step_noise import BandedNoise, IndependentNoise, LatticeNoise, SelectedRows
from tulle.train.unit_level import ExampleLevel, RowChoice, UserAccounting, UserLevel

if TYPE_CHECKING:
    from tulle.train.classifier import Hashing, TableClassifier

__all__ = [
    "MLP",
    "SGD",
    "Accounting",
    "Adam",
    "BandedNoise",
    "CellSettings",
    "DpSgdConfig",
    "EarlyStopping",
    "ExampleLevel",
    "ExampleSet",
    "ExplicitSplit",
    "FactorizationMachine",
    "FitResult",
    "Hashing",
    "HybridConfig",
    "IndependentNoise",
    "LabelCorrection",
    "LabelPhase",
    "LabelProjectionConfig",
    "LatticeNoise",
    "LedgerCharge",
    "LogisticRegression",
    "MosaicConfig",
    "NoiseMemory",
    "NoisePlacement",
    "NonPrivateConfig",
    "PaperSplit",
    "PlainPhase",
    "PrivatePhase",
    "Products",
    "Projection",
    "PublicTower",
    "QualityMetrics",
    "RMSprop",
    "RandomizedLabelsConfig",
    "RatioSplit",
    "RowChoice",
    "RunOptions",
    "SelectedRows",
    "SmoothingPrior",
    "StageShares",
    "TableClassifier",
    "UserAccounting",
    "UserLevel",
    "Yogi",
    "fit",
    "fit_on_reports",
    "make_plan",
    "relative_auc_loss",
]


def __getattr__(name: str) -> object:
    # Tables need polars, and a machine that trains on prepared data alone may lack it.
    if name in ("Hashing", "TableClassifier"):
        from tulle.train import classifier

        return getattr(classifier, name)
    raise AttributeError(f"module 'tulle.train' has no attribute {name!r}")
