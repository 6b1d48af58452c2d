"""Shares of integer noise that add up to discrete Laplace noise.

The discrete Laplace law is the difference of two geometric ones, and a
geometric number is the sum of n Pólya numbers (negative binomial with shape
1/n). So n parties can each draw a share, and nobody knows the total noise.

A share is drawn by inversion: a uniform real is compared with the cumulative
probabilities, which are known to as many bits as the comparison needs. The law is
that of ideal real arithmetic, with the scale taken as the fraction that it is.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words, release_rng
from tulle.mechanisms.exact import LazyUniform, directed_contexts
from tulle.mechanisms.thresholds import WORD_VALUES, exponential_bounds

IntArray = NDArray[np.int64]

MIN_SCALE = 0.02
"""Smallest noise scale: below it there is no noise in practice."""
MAX_SCALE = 20_000.0
"""Largest noise scale: the table of probabilities has about 45 entries for each unit of it."""

_WORD_BITS = 64
"""Bits of a word of a noise source."""
_GUARD_BITS = 128
"""Bits beyond those that a comparison needs, which take up the rounding of the bounds."""
_BLOCK = 1 << 16
"""Shares that are drawn at once, so that the arrays stay in the processor's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseShareConfig:
    """Settings of one party's share of the noise. Every field is public."""

    scale: float
    """Scale of the total noise: its probabilities are proportional to exp(-|i| / scale)."""
    num_shares: int
    """How many shares make up the total."""

    def __post_init__(self) -> None:
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise ConfigError(
                f"scale={self.scale} must be in [{MIN_SCALE}, {MAX_SCALE:g}]; "
                "above it sum in larger steps (cents instead of millicents, say)."
            )
        if not 1 <= self.num_shares <= 2**40:
            raise ConfigError(f"num_shares={self.num_shares} must be from 1 to 2^40.")

    @property
    def variance(self) -> float:
        """Variance of one share."""
        odds = math.exp(-1 / self.scale)
        return 2 * odds / math.expm1(-1 / self.scale) ** 2 / self.num_shares


def sample_noise_shares(
    config: NoiseShareConfig, num_samples: int, *, rng: NoiseSource | None = None
) -> IntArray:
    """Draws independent shares; any `num_shares` of them sum to discrete Laplace noise.

    Args:
      config: Scale of the total, and how many shares make it up.
      num_samples: How many shares to draw.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.
    """
    rng = rng or release_rng()
    plus = sample_polya(config, num_samples, rng=rng)
    return plus - sample_polya(config, num_samples, rng=rng)


def sample_polya(config: NoiseShareConfig, num_samples: int, *, rng: NoiseSource) -> IntArray:
    """Draws numbers >= 0; any `num_shares` of them sum to a geometric number.

    Args:
      config: Scale of the total, and how many numbers make it up.
      num_samples: How many to draw.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    thresholds = polya_thresholds(config.scale, config.num_shares)
    samples = np.empty(num_samples, np.int64)
    for start in range(0, num_samples, _BLOCK):
        block = samples[start : start + _BLOCK]
        words = rng.words(block.size)
        block[:] = np.searchsorted(thresholds, words, side="left")
        # A word equal to a threshold leaves open on which side the uniform lies.
        is_open = thresholds[np.minimum(block, thresholds.size - 1)] <= words
        for index in np.flatnonzero(is_open):
            uniform = LazyUniform(int(words[index]), _WORD_BITS, rng)
            block[index] = _decide(config, uniform)
    return samples


@functools.lru_cache(maxsize=8)
def polya_thresholds(scale: float, num_shares: int) -> Words:
    """floor(2^64 F(k)) for the cumulative probabilities F, until it is 2^64 - 1."""
    num_bits = _WORD_BITS
    while True:
        thresholds = _certain_thresholds(scale, num_shares, num_bits)
        if thresholds is not None:
            return np.array(thresholds, dtype=np.uint64)
        num_bits *= 2


def _certain_thresholds(scale: float, num_shares: int, num_bits: int) -> list[int] | None:
    """The thresholds, or None if these bits leave one of them open."""
    thresholds = []
    drop = num_bits + _GUARD_BITS - _WORD_BITS
    for low, high in _cumulative_bounds(scale, num_shares, num_bits):
        threshold = low >> drop
        if threshold != min(high >> drop, WORD_VALUES - 1):
            return None
        thresholds.append(threshold)
        if threshold == WORD_VALUES - 1:
            return thresholds
    return None


def _decide(config: NoiseShareConfig, uniform: LazyUniform) -> int:
    """The least k with uniform < F(k). Refines the uniform as needed."""
    while True:
        uniform.refine()
        least, most = (u << _GUARD_BITS for u in (uniform.numerator, uniform.numerator + 1))
        bounds = _cumulative_bounds(config.scale, config.num_shares, uniform.num_bits)
        for value, (low, high) in enumerate(bounds):
            if most <= low:
                return value
            if least < high:
                break  # the uniform may lie on either side of F(value)


def _cumulative_bounds(scale: float, num_shares: int, num_bits: int) -> Iterator[tuple[int, int]]:
    """Bounds on F(0), F(1), ... in units of 2^-(num_bits + guard), while they grow.

    With p = exp(-1 / scale) and r = 1 / num_shares the probabilities are
    P(0) = (1 - p)^r and P(k + 1) = P(k) p (k + r) / (k + 1).
    """
    unit = num_bits + _GUARD_BITS
    num_digits = unit // 3 + 20
    odds = exponential_bounds(-1 / Fraction(scale), num_digits=num_digits)
    log_low, log_high = (
        _log_bounds(1 - odds[1], num_digits)[0],
        _log_bounds(1 - odds[0], num_digits)[1],
    )
    low = _scale_down(exponential_bounds(log_low / num_shares, num_digits=num_digits)[0], unit)
    high = _scale_up(exponential_bounds(log_high / num_shares, num_digits=num_digits)[1], unit)
    odds_low, odds_high = _scale_down(odds[0], unit), _scale_up(odds[1], unit)
    total_low, total_high, value = low, high, 0
    while low:
        yield total_low, total_high
        factor, divisor = value * num_shares + 1, num_shares * (value + 1)
        low = low * odds_low * factor // divisor >> unit
        high = -(-(high * odds_high * factor) // divisor >> unit)
        total_low, total_high, value = total_low + low, total_high + high, value + 1


def _log_bounds(value: Fraction, num_digits: int) -> tuple[Fraction, Fraction]:
    down, up = directed_contexts(num_digits)
    low = down.divide(value.numerator, value.denominator)
    high = up.divide(value.numerator, value.denominator)
    # Decimal.ln rounds correctly to nearest, so one step outwards is a bound.
    return Fraction(down.next_minus(down.ln(low))), Fraction(up.next_plus(up.ln(high)))


def _scale_down(value: Fraction, num_bits: int) -> int:
    return (value.numerator << num_bits) // value.denominator


def _scale_up(value: Fraction, num_bits: int) -> int:
    return -((-value.numerator << num_bits) // value.denominator)
