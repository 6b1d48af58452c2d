"""Binary and K-ary randomized response.

Each unit reports the value it holds, or, with a probability set by epsilon, one of
the other values. Draw once for each unit and keep the report: fresh draws for
the same value average out and pay again. Several reports of one unit share its epsilon.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.noisy_reports import (
    FloatArray,
    IntArray,
    SupportProbs,
    check_held_values,
)
from tulle.mechanisms.thresholds import WORD_VALUES, log_ratio, loser_mass
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.fields import check_count

Bits = NDArray[np.uint8]

# Reports that are drawn at once, so that the arrays stay in the processor's cache.
_CHUNK = 1 << 17
_BITS_CHUNK = 1 << 15


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomizedResponseConfig:
    """Settings of randomized response. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of a report between any two values held."""
    num_values: int = 2
    """How many values a unit may hold; all of them can be reported."""

    def __post_init__(self) -> None:
        self.event()
        loser_mass(self.epsilon, self.num_values)

    def event(self) -> RandomizedResponse:
        """What one report of each unit costs."""
        return RandomizedResponse(epsilon=self.epsilon, num_values=self.num_values)

    @property
    def words_per_loser(self) -> int:
        """Words, of 2^64, that lead to one particular wrong value."""
        return loser_mass(self.epsilon, self.num_values)

    @property
    def support_probs(self) -> SupportProbs:
        """The probabilities that the sampler realises."""
        lie = Fraction(self.words_per_loser, WORD_VALUES)
        return SupportProbs(if_held=1 - (self.num_values - 1) * lie, if_not_held=lie)

    @property
    def realised_ratio(self) -> Fraction:
        """Largest likelihood ratio of the sampler; at most e^epsilon."""
        return self.support_probs.if_held / self.support_probs.if_not_held

    @property
    def realised_epsilon(self) -> float:
        """Logarithm of `realised_ratio`. Below epsilon by rounding only, except above 44."""
        return min(self.epsilon, log_ratio(self.realised_ratio))

    def outputs(self) -> list[int]:
        """All reports, in the order of the channel's columns."""
        return list(range(self.num_values))

    def channel_matrix(self) -> FloatArray:
        """Probability of each report (column) for each value held (row), before rounding."""
        odds = math.exp(-self.epsilon)
        lie = odds / (1 + (self.num_values - 1) * odds)
        matrix = np.full((self.num_values, self.num_values), lie)
        np.fill_diagonal(matrix, 1 - (self.num_values - 1) * lie)
        return matrix

    def realised_channel(self) -> list[list[Fraction]]:
        """The channel of the sampler, as exact fractions."""
        probs = self.support_probs
        return [
            [probs.if_held if report == held else probs.if_not_held for report in self.outputs()]
            for held in range(self.num_values)
        ]


def release_randomized_response(
    raw_values: ArrayLike, config: RandomizedResponseConfig, *, rng: NoiseSource | None = None
) -> IntArray:
    """Draws one report for each value.

    Args:
      raw_values: What each unit holds, from 0 to num_values - 1.
      config: Privacy settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: one entry, replace. Local: each entry is noised on its own.
      Event: one RandomizedResponse. Relies on: one entry a unit, drawn once.
    """
    rng = rng or release_rng()
    values = check_held_values(raw_values, config.num_values)
    if config.num_values == 2:
        return release_randomized_bits(values.astype(np.uint8), config, rng=rng).astype(np.int64)
    flat = values.reshape(-1)
    reports = np.empty(flat.size, np.int64)
    num_losers = np.uint64(config.num_values - 1)
    words_per_loser = np.uint64(config.words_per_loser)
    for start in range(0, flat.size, _CHUNK):
        held = flat[start : start + _CHUNK]
        loser = rng.words(held.size) // words_per_loser
        is_lie = loser < num_losers
        other = loser.astype(np.int64)
        # Skips the value held, so that each of the others has the same number of words.
        other += other >= held
        reports[start : start + _CHUNK] = np.where(is_lie, other, held)
    return reports.reshape(values.shape)


def release_randomized_bits(
    raw_bits: Bits, config: RandomizedResponseConfig, *, rng: NoiseSource | None = None
) -> Bits:
    """Draws one report for each bit, kept as a byte: the same reports for the same words.

    Args:
      raw_bits: What each unit holds, 0 or 1.
      config: Privacy settings, for two values.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      As `release_randomized_response`.
    """
    rng = rng or release_rng()
    if config.num_values != 2:
        raise ConfigError(
            f"num_values={config.num_values} must be 2 for bits; use release_randomized_response()."
        )
    flat = np.asarray(raw_bits).reshape(-1)
    if flat.dtype != np.uint8 or (flat.size and flat.max() > 1):
        raise DataError(
            "raw_bits must be bytes of 0 and 1; drop missing labels and encode them first, or use "
            "release_randomized_response()."
        )
    reports = np.empty(flat.size, np.uint8)
    words_per_lie = np.uint64(config.words_per_loser)
    for start in range(0, flat.size, _BITS_CHUNK):
        held = flat[start : start + _BITS_CHUNK]
        is_lie = rng.words(held.size) < words_per_lie
        np.bitwise_xor(held, is_lie.view(np.uint8), out=reports[start : start + _BITS_CHUNK])
    return reports.reshape(np.shape(raw_bits))


def epsilon_share(epsilon: float, num_shares: int) -> float:
    """epsilon / num_shares, rounded down where as many floats would add up to more."""
    check_count("num_shares", num_shares)
    # Compared as fractions: a sum of floats would round the excess away that it should show.
    share = epsilon / num_shares
    while num_shares * Fraction(share) > Fraction(epsilon):
        share = math.nextafter(share, 0.0)
    return share
