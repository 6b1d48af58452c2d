"""Settings of frequency histograms with noise.

A unit is in one bucket of each of its slices, so it moves the histograms by one count a slice:
`max_slices_per_unit` in L1 and its square root in L2.
"""

import dataclasses
import functools
import math

from tulle.errors import ConfigError
from tulle.measure.noise_sums import CountNoise
from tulle.mechanisms.analytic_gaussian import calibrate_gaussian
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.gaussian import GaussianConfig
from tulle.privacy.events import Composed, Event, Gaussian
from tulle.privacy.fields import check_count, check_finite
from tulle.privacy.units import Adjacency

MAX_FREQUENCY_LIMIT = 100
"""Most buckets: each adds its noise to reach."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrequencyConfig:
    """Settings of one noisy frequency histogram a slice. Every field is public information."""

    epsilon: float
    max_frequency: int
    """Buckets of a slice; the last one holds everybody with this many impressions or more."""
    adjacency: Adjacency
    max_slices_per_unit: int = 1
    delta: float = 0.0
    """0 for discrete Laplace noise. Above it noise is Gaussian: less where a unit is in
    many slices, for it grows with the square root of their number."""
    reach_share: float = 0.0
    """Part of the budget for a count of reach of its own. Worth it above
    2 / (max_frequency + 1) if reach matters more than the shape of the histogram."""

    def __post_init__(self) -> None:
        check_count("max_frequency", self.max_frequency)
        check_count("max_slices_per_unit", self.max_slices_per_unit)
        if self.max_frequency > MAX_FREQUENCY_LIMIT:
            raise ConfigError(
                f"max_frequency={self.max_frequency} must be at most {MAX_FREQUENCY_LIMIT}; "
                "higher frequencies count as the last bucket."
            )
        if not check_finite("epsilon", self.epsilon) > 0:
            raise ConfigError(f"epsilon={self.epsilon} must be > 0 and finite, e.g. 1.0.")
        if not 0 <= check_finite("delta", self.delta) < 1:
            raise ConfigError(
                f"delta={self.delta} must be in [0, 1): 0 for discrete Laplace noise, "
                "e.g. 1e-9 for Gaussian noise."
            )
        if not 0 <= check_finite("reach_share", self.reach_share) < 1:
            raise ConfigError(
                f"reach_share={self.reach_share} must be in [0, 1); 0 takes reach as the sum "
                "of the buckets."
            )
        self.event()

    @property
    def bucket_noise(self) -> CountNoise:
        """The noise on each bucket."""
        return self._noise(1 - self.reach_share)

    @property
    def reach_noise(self) -> CountNoise | None:
        """The noise on the count of reach, None if it gets no budget."""
        return self._noise(self.reach_share) if self.reach_share else None

    def event(self) -> Event:
        """What all histograms together cost."""
        if self.delta:
            # Each count over its own noise: one vector with the L2 norm of the whole budget.
            return Gaussian(
                noise_multiplier=self._whole_multiplier(), replace_factor=math.sqrt(2.0)
            )
        buckets, reach = self.bucket_noise, self.reach_noise
        return buckets.event() if reach is None else Composed((reach.event(), buckets.event()))

    def _noise(self, share: float) -> CountNoise:
        if self.delta:
            return GaussianConfig(
                # Rounded up, so that both parts together are not above the whole.
                noise_multiplier=self._whole_multiplier() / math.sqrt(share) * (1 + 2.0**-50),
                max_contribution=math.sqrt(self.max_slices_per_unit),
                max_values_per_unit=self.max_slices_per_unit,
                replace_factor=math.sqrt(2.0),
            )
        # Rounded down, so that both shares together do not exceed epsilon.
        return DiscreteLaplaceConfig.for_epsilon(
            share * self.epsilon * (1 - 2.0**-50),
            adjacency=self.adjacency,
            max_contribution=self.max_slices_per_unit,
        )

    def _whole_multiplier(self) -> float:
        # A replaced unit leaves one bucket of a slice and enters another: sqrt(2) in L2.
        distance = math.sqrt(2.0) if self.adjacency is Adjacency.REPLACE else 1.0
        return _calibrated(self.epsilon, self.delta, distance)


@functools.lru_cache(maxsize=64)
def _calibrated(epsilon: float, delta: float, distance: float) -> float:
    return calibrate_gaussian(epsilon, delta, distance=distance)
