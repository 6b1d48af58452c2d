"""Orders of the rows that are public: computed when asked for, and never stored.

They come from a seed in the settings, so that a run that goes on after an
interruption goes on in the same order. No privacy rests on them: whatever uses
them is accounted as if everybody knew the order.
"""

import dataclasses
import hashlib

import numpy as np
from numpy.typing import NDArray

from tulle.mechanisms.entropy import Words

IntArray = NDArray[np.int64]

_NUM_ROUNDS = 3
"""Rounds of the network, each of which changes both halves. No privacy rests on how they mix."""
_LEAST_BITS = 8
"""Least number of bits that are permuted; fewer mix badly in three rounds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffledOrder:
    """A mixed order of `num_rows` rows, a function of the seed and a number.

    A Feistel network over the next power of two; what lands outside the rows goes
    through it again (cycle walking, Black and Rogaway 2002), so it is a bijection.
    """

    num_rows: int
    seed: int
    number: int
    """Number that tells the orders of one seed apart, e.g. by epoch."""

    def rows_at(self, positions: IntArray) -> IntArray:
        """The rows at these positions of the order."""
        keys = _round_keys(f"order {self.seed} {self.number}", 2 * _NUM_ROUNDS)
        num_bits = max(_LEAST_BITS, (self.num_rows - 1).bit_length())
        rows = _feistel(positions.astype(np.uint64), num_bits, keys)
        outside = np.flatnonzero(rows >= self.num_rows)
        while outside.size:
            rows[outside] = _feistel(rows[outside], num_bits, keys)
            outside = outside[rows[outside] >= self.num_rows]
        return rows.astype(np.int64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowGroups:
    """The rows in `num_groups` groups of the same size, up to one row.

    Each run of `num_groups` rows gives one row to each group, turned by a hash of
    the run's number. The group of a row depends on its own number alone.
    """

    num_rows: int
    num_groups: int
    seed: int

    @property
    def num_runs(self) -> int:
        """Places in every group; the last one may be empty."""
        return -(-self.num_rows // self.num_groups)

    def rows_of(self, group: int, runs: IntArray) -> IntArray:
        """The rows that these runs gave to a group, without the empty places."""
        rows = runs * self.num_groups + (group + self._turns(runs)) % self.num_groups
        return rows[rows < self.num_rows]

    def groups_of(self, rows: IntArray) -> IntArray:
        """The group of each row."""
        return (rows - self._turns(rows // self.num_groups)) % self.num_groups

    def _turns(self, runs: IntArray) -> IntArray:
        (key,) = _round_keys(f"groups {self.seed}", 1)
        mixed = _mix(runs.astype(np.uint64), key) >> np.uint64(32)
        return (mixed % np.uint64(self.num_groups)).astype(np.int64)


def _round_keys(name: str, num_keys: int) -> list[np.uint64]:
    digest = hashlib.blake2b(name.encode(), digest_size=8 * num_keys).digest()
    return list(np.frombuffer(digest, np.dtype("<u8")).astype(np.uint64))


def _feistel(values: Words, num_bits: int, keys: list[np.uint64]) -> Words:
    low_bits = np.uint64(num_bits // 2)
    high_bits = np.uint64(num_bits) - low_bits
    high, low = values >> low_bits, values & ((np.uint64(1) << low_bits) - np.uint64(1))
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        high ^= _mix(low, first) >> (np.uint64(64) - high_bits)
        low ^= _mix(high, second) >> (np.uint64(64) - low_bits)
    return (high << low_bits) | low


def _mix(values: Words, key: np.uint64) -> Words:
    """Two rounds of multiply and fold; the upper bits are well mixed."""
    # The multipliers are those of SplitMix64.
    mixed = values * np.uint64(0xBF58476D1CE4E5B9)
    mixed += key
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed
