"""Central counts: one party sees every value, counts exactly and adds noise once.

The yardstick of the other trust models: its error does not grow with the number of users.
A user who had held another value moves two counts of a histogram by one, and one count by one.
"""

import dataclasses
import functools
import math

import numpy as np

from tulle.measure.trust.additive_counts import AdditiveCountsConfig
from tulle.measure.trust.value_counts import check_target_delta
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.frequency import IntArray
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.privacy.events import DiscreteLaplace, Gaussian
from tulle.privacy.units import Adjacency, TrustModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentralLaplaceConfig(AdditiveCountsConfig):
    """Settings of central counts with discrete Laplace noise. Every field is public."""

    trust_model = TrustModel.CENTRAL
    mechanism = "One party counts raw values and adds discrete Laplace noise to every count."

    def __post_init__(self) -> None:
        super().__post_init__()
        self.event()

    @property
    def total_noise(self) -> DiscreteLaplaceConfig:
        """The noise on each count."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon,
            adjacency=Adjacency.REPLACE,
            replace_factor=self.counts_per_user,
        )

    def event(self) -> DiscreteLaplace:
        """What one release of all counts costs."""
        return self.total_noise.event()

    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> list[int]:
        raw_counts = _released_counts(values, self)
        noisy_counts = release_discrete_laplace(raw_counts, self.total_noise, rng=rng)
        return [int(count) for count in noisy_counts]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentralGaussianConfig(AdditiveCountsConfig):
    """Settings of central counts with Gaussian noise. Every field is public."""

    delta: float

    trust_model = TrustModel.CENTRAL
    mechanism = "One party counts raw values and adds Gaussian noise to every count."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_target_delta(self.delta)
        self.event()

    @property
    def target_delta(self) -> float:
        """The delta of the guarantee."""
        return self.delta

    @functools.cached_property
    def total_noise(self) -> GaussianConfig:
        """The noise on each count."""
        return GaussianConfig.for_epsilon(
            self.epsilon,
            self.delta,
            adjacency=Adjacency.REPLACE,
            replace_factor=math.sqrt(self.counts_per_user),
        )

    def event(self) -> Gaussian:
        """What one release of all counts costs."""
        return self.total_noise.event()

    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> list[float]:
        raw_counts = _released_counts(values, self)
        noisy_counts = release_gaussian(raw_counts, self.total_noise, rng=rng)
        return [float(count) for count in noisy_counts]


def _released_counts(values: IntArray, config: AdditiveCountsConfig) -> IntArray:
    raw_counts = np.bincount(values, minlength=config.num_values).astype(np.int64)
    return raw_counts[config.released_values.start :]
