"""Gaussian noise for real numbers, on a lattice.

The released value is the continuous Gaussian mechanism's output rounded to a
grid, decided exactly; `lattice` has the argument why no bit of it leaks more.

Rounded normals come from the method of Box and Muller, which turns two uniform reals into two
independent normals. Floats decide the rounding where they safely can, interval arithmetic on lazily
drawn bits does elsewhere, as in `exact`.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tulle.mechanisms.analytic_gaussian import calibrate_gaussian
from tulle.mechanisms.centred_noise import check_confidence, neighbour_distance, normal_quantile
from tulle.mechanisms.entropy import NoiseSource, Words, release_rng
from tulle.mechanisms.exact import (
    BLOCK,
    LEAST_FAST_NUMERATOR,
    UNIFORM_BITS,
    FloatArray,
    IntArray,
    LazyUniform,
    Size,
    as_shape,
    check_scale,
    cosine_and_sine,
    sqrt_bounds,
)
from tulle.mechanisms.lattice import RealNoiseConfig, release_on_lattice
from tulle.privacy import events
from tulle.privacy.guarantee import Release
from tulle.privacy.units import Adjacency


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianConfig(RealNoiseConfig):
    """Settings of Gaussian noise on real numbers. Every field is public information.

    `noise_multiplier` is the standard deviation of the noise over `max_contribution`, the largest
    L2 norm of what one unit adds.
    """

    @classmethod
    def for_epsilon(
        cls,
        epsilon: float,
        delta: float,
        *,
        adjacency: Adjacency | str,
        max_contribution: float = 1.0,
        max_values_per_unit: int = 1,
        replace_factor: float = 2.0,
    ) -> "GaussianConfig":
        """The least noise with which one release is (epsilon, delta)-private.

        Args:
          epsilon: What one release may cost.
          delta: Probability that the bound may fail.
          adjacency: Relation under which data sets are neighbours, also as text.
          max_contribution: Largest L2 norm of what one unit adds.
          max_values_per_unit: Most values that one unit adds something to.
          replace_factor: How much further than a removal a replacement moves the values.
        """
        factor = neighbour_distance(adjacency, replace_factor)
        return cls(
            noise_multiplier=calibrate_gaussian(epsilon, delta, distance=factor),
            max_contribution=max_contribution,
            max_values_per_unit=max_values_per_unit,
            replace_factor=replace_factor,
        )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each value."""
        return self.fitted.noise

    def half_width(self, confidence: float = 0.95) -> float:
        """What noise and rounding exceed in size with probability <= 1 - confidence."""
        check_confidence(confidence)
        quantile = normal_quantile(confidence)
        return quantile * self.noise_stddev + self.fitted.lattice.width

    @property
    def _rounding_steps(self) -> float:
        # A replaced unit may leave all its values and enter as many others.
        return math.sqrt(2.0 * self.max_values_per_unit)

    def event(self) -> events.Gaussian:
        """What one release costs."""
        return events.Gaussian(
            noise_multiplier=self.noise_multiplier, replace_factor=self.replace_factor
        )


def release_gaussian(
    raw_values: ArrayLike, config: GaussianConfig, *, rng: NoiseSource | None = None
) -> FloatArray:
    """Adds Gaussian noise to real numbers.

    Args:
      raw_values: Finite numbers of any shape, sums of bounded contributions.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: the caller's. L2 sensitivity: max_contribution (times replace_factor
      under replace), plus the rounding to the grid, which the noise allows for.
      Event: one Gaussian for all values together. Relies on: no unit adds more
      than max_contribution in L2, nor to more than max_values_per_unit values.
    """
    rng = rng or release_rng()
    return release_on_lattice(raw_values, config, sample_rounded_normal, rng=rng)


def release_one_gaussian(
    raw_value: float,
    config: GaussianConfig,
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
      As `release_gaussian` for one value.
    """
    noisy_value = float(release_gaussian(raw_value, config, rng=rng))
    return config.as_release(noisy_value, confidence=confidence)


# The radius errs by at most 2^-46 / radius + 2^-50 radius (the error of -ln U that
# `exact` states, through a square root), cosine and sine by 2^-48 each.
_SLACK = 2.0**-44


def sample_rounded_normal(stddev: float, size: Size, *, rng: NoiseSource) -> IntArray:
    """Continuous normal noise rounded to the nearest integers, exactly.

    Args:
      stddev: Standard deviation before rounding.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    check_scale("stddev", stddev)
    shape = as_shape(size)
    num_pairs = -(-math.prod(shape) // 2)
    result = np.empty((2, num_pairs), dtype=np.int64)
    for start in range(0, num_pairs, BLOCK):
        block = result[:, start : start + BLOCK]
        block[:] = rounded_normals_of_words(rng.words(2 * block.shape[1]), stddev, rng=rng)
    return result.ravel()[: math.prod(shape)].reshape(shape)


def rounded_normals_of_words(
    words: Words, stddev: float, *, rng: NoiseSource, slack: float = _SLACK
) -> IntArray:
    """Two rows of draws from an even number of words.

    Args:
      words: Fresh uniform words: one half for the radii, one for the angles.
      stddev: Standard deviation before rounding.
      rng: Source of further bits for the draws that need them.
      slack: Relative distance from a boundary below which a float does not
        decide. A larger one changes the speed only.
    """
    numerators = (words >> np.uint64(1)).view(np.int64).reshape(2, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        radii = np.sqrt(-2.0 * np.log(numerators[0] * 2.0**-UNIFORM_BITS))
        angles = numerators[1] * (math.tau * 2.0**-UNIFORM_BITS)
        reals = stddev * radii * np.stack([np.cos(angles), np.sin(angles)])
        nearest = np.rint(reals)
        margins = slack * stddev * (radii + 1.0 / radii)
        too_close = np.abs(reals - nearest) + margins >= 0.5
        undecided = too_close.any(axis=0) | (numerators[0] < LEAST_FAST_NUMERATOR)
        result: IntArray = nearest.astype(np.int64)
    for index in np.flatnonzero(undecided):
        radius_uniform, angle_uniform = (
            LazyUniform(int(numerator), UNIFORM_BITS, rng) for numerator in numerators[:, index]
        )
        result[:, index] = decide_rounded_normals(Fraction(stddev), radius_uniform, angle_uniform)
    return result


def decide_rounded_normals(
    stddev: Fraction, radius_uniform: LazyUniform, angle_uniform: LazyUniform
) -> tuple[int, int]:
    """The two rounded normals of two uniforms, exactly. Refines both as needed.

    Args:
      stddev: Standard deviation before rounding.
      radius_uniform: The uniform behind the radius.
      angle_uniform: The uniform behind the angle.
    """
    while True:
        logs = radius_uniform.negative_log_bounds()
        if logs is not None:
            squares = 2 * Fraction(logs[0]), 2 * Fraction(logs[1])
            low, high = sqrt_bounds(*squares, num_bits=radius_uniform.num_bits + 32)
            cosine, sine, error = cosine_and_sine(angle_uniform)
            first = _decided_product(stddev * low, stddev * high, cosine, error)
            second = _decided_product(stddev * low, stddev * high, sine, error)
            if first is not None and second is not None:
                return first, second
        radius_uniform.refine()
        angle_uniform.refine()


def _decided_product(
    low: Fraction, high: Fraction, factor: Fraction, error: Fraction
) -> int | None:
    """The nearest integer of a number in [low, high] times one within `error` of `factor`."""
    least = min(low * (factor - error), high * (factor - error))
    most = max(low * (factor + error), high * (factor + error))
    half = Fraction(1, 2)
    nearest = math.floor(least + half)
    return nearest if nearest == math.floor(most + half) else None
