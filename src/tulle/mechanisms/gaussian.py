"""Gaussian noise for real numbers, on a lattice.

The released value is the continuous Gaussian mechanism's output rounded to a
grid, decided exactly; `lattice` has the argument why no bit of it leaks more.
"""

import dataclasses
import functools
import math

from numpy.typing import ArrayLike

from tulle.mechanisms.analytic_gaussian import calibrate_gaussian
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import FloatArray, check_scale
from tulle.mechanisms.intervals import CentredNoise, check_confidence, normal_quantile
from tulle.mechanisms.lattice import (
    LatticeNoise,
    check_contribution,
    fit_lattice,
    release_on_lattice,
)
from tulle.mechanisms.rounded_normal import sample_rounded_normal
from tulle.privacy import events
from tulle.privacy.release import Release
from tulle.privacy.units import Adjacency


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianConfig(CentredNoise):
    """Settings of Gaussian noise on real numbers. Every field is public information."""

    noise_multiplier: float
    """Noise standard deviation over the largest L2 contribution."""
    max_contribution: float = 1.0
    """Largest L2 norm of what one unit adds to all values of the release."""
    max_values_per_unit: int = 1
    """Most values that one unit adds something to."""
    replace_factor: float = 2.0
    """How much further than a removal a replacement moves the values; see privacy.events."""

    def __post_init__(self) -> None:
        self.event()
        check_contribution(self.max_contribution, self.max_values_per_unit)
        check_scale("noise in grid widths", self.fitted.noise_in_steps)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: float,
        delta: float,
        *,
        adjacency: Adjacency,
        max_contribution: float = 1.0,
        max_values_per_unit: int = 1,
        replace_factor: float = 2.0,
    ) -> "GaussianConfig":
        """The least noise with which one release is (epsilon, delta)-private."""
        factor = replace_factor if adjacency is Adjacency.REPLACE else 1.0
        return cls(
            noise_multiplier=calibrate_gaussian(epsilon, delta, distance=factor),
            max_contribution=max_contribution,
            max_values_per_unit=max_values_per_unit,
            replace_factor=replace_factor,
        )

    @functools.cached_property
    def fitted(self) -> LatticeNoise:
        """The grid and the noise on it."""
        # A replaced unit may leave all its values and enter as many others.
        rounding_steps = math.sqrt(2.0 * self.max_values_per_unit)
        return fit_lattice(self.noise_multiplier, self.max_contribution, rounding_steps)

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each value."""
        return self.fitted.noise

    def half_width(self, confidence: float = 0.95) -> float:
        """What noise and rounding exceed in size with chance <= 1 - confidence."""
        check_confidence(confidence)
        quantile = normal_quantile(confidence)
        return quantile * self.noise_stddev + self.fitted.lattice.width

    def event(self) -> events.Gaussian:
        """What one release costs."""
        return events.Gaussian(
            noise_multiplier=self.noise_multiplier, replace_factor=self.replace_factor
        )


def release_gaussian(
    raw_values: ArrayLike, config: GaussianConfig, *, rng: NoiseSource
) -> FloatArray:
    """Adds Gaussian noise to real numbers.

    Args:
      raw_values: Finite numbers of any shape, sums of bounded contributions.
      config: Noise and contribution settings.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      Unit: the caller's. L2 sensitivity: max_contribution (times replace_factor
      under replace), plus the rounding to the grid, which the noise allows for.
      Event: one Gaussian for all values together. Relies on: no unit adds more
      than max_contribution in L2, nor to more than max_values_per_unit values.
    """
    return release_on_lattice(raw_values, config.fitted, sample_rounded_normal, rng=rng)


def release_one_gaussian(
    raw_value: float, config: GaussianConfig, *, rng: NoiseSource, confidence: float = 0.95
) -> Release:
    """Releases one number with its interval.

    Privacy:
      As `release_gaussian` for one value.
    """
    noisy_value = float(release_gaussian(raw_value, config, rng=rng))
    return config.as_release(noisy_value, confidence=confidence)
