"""A private choice of which keys to publish, by how many units each key has.

The mere presence of a key (a campaign, a product, a page) can betray the one
unit that has it. The truncated geometric rule keeps each key with the largest
probability that (epsilon, delta) allows for every count at once (Desfontaines,
Voss, Gipson, Mandayam 2020): the most keys of any rule that looks at each key
on its own. It says only which keys pass; their counts are not released.
"""

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, Words, release_rng
from tulle.mechanisms.thresholds import WORD_VALUES, exponential_bounds
from tulle.privacy.events import KeySelection

_MAX_EPSILON = 64.0
"""Largest epsilon of a key: there a key that two units have is kept almost surely already."""
_MAX_TABLE_LENGTH = 1 << 20
"""Most counts whose probability to be kept is below 1, and listed."""
_FRACTION_BITS = 192
"""Bits of the fractions of which words are made, three times those of a word."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeySelectionConfig:
    """Settings of a private choice of keys. Every field is public information."""

    epsilon: float
    """Epsilon of each key that a unit has."""
    delta: float
    """Delta of each key; also the probability to publish a key that one unit has."""
    max_keys_per_unit: int = 1
    """Most keys that one unit may be counted in."""

    def __post_init__(self) -> None:
        self.event()
        if not 0 < self.epsilon <= _MAX_EPSILON:
            raise ConfigError(f"epsilon={self.epsilon} must be in (0, {_MAX_EPSILON:g}].")
        if self.delta < 1 / WORD_VALUES:
            raise ConfigError(
                f"delta={self.delta} must be at least 2^-64, one random word; choose e.g. 1e-7."
            )
        if self._table_length_bound > _MAX_TABLE_LENGTH:
            raise ConfigError(
                f"epsilon={self.epsilon} with delta={self.delta} needs {self._table_length_bound} "
                f"units before a key is sure to be kept, more than {_MAX_TABLE_LENGTH}; "
                "raise epsilon or delta."
            )

    def event(self) -> KeySelection:
        """What one choice costs."""
        return KeySelection(
            epsilon=self.epsilon, delta=self.delta, max_keys_per_unit=self.max_keys_per_unit
        )

    @property
    def num_units_sure(self) -> int:
        """Fewest units with which a key is always kept."""
        return len(keep_thresholds(self.epsilon, self.delta)) - 1

    def keep_prob(self, num_units: int) -> float:
        """Probability that a key with this many units is kept."""
        if num_units < 0:
            raise ConfigError(f"num_units={num_units} must be >= 0.")
        table = keep_thresholds(self.epsilon, self.delta)
        return table[min(num_units, len(table) - 1)] / WORD_VALUES

    @property
    def _table_length_bound(self) -> int:
        # Both halves of the rule grow by e^epsilon a step, from delta to at most 1/2.
        growth = math.log1p(math.expm1(self.epsilon) / (2 * self.delta)) / self.epsilon
        return 2 * math.ceil(growth) + 4


def select_keys(
    raw_unit_counts: ArrayLike, config: KeySelectionConfig, *, rng: NoiseSource | None = None
) -> NDArray[np.bool_]:
    """Decides for each key whether it may be published.

    Args:
      raw_unit_counts: How many different units each key has. Which keys are
        listed here is as sensitive as the counts.
      config: Privacy settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: any, add-remove or replace. A unit changes the counts of at most
      `max_keys_per_unit` keys (twice as many under replace) by one.
      Event: one KeySelection. Relies on: every unit counted once a key and in
      at most `max_keys_per_unit` keys; the result is used only to drop keys.
    """
    rng = rng or release_rng()
    counts = check_unit_counts(raw_unit_counts)
    table = keep_thresholds(config.epsilon, config.delta)
    sure = len(table) - 1
    thresholds: Words = np.array(table[:-1], dtype=np.uint64)
    is_kept = rng.words(counts.size) < thresholds[np.minimum(counts, sure - 1)]
    # 2^64 words do not fit the table of words, so keys that are sure are added by their counts.
    return np.asarray(is_kept | (counts >= sure))


def check_unit_counts(raw_unit_counts: ArrayLike) -> NDArray[np.int64]:
    """The counts as integers >= 0; else an error that hides them.

    Privacy:
      Releases nothing: the error shows none of the counts.
    """
    counts = np.asarray(raw_unit_counts)
    if counts.size == 0:
        counts = counts.astype(np.int64)
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise DataError(
            f"raw_unit_counts has type {counts.dtype} and {counts.ndim} dimensions; "
            "give one whole number for each key."
        )
    if counts.size and counts.min() < 0:
        raise DataError("raw_unit_counts has negative entries; count distinct units for each key.")
    return counts.astype(np.int64, copy=False)


@functools.lru_cache(maxsize=16)
def keep_thresholds(epsilon: float, delta: float) -> tuple[int, ...]:
    """Words, of 2^64, that keep a key with 0, 1, 2, ... units; the last is 2^64.

    The recursion behind the closed form (Desfontaines et al. 2020, equation 1),
    on integers: each step is rounded down, so both inequalities of
    (epsilon, delta) hold exactly for the thresholds themselves.
    """
    one = 1 << _FRACTION_BITS
    growth = math.floor(exponential_bounds(epsilon)[0] * one)
    shrink = math.ceil(exponential_bounds(-epsilon)[1] * one)
    top, bottom = delta.as_integer_ratio()
    slack = (top * WORD_VALUES << _FRACTION_BITS) // bottom
    thresholds = [0]
    while thresholds[-1] < WORD_VALUES:
        last = thresholds[-1]
        # Down, from a growth that is rounded down too: e^epsilon last + delta is not exceeded.
        most_if_rare = (growth * last + slack) >> _FRACTION_BITS
        # 1 - e^-epsilon (1 - last - delta), with the subtracted part rounded up.
        unkept = ((WORD_VALUES - last) << _FRACTION_BITS) - slack
        rest = -(-unkept * shrink // (one * one)) if unkept > 0 else 0
        thresholds.append(min(most_if_rare, WORD_VALUES - rest))
    return tuple(thresholds)
