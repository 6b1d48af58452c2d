"""Counts without a party that sees raw values: local and shuffled, beside the central ones."""

from tulle.lab.trust.central_counts import CentralGaussianConfig, CentralLaplaceConfig, plan_counts
from tulle.lab.trust.local_counts import (
    LocalLaplaceConfig,
    LocalRapporConfig,
    LocalResponseConfig,
    LocalSubsetConfig,
)
from tulle.lab.trust.shuffled_counts import (
    MixedCountsConfig,
    ShuffledResponseConfig,
    largest_local_epsilon,
)

__all__ = [
    "CentralGaussianConfig",
    "CentralLaplaceConfig",
    "LocalLaplaceConfig",
    "LocalRapporConfig",
    "LocalResponseConfig",
    "LocalSubsetConfig",
    "MixedCountsConfig",
    "ShuffledResponseConfig",
    "largest_local_epsilon",
    "plan_counts",
]
