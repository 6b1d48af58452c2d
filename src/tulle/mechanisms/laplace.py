"""Laplace noise for real numbers, on a lattice.

The released value is the continuous Laplace mechanism's output rounded to a
grid, decided exactly; `lattice` has the argument why no bit of it leaks more.
"""

import dataclasses
import math
from decimal import Decimal

from numpy.typing import ArrayLike

from tulle.mechanisms.centred_noise import check_confidence, neighbour_distance
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import (
    FloatArray,
    IntArray,
    Size,
    check_scale,
    exponential_floor,
    rounded_up,
    sample_signed_floors,
)
from tulle.mechanisms.lattice import RealNoiseConfig, release_on_lattice
from tulle.privacy import events
from tulle.privacy.fields import check_epsilon
from tulle.privacy.guarantee import Release
from tulle.privacy.units import Adjacency


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceConfig(RealNoiseConfig):
    """Settings of Laplace noise on real numbers. Every field is public information.

    `noise_multiplier` is the scale of the noise (not its standard deviation) over
    `max_contribution`, the largest L1 norm of what one unit adds.
    """

    @classmethod
    def for_epsilon(
        cls,
        epsilon: float,
        *,
        adjacency: Adjacency | str,
        max_contribution: float = 1.0,
        max_values_per_unit: int = 1,
        replace_factor: float = 2.0,
    ) -> "LaplaceConfig":
        """The least noise with which one release costs at most `epsilon`.

        Args:
          epsilon: What one release may cost.
          adjacency: Relation under which data sets are neighbours, also as text.
          max_contribution: Largest L1 norm of what one unit adds.
          max_values_per_unit: Most values that one unit adds something to.
          replace_factor: How much further than a removal a replacement moves the values.
        """
        check_epsilon(epsilon)
        factor = neighbour_distance(adjacency, replace_factor)
        return cls(
            noise_multiplier=rounded_up(factor / epsilon),
            max_contribution=max_contribution,
            max_values_per_unit=max_values_per_unit,
            replace_factor=replace_factor,
        )

    @property
    def noise_scale(self) -> float:
        """Scale of the noise on each value: its mean size."""
        return self.fitted.noise

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each value."""
        return math.sqrt(2) * self.fitted.noise

    def half_width(self, confidence: float = 0.95) -> float:
        """What noise and rounding exceed in size with probability <= 1 - confidence."""
        check_confidence(confidence)
        return -math.log1p(-confidence) * self.noise_scale + self.fitted.lattice.width

    @property
    def _rounding_steps(self) -> float:
        # A replaced unit may leave all its values and enter as many others.
        return 2.0 * self.max_values_per_unit

    def event(self) -> events.Laplace:
        """What one release costs."""
        return events.Laplace(
            noise_multiplier=self.noise_multiplier, replace_factor=self.replace_factor
        )


def release_laplace(
    raw_values: ArrayLike, config: LaplaceConfig, *, rng: NoiseSource | None = None
) -> FloatArray:
    """Adds Laplace noise to real numbers.

    Args:
      raw_values: Finite numbers of any shape, sums of bounded contributions.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: the caller's. L1 sensitivity: max_contribution (times replace_factor
      under replace), plus the rounding to the grid, which the noise allows for.
      Event: one Laplace for all values together. Relies on: no unit adds more
      than max_contribution in L1, nor to more than max_values_per_unit values.
    """
    rng = rng or release_rng()
    return release_on_lattice(raw_values, config, sample_rounded_laplace, rng=rng)


def release_one_laplace(
    raw_value: float,
    config: LaplaceConfig,
    *,
    rng: NoiseSource | None = None,
    confidence: float = 0.95,
) -> Release:
    """Releases one number with its interval.

    Args:
      raw_value: A finite number, a sum of bounded contributions.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.
      confidence: Probability with which the interval holds the raw number.

    Privacy:
      As `release_laplace` for one value.
    """
    noisy_value = float(release_laplace(raw_value, config, rng=rng))
    return config.as_release(noisy_value, confidence=confidence)


def sample_rounded_laplace(scale: float, size: Size, *, rng: NoiseSource) -> IntArray:
    """Continuous Laplace noise rounded to the nearest integers, exactly.

    Args:
      scale: Scale before rounding.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    check_scale("scale", scale)
    return sample_signed_floors(exponential_floor(scale, Decimal("0.5")), size, rng=rng)
