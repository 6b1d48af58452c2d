"""One-hot bits, each flipped on its own (basic RAPPOR).

A value becomes a row of bits with a single one in it. Two values differ in two
bits, so each bit gets half of epsilon (Erlingsson, Pihur, Korolova 2014). A
report supports every value whose bit is set.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.noisy_reports import (
    BitMatrix,
    FloatArray,
    IntArray,
    SupportProbs,
    check_held_values,
)
from tulle.mechanisms.thresholds import WORD_VALUES, log_ratio, loser_mass
from tulle.privacy.events import RandomizedResponse, Repeated

_CHUNK_WORDS = 1 << 17
"""Words that are drawn at once, so that the arrays stay in the processor's cache."""
_MAX_CHANNEL_VALUES = 16
"""Most values whose 2^values reports are written out, for exact checks of small cases."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RapporConfig:
    """Settings of one-hot randomized bits. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of a report between any two values held."""
    num_values: int
    """How many values a unit may hold; a report has one bit for each."""

    def __post_init__(self) -> None:
        RandomizedResponse(epsilon=self.epsilon, num_values=self.num_values)
        loser_mass(self.epsilon_per_bit, 2)

    @property
    def epsilon_per_bit(self) -> float:
        """Epsilon of one bit, half of the whole: two values differ in two bits."""
        return self.epsilon / 2

    def event(self) -> Repeated:
        """What one report of each unit costs."""
        return Repeated(event=RandomizedResponse(epsilon=self.epsilon_per_bit), count=2)

    @property
    def words_per_flip(self) -> int:
        """Words, of 2^64, that flip a bit."""
        return loser_mass(self.epsilon_per_bit, 2)

    @property
    def support_probs(self) -> SupportProbs:
        """The probabilities that the sampler realises."""
        flip = Fraction(self.words_per_flip, WORD_VALUES)
        return SupportProbs(if_held=1 - flip, if_not_held=flip)

    @property
    def realised_ratio(self) -> Fraction:
        """Largest likelihood ratio of the sampler; at most e^epsilon."""
        return (self.support_probs.if_held / self.support_probs.if_not_held) ** 2

    @property
    def realised_epsilon(self) -> float:
        """Logarithm of `realised_ratio`. Below epsilon by rounding only, except above 88."""
        return min(self.epsilon, log_ratio(self.realised_ratio))

    def outputs(self) -> list[tuple[bool, ...]]:
        """All reports, in the order of the channel's columns."""
        if self.num_values > _MAX_CHANNEL_VALUES:
            raise ConfigError(
                f"num_values={self.num_values} gives 2^{self.num_values} reports; a channel is "
                f"written out for at most {_MAX_CHANNEL_VALUES} values. Use support_probs."
            )
        return list(itertools.product((False, True), repeat=self.num_values))

    def channel_matrix(self) -> FloatArray:
        """Probability of each report (column) for each value held (row), before rounding."""
        flip = math.exp(-self.epsilon_per_bit) / (1 + math.exp(-self.epsilon_per_bit))
        num_flips = self._num_flips()
        return np.asarray(flip**num_flips * (1 - flip) ** (self.num_values - num_flips))

    def realised_channel(self) -> list[list[Fraction]]:
        """The channel of the sampler, as exact fractions."""
        flip = self.support_probs.if_not_held
        chances = [
            flip**count * (1 - flip) ** (self.num_values - count)
            for count in range(self.num_values + 1)
        ]
        return [[chances[count] for count in row] for row in self._num_flips()]

    def _num_flips(self) -> IntArray:
        bits = np.asarray(self.outputs())
        one_hot = np.eye(self.num_values, dtype=np.bool_)
        return np.asarray((one_hot[:, None, :] != bits[None, :, :]).sum(axis=2), np.int64)


def release_rappor(
    raw_values: ArrayLike, config: RapporConfig, *, rng: NoiseSource | None = None
) -> BitMatrix:
    """Draws one row of bits for each value.

    Args:
      raw_values: What each unit holds, from 0 to num_values - 1.
      config: Privacy settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: one entry, replace. Two bits differ between any two values.
      Event: RandomizedResponse(epsilon / 2), twice. Relies on: one entry a
      unit, drawn once.
    """
    rng = rng or release_rng()
    values = check_held_values(raw_values, config.num_values).reshape(-1)
    reports = np.empty((values.size, config.num_values), np.bool_)
    words_per_flip = np.uint64(config.words_per_flip)
    rows_per_chunk = max(1, _CHUNK_WORDS // config.num_values)
    for start in range(0, values.size, rows_per_chunk):
        held = values[start : start + rows_per_chunk]
        words = rng.words(held.size * config.num_values)
        bits = (words < words_per_flip).reshape(held.size, config.num_values)
        bits[np.arange(held.size), held] ^= True
        reports[start : start + rows_per_chunk] = bits
    return reports
