"""Staircase noise on integers: the pure noise of least variance for one bounded number.

The probability of an integer depends on its size alone, and falls by a factor e^-epsilon
each time that the size has grown by the sensitivity, in steps instead of all the way
down (Geng, Viswanath 2014). Level 0 are the sizes below an inner width, every further
level the next `sensitivity` sizes. So two integers that are no further apart than the
sensitivity are on levels that differ by at most one: the guarantee is a count of
levels. The level is drawn as the floor of a shifted exponential, exactly, and the place
within it is uniform.
"""

import dataclasses
import enum
import functools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError
from tulle.mechanisms.centred_noise import checked_counts
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import (
    Bounds,
    ExponentialFloor,
    FloatArray,
    IntArray,
    Size,
    as_shape,
    check_scale,
    directed_contexts,
    sample_signed_floors,
)
from tulle.mechanisms.thresholds import sample_below
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.fields import check_count

_NEIGHBOURS = 2
"""Widths to each side of the continuous optimum among which the best whole one is taken."""
_MOST_EPSILON = 500.0
"""Largest epsilon: the variance is below 1e-170 long before."""


class StaircaseAim(enum.Enum):
    """What the inner width makes small."""

    VARIANCE = "variance"
    """The variance of the noise."""
    SIZE = "size"
    """The mean size of the noise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaircaseConfig:
    """Settings of staircase noise on one integer. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of an output between any two inputs of a unit."""
    sensitivity: int = 1
    """Most that one unit changes the integer by, under the adjacency in use."""
    aim: StaircaseAim = StaircaseAim.VARIANCE
    """What the inner width makes small."""

    def __post_init__(self) -> None:
        check_count("sensitivity", self.sensitivity)
        if not isinstance(self.aim, StaircaseAim):
            raise ConfigError(f"aim={self.aim!r} must be a StaircaseAim.")
        self.event()
        check_scale("1 / epsilon", self.scale)
        check_scale("sensitivity / epsilon", self.sensitivity * self.scale)

    @functools.cached_property
    def scale(self) -> float:
        """Levels over which the probability falls by a factor e: 1 / epsilon, rounded up."""
        # Quotient and product round by 2^-53 each; the factor is above both.
        return 1 / self.epsilon * (1 + 2.0**-50)

    @property
    def realised_epsilon(self) -> Fraction:
        """The exact epsilon of the sampler; below `epsilon` by rounding only."""
        return 1 / Fraction(self.scale)

    @functools.cached_property
    def inner_width(self) -> int:
        """Sizes on level 0: the best whole number."""
        share = (
            best_inner_share(self.epsilon)
            if self.aim is StaircaseAim.VARIANCE
            else best_inner_share_for_size(self.epsilon)
        )
        # Zero has no sign, so level 0 is half a size narrower than in the continuous law.
        middle = round(share * self.sensitivity + 0.5)
        nearby = range(middle - _NEIGHBOURS, middle + _NEIGHBOURS + 1)
        widths = sorted({min(max(width, 1), self.sensitivity) for width in nearby})
        power = 2 if self.aim is StaircaseAim.VARIANCE else 1
        return min(widths, key=lambda width: self._mean_power(width, power))

    @property
    def variance(self) -> float:
        """Variance of the noise."""
        return self._mean_power(self.inner_width, 2)

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise."""
        return math.sqrt(self.variance)

    @property
    def mean_size(self) -> float:
        """Mean of the noise's absolute value."""
        return self._mean_power(self.inner_width, 1)

    def event(self) -> EpsilonDelta:
        """What one release costs."""
        if not 0 < self.epsilon <= _MOST_EPSILON:
            raise ConfigError(
                f"epsilon={self.epsilon} must be > 0 and at most {_MOST_EPSILON:g}, where hardly "
                "any noise is left; choose e.g. 1."
            )
        return EpsilonDelta(epsilon=self.epsilon)

    def level_of(self, values: ArrayLike) -> IntArray:
        """The level of each integer: its probability is e^-realised_epsilon to that power."""
        sizes = np.abs(np.asarray(values, np.int64))
        return (sizes + self.sensitivity - self.inner_width) // self.sensitivity

    def pmf(self, values: ArrayLike) -> FloatArray:
        """The probability of each integer."""
        return np.asarray(self._top_prob * np.exp(-self.level_of(values) / self.scale))

    def tail(self, sizes: ArrayLike) -> FloatArray:
        """Probability that the noise is at least each of these integers, all >= 1."""
        least = np.asarray(sizes, np.int64)
        levels = self.level_of(least)
        ends = levels * self.sensitivity + self.inner_width
        probs = self._top_prob * np.exp(-levels / self.scale)
        beyond = self.sensitivity * probs / math.expm1(1 / self.scale)
        return np.asarray((ends - least) * probs + beyond)

    @property
    def _top_prob(self) -> float:
        """Probability of zero: one over the sum of e^(-epsilon level) over all integers."""
        falling = 1 / math.expm1(1 / self.scale)
        return 1 / (2 * self.inner_width - 1 + 2 * self.sensitivity * falling)

    def _mean_power(self, inner_width: int, power: int) -> float:
        """The mean of |noise|^power for power 1 or 2."""
        width = self.sensitivity
        odds = math.exp(-1 / self.scale)
        left = -math.expm1(-1 / self.scale)
        # Sums of odds^k m^p over the levels k = m + 1 >= 1.
        sums = (odds / left, odds**2 / left**2, odds**2 * (1 + odds) / left**3)
        inner = _range_sum(inner_width, power)
        # Sizes on a level are m width + inner_width + j for j below the width.
        if power == 1:
            first = width * inner_width + _range_sum(width, 1)
            outer = width**2 * sums[1] + first * sums[0]
        else:
            linear = 2 * width * (inner_width * width + _range_sum(width, 1))
            constant = (
                width * inner_width**2
                + 2 * inner_width * _range_sum(width, 1)
                + _range_sum(width, 2)
            )
            outer = width**3 * sums[2] + linear * sums[1] + constant * sums[0]
        return 2 * (inner + outer) / (2 * inner_width - 1 + 2 * width * sums[0])


def release_staircase(
    raw_values: ArrayLike, config: StaircaseConfig, *, rng: NoiseSource | None = None
) -> IntArray:
    """Adds staircase noise to integers.

    Args:
      raw_values: Exact integers of any shape.
      config: Noise and sensitivity.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: the caller's. Sensitivity: `sensitivity`, of one of the integers. Event: one
      EpsilonDelta without delta. Relies on: a unit changes one integer, by no more.
    """
    rng = rng or release_rng()
    values = checked_counts(raw_values)
    return values + sample_staircase(config, values.shape, rng=rng)


def sample_staircase(config: StaircaseConfig, size: Size, *, rng: NoiseSource) -> IntArray:
    """Exact draws of staircase noise.

    Args:
      config: Noise and sensitivity.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    levels = sample_signed_floors(staircase_level_law(config), as_shape(size), rng=rng).reshape(-1)
    noise = np.empty(levels.size, np.int64)
    is_inner = levels == 0
    width, reach = config.sensitivity, config.inner_width - 1
    inner = sample_below(2 * reach + 1, int(is_inner.sum()), rng=rng).astype(np.int64)
    noise[is_inner] = inner - reach
    outer = levels[~is_inner]
    place = sample_below(width, outer.size, rng=rng).astype(np.int64)
    sizes = (np.abs(outer) - 1) * width + config.inner_width + place
    noise[~is_inner] = np.where(outer < 0, -sizes, sizes)
    return noise.reshape(as_shape(size))


def staircase_level_law(config: StaircaseConfig) -> ExponentialFloor:
    """The law of the level: P(level >= k) = e^(-(k - offset) / scale) for k >= 1.

    With c = (2 inner_width - 1) / (2 sensitivity), the sizes of level 0 against those of
    another level, and b = e^(-1/scale), the offset is -scale ln(c + (1 - c) b).
    """
    inner, outer = 2 * config.inner_width - 1, 2 * config.sensitivity
    scale = config.scale
    return ExponentialFloor(
        scale=scale,
        offset=-scale * math.log1p((outer - inner) / outer * math.expm1(-1 / scale)),
        offset_bounds=functools.partial(_offset_bounds, Decimal(scale), inner, outer),
    )


def best_inner_share(epsilon: float) -> float:
    """The share of the sensitivity on level 0 that makes the variance of the real law least.

    Geng, Viswanath 2014, written in b = e^-epsilon.
    """
    if epsilon < 0.01:
        # Two large numbers cancel there. Right to epsilon^3.
        return 0.5 - epsilon / 12
    b = math.exp(-epsilon)
    root = math.cbrt((b - 2 * b**2 + 2 * b**4 - b**5) / 2)
    return min(1.0, max(0.0, -b / (1 - b) + root / (1 - b) ** 2))


def best_inner_share_for_size(epsilon: float) -> float:
    """The share that makes the mean size of the real law least: 1 / (1 + e^(epsilon/2))."""
    odds = math.exp(-epsilon / 2)
    return odds / (1 + odds)


def _range_sum(bound: int, power: int) -> int:
    """The sum of i^power over 0 <= i < bound, for power 1 or 2."""
    half = bound * (bound - 1) // 2
    return half if power == 1 else half * (2 * bound - 1) // 3


@functools.lru_cache(maxsize=64)
def _offset_bounds(scale: Decimal, inner: int, outer: int, num_digits: int) -> Bounds:
    """Bounds on scale ln(outer / (inner + (outer - inner) b)) with b = e^(-1/scale)."""
    # The logarithm of a number near 1 loses as many digits as the scale has.
    down, up = directed_contexts(num_digits + 20)
    least_b = down.next_minus(down.exp(down.divide(Decimal(-1), scale)))
    most_b = up.next_plus(up.exp(up.divide(Decimal(-1), scale)))
    least_sum = down.fma(Decimal(outer - inner), least_b, Decimal(inner))
    most_sum = up.fma(Decimal(outer - inner), most_b, Decimal(inner))
    least = down.next_minus(down.ln(down.divide(Decimal(outer), most_sum)))
    most = up.next_plus(up.ln(up.divide(Decimal(outer), least_sum)))
    return down.multiply(scale, least), up.multiply(scale, most)
