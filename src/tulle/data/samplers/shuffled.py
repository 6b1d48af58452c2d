"""Epochs of shuffled batches, accounted without any amplification, and public orders of rows.

The usual data loader. Accounting its batches as Poisson batches understates
epsilon by a factor of ten and more (Chua et al. 2024, arXiv 2403.17673), so this
sampler claims nothing for the shuffle: its order is public.

An order comes from a seed in the settings, so that a run that goes on after an
interruption goes on in the same order. It is computed when asked for, and never
stored. Whatever uses it is accounted as if everybody knew the order.
"""

import dataclasses
import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tulle.data.samplers.batch import (
    Batch,
    check_at_most,
    check_first_step,
    check_noise,
    padded_batch,
)
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.privacy.events import Event, FixedSizeSampled, Gaussian, Repeated
from tulle.privacy.fields import check_count

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffledBatches:
    """Settings of shuffled epochs. Every field is public information."""

    num_rows: int
    batch_size: int
    epochs: int
    max_rows_per_unit: int = 1
    """Most rows that one unit owns; bound them before."""
    order_seed: int = 0
    """Seed that picks the orders. They are public: a run must keep them when it goes on."""

    def __post_init__(self) -> None:
        for name in ("num_rows", "batch_size", "epochs", "max_rows_per_unit"):
            check_count(name, getattr(self, name))
        check_count("order_seed", self.order_seed, least=0)
        for name in ("batch_size", "max_rows_per_unit"):
            check_at_most(name, getattr(self, name), "num_rows", self.num_rows)

    @property
    def batches_per_epoch(self) -> int:
        """Batches that hold every row once; the last one may be padded."""
        return -(-self.num_rows // self.batch_size)

    @property
    def steps(self) -> int:
        """Number of batches."""
        return self.epochs * self.batches_per_epoch

    @property
    def expected_size(self) -> float:
        """Rows in a batch, up to the last one of an epoch."""
        return float(self.batch_size)

    @property
    def physical_size(self) -> int:
        """Length of every batch with its padding."""
        return self.batch_size

    def event(self, noise: Event) -> Event:
        """What all steps cost: one release of `noise` an epoch, unamplified.

        The batches of an epoch share no row, and the order is fixed before and
        apart from the sensitive columns. So a replaced row changes the sum of one
        batch an epoch; what the other steps release depends on it only through
        what was released before. With several rows a unit the worst order puts
        them all into one batch, where together they move its sum that many times
        as far: k^2 in squared distance, against k for k batches.

        An epoch is a batch of fixed size that holds every row, which is refused
        under add-or-remove: another number of rows has another order altogether.
        """
        check_noise(noise)
        epoch = FixedSizeSampled(
            batch_size=self.num_rows, num_rows=self.num_rows, event=self._unit_noise(noise)
        )
        return Repeated(event=epoch, count=self.epochs)

    def batches(self, rng: NoiseSource, *, first_step: int = 0) -> Iterator[Batch]:
        """The batches from `first_step` on.

        Args:
          rng: Not used: the order is public. It is here as for every sampler.
          first_step: Steps that are done already, after an interruption.

        Privacy:
          Unit: the owner of at most `max_rows_per_unit` rows; replace or zero-out. Not
          add-or-remove: another number of rows has another order altogether. Event:
          `event(noise)`. Relies on: each batch is used in one step.
        """
        del rng
        check_first_step(first_step, self.steps)
        return self._deal(first_step)

    def _deal(self, first_step: int) -> Iterator[Batch]:
        for step in range(first_step, self.steps):
            epoch, number = divmod(step, self.batches_per_epoch)
            order = ShuffledOrder(num_rows=self.num_rows, seed=self.order_seed, number=epoch)
            start = number * self.batch_size
            positions = np.arange(start, min(start + self.batch_size, self.num_rows))
            rows = np.sort(order.rows_at(positions))
            yield padded_batch(rows, self.batch_size, self.expected_size)

    def _unit_noise(self, noise: Event) -> Event:
        if self.max_rows_per_unit == 1:
            return noise
        if not isinstance(noise, Gaussian):
            raise ConfigError(
                f"noise={noise!r} must be Gaussian for max_rows_per_unit={self.max_rows_per_unit}; "
                "use one Gaussian event, or bound units to one row."
            )
        multiplier = noise.noise_multiplier / self.max_rows_per_unit
        return dataclasses.replace(noise, noise_multiplier=multiplier)
