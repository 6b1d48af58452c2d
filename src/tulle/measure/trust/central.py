"""Central counts: one party sees every value, counts exactly and adds noise once.

The yardstick of the other trust models: its error does not grow with the number of users.
A user who had held another value moves two counts of a histogram by one, and one count by one.
"""

import dataclasses
import functools
import math

import numpy as np

from tulle.measure.trust.value_counts import (
    ValueCountsConfig,
    check_frequency,
    check_target_delta,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.frequency import IntArray
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.privacy.events import DiscreteLaplace, Gaussian
from tulle.privacy.release import Release
from tulle.privacy.units import Adjacency, TrustModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentralLaplaceConfig(ValueCountsConfig):
    """Settings of central counts with discrete Laplace noise. Every field is public."""

    trust_model = TrustModel.CENTRAL
    mechanism = "One party counts raw values and adds discrete Laplace noise to every count."

    def __post_init__(self) -> None:
        super().__post_init__()
        self.event()

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise on each count."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon,
            adjacency=Adjacency.REPLACE,
            replace_factor=1.0 if self.num_values == 2 else 2.0,
        )

    def event(self) -> DiscreteLaplace:
        """What one release of all counts costs."""
        return self.noise.event()

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on one count, the same for every frequency."""
        check_frequency(frequency)
        return self.noise.noise_stddev

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        noise = self.noise
        noisy_counts = release_discrete_laplace(_released_counts(values, self), noise, rng=rng)
        return tuple(noise.as_release(int(count), confidence=confidence) for count in noisy_counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentralGaussianConfig(ValueCountsConfig):
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
    def noise(self) -> GaussianConfig:
        """The noise on each count."""
        return GaussianConfig.for_epsilon(
            self.epsilon,
            self.delta,
            adjacency=Adjacency.REPLACE,
            replace_factor=1.0 if self.num_values == 2 else math.sqrt(2),
        )

    def event(self) -> Gaussian:
        """What one release of all counts costs."""
        return self.noise.event()

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on one count, the same for every frequency."""
        check_frequency(frequency)
        return self.noise.noise_stddev

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        noisy_counts = release_gaussian(_released_counts(values, self), self.noise, rng=rng)
        return tuple(
            self.noise.as_release(float(count), confidence=confidence) for count in noisy_counts
        )


def _released_counts(values: IntArray, config: ValueCountsConfig) -> IntArray:
    raw_counts = np.bincount(values, minlength=config.num_values).astype(np.int64)
    return raw_counts[config.released_values.start :]
