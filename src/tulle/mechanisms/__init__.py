"""Randomizers, one a file, that draw exactly from the operating system's entropy.

A config is public and says what one draw costs (`event()`); a `release_…` function draws.
"""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.mechanisms.analytic_gaussian import (
        calibrate_gaussian,
        gaussian_delta,
        gaussian_epsilon,
    )
    from tulle.mechanisms.discrete_gaussian import (
        DiscreteGaussianConfig,
        release_discrete_gaussian,
        release_one_discrete_gaussian,
    )
    from tulle.mechanisms.discrete_laplace import (
        DiscreteLaplaceConfig,
        release_discrete_laplace,
        release_one_discrete_laplace,
    )
    from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
    from tulle.mechanisms.finite_channel import FiniteChannel
    from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian, release_one_gaussian
    from tulle.mechanisms.joint_response import (
        JointResponseConfig,
        JointSubsetConfig,
        release_joint_response,
    )
    from tulle.mechanisms.key_selection import KeySelectionConfig, select_keys
    from tulle.mechanisms.key_thresholds import (
        GaussianKeyThresholdConfig,
        LaplaceKeyThresholdConfig,
        release_key_counts,
    )
    from tulle.mechanisms.laplace import LaplaceConfig, release_laplace, release_one_laplace
    from tulle.mechanisms.noisy_reports import (
        BinaryChannel,
        count_reports,
        debias_counts,
        variance_per_report,
    )
    from tulle.mechanisms.polya import NoiseShareConfig, sample_noise_shares
    from tulle.mechanisms.randomized_response import (
        RandomizedResponseConfig,
        release_randomized_bits,
        release_randomized_response,
    )
    from tulle.mechanisms.rappor import RapporConfig, release_rappor
    from tulle.mechanisms.split_and_mix import (
        SplitAndMixConfig,
        decode_sum,
        encode_values,
        shuffle_messages,
    )
    from tulle.mechanisms.staircase_noise import StaircaseConfig, release_staircase
    from tulle.mechanisms.subset_selection import SubsetSelectionConfig, release_subset_selection

__all__ = [
    "BinaryChannel",
    "DiscreteGaussianConfig",
    "DiscreteLaplaceConfig",
    "FiniteChannel",
    "GaussianConfig",
    "GaussianKeyThresholdConfig",
    "JointResponseConfig",
    "JointSubsetConfig",
    "KeySelectionConfig",
    "LaplaceConfig",
    "LaplaceKeyThresholdConfig",
    "NoiseShareConfig",
    "NoiseSource",
    "RandomizedResponseConfig",
    "RapporConfig",
    "SeededNoise",
    "SplitAndMixConfig",
    "StaircaseConfig",
    "SubsetSelectionConfig",
    "calibrate_gaussian",
    "count_reports",
    "debias_counts",
    "decode_sum",
    "encode_values",
    "gaussian_delta",
    "gaussian_epsilon",
    "release_discrete_gaussian",
    "release_discrete_laplace",
    "release_gaussian",
    "release_joint_response",
    "release_key_counts",
    "release_laplace",
    "release_one_discrete_gaussian",
    "release_one_discrete_laplace",
    "release_one_gaussian",
    "release_one_laplace",
    "release_randomized_bits",
    "release_randomized_response",
    "release_rappor",
    "release_rng",
    "release_staircase",
    "release_subset_selection",
    "sample_noise_shares",
    "select_keys",
    "shuffle_messages",
    "variance_per_report",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
