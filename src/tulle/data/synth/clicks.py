"""Click and conversion logs with known truth, generated in blocks.

Rows are made in chunks of 16,384 whose randomness is keyed by (seed, chunk), so a row
depends on the shape, the seed, the length of the log and its own number only: not on
the size of the blocks, the range that is asked for, or the number of threads.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tulle.data.synth.shapes import USER, SynthShape
from tulle.data.synth.truth import (
    EffectTable,
    Truth,
    entity_words,
    find_truth,
    hour_logits,
    hour_volumes,
)
from tulle.data.synth.zipf import CodeArray, CodeTable
from tulle.data.threads import map_in_order
from tulle.errors import ConfigError

CHUNK_ROWS = 1 << 14
"""Rows that share one key of the generator: a part of the format of a seed, since another number
would give another log."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynthBlock:
    """Consecutive rows of a synthetic log. All arrays have one entry for each row."""

    first_row: int
    columns: dict[str, CodeArray]
    """Codes of each feature: 0 is missing, 1, 2, … are values from the most frequent on."""
    label: npt.NDArray[np.uint8]
    true_prob: npt.NDArray[np.float32]
    """P(label = 1) given all features and the time."""
    public_prob: npt.NDArray[np.float32]
    """P(label = 1) given the public features and the time."""
    user: CodeArray | None
    """Users from 1 on, or None where the shape has none."""
    timestamp: npt.NDArray[np.int64]
    """Seconds; rows are in order of time."""

    def __len__(self) -> int:
        return len(self.label)

    def rows(self, start: int, stop: int) -> "SynthBlock":
        """The rows of the log from `start` to before `stop`, as far as they are here."""
        part = slice(max(start - self.first_row, 0), max(stop - self.first_row, 0))
        return SynthBlock(
            first_row=max(start, self.first_row),
            columns={name: codes[part] for name, codes in self.columns.items()},
            label=self.label[part],
            true_prob=self.true_prob[part],
            public_prob=self.public_prob[part],
            user=None if self.user is None else self.user[part],
            timestamp=self.timestamp[part],
        )


class World:
    """The tables of a shape: made once, shared by all of its logs."""

    def __init__(self, shape: SynthShape) -> None:
        self.shape = shape
        self.tables = {f.name: CodeTable(f.law) for f in shape.features}
        self.effects = {f.name: EffectTable(f, shape.stddev_of(f)) for f in shape.features}
        self.truth: Truth = find_truth(shape, self.tables, self.effects)


@functools.lru_cache(maxsize=8)
def world_of(shape: SynthShape) -> World:
    """The tables and the truth of a shape."""
    return World(shape)


def generate_blocks(
    shape: SynthShape,
    *,
    num_rows: int,
    seed: int,
    rows_per_block: int = 1 << 18,
    rows: range | None = None,
    num_threads: int | None = None,
) -> Iterator[SynthBlock]:
    """Generates a log in order, block by block, in bounded memory.

    Args:
      shape: What the log looks like.
      num_rows: Length of the whole log. Users and times depend on it.
      seed: Fixes the log; from 0 to 2^64 - 1.
      rows_per_block: Rows of each block but the last.
      rows: The rows to make, e.g. range(5000, 6000); all of them by default.
      num_threads: Threads that make chunks; by default one for each core, up to 8.
    """
    wanted = range(num_rows) if rows is None else rows
    _check_request(num_rows, seed, rows_per_block, wanted)
    log = _Log(world_of(shape), num_rows, seed)
    chunks = range(wanted.start // CHUNK_ROWS, -(-wanted.stop // CHUNK_ROWS))
    made = map_in_order(log.chunk, chunks if len(wanted) else range(0), num_threads)
    return _regroup((chunk.rows(wanted.start, wanted.stop) for chunk in made), rows_per_block)


class _Log:
    """One log: a world, a length and a seed."""

    def __init__(self, world: World, num_rows: int, seed: int) -> None:
        self._world = world
        self._seed = seed
        shape = world.shape
        self._num_rows = num_rows
        self._users = CodeTable(shape.users.law(num_rows)) if shape.users else None
        ends = np.rint(np.cumsum(hour_volumes(shape.time)) * num_rows).astype(np.int64)
        self._hour_rows = np.concatenate([[0], ends])
        self._hour_logits = hour_logits(shape.time).astype(np.float32)

    def chunk(self, index: int) -> SynthBlock:
        """All rows of one chunk; the last one of a log is short."""
        world, shape = self._world, self._world.shape
        first_row = index * CHUNK_ROWS
        size = min(CHUNK_ROWS, self._num_rows - first_row)
        words = self._words(index)
        codes: dict[str, CodeArray] = {}
        if self._users is not None:
            codes[USER] = self._users.codes(words[1, :size])
        hours, timestamp = self._times(first_row, size)
        logits = [self._hour_logits.take(hours), np.zeros(size, np.float32)]
        for number, feature in enumerate(shape.features):
            drawn = (
                words[2 + number, :size]
                if feature.given_by is None
                else entity_words(feature, codes[feature.given_by])
            )
            codes[feature.name] = world.tables[feature.name].codes(drawn)
            if feature.signal:
                effect = world.effects[feature.name].take(codes[feature.name])
                logits[feature.sensitive] += effect
        public_prob = world.truth.public_prob(logits[0])
        true_prob = world.truth.true_prob(logits[0] + logits[1])
        # 24 bits are what a float32 holds below 1 without rounding up to it.
        uniform = (words[0, :size] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        return SynthBlock(
            first_row=first_row,
            user=codes.pop(USER, None),
            columns=codes,
            label=(uniform < true_prob).view(np.uint8),
            true_prob=true_prob,
            public_prob=public_prob,
            timestamp=timestamp,
        )

    def _words(self, index: int) -> npt.NDArray[np.uint32]:
        num_columns = 2 + len(self._world.shape.features)
        generator = np.random.Philox(key=np.array([self._seed, index], dtype=np.uint64))
        raw = generator.random_raw(num_columns * CHUNK_ROWS // 2)
        return raw.view(np.uint32).reshape(num_columns, CHUNK_ROWS)

    def _times(self, first_row: int, size: int) -> tuple[npt.NDArray[np.int64], ...]:
        starts = self._hour_rows
        last_row = first_row + size - 1
        low, high = np.searchsorted(starts, [first_row, last_row], side="right") - 1
        edges = np.clip(starts[low : high + 2], first_row, last_row + 1)
        hours = np.repeat(np.arange(low, high + 1), np.diff(edges))
        within = np.arange(first_row, first_row + size) - starts[hours]
        seconds = 3600 * hours + 3600 * within // (starts[hours + 1] - starts[hours])
        return hours, seconds + self._world.shape.time.first_second


def _check_request(num_rows: int, seed: int, rows_per_block: int, wanted: range) -> None:
    if not 1 <= num_rows < 2**31:
        raise ConfigError(f"num_rows={num_rows} must be between 1 and 2^31 - 1.")
    if not 0 <= seed < 2**64:
        raise ConfigError(f"seed={seed} must be between 0 and 2^64 - 1.")
    if not rows_per_block >= 1:
        raise ConfigError(f"rows_per_block={rows_per_block} must be >= 1; use e.g. 262144.")
    if not (wanted.start >= 0 and wanted.stop <= num_rows and wanted.step == 1):
        raise ConfigError(
            f"rows={wanted} must be consecutive rows of the log, within range(0, {num_rows})."
        )


def _regroup(parts: Iterable[SynthBlock], rows_per_block: int) -> Iterator[SynthBlock]:
    held: list[SynthBlock] = []
    num_held = 0
    for part in parts:
        held.append(part)
        num_held += len(part)
        while num_held >= rows_per_block:
            whole = _join(held)
            cut = whole.first_row + rows_per_block
            yield whole.rows(whole.first_row, cut)
            held = [whole.rows(cut, whole.first_row + num_held)]
            num_held -= rows_per_block
    if num_held:
        yield _join(held)


def _join(parts: list[SynthBlock]) -> SynthBlock:
    first = parts[0]
    if len(parts) == 1:
        return first
    users = [part.user for part in parts if part.user is not None]
    return SynthBlock(
        first_row=first.first_row,
        columns={
            name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns
        },
        label=np.concatenate([part.label for part in parts]),
        true_prob=np.concatenate([part.true_prob for part in parts]),
        public_prob=np.concatenate([part.public_prob for part in parts]),
        user=np.concatenate(users) if users else None,
        timestamp=np.concatenate([part.timestamp for part in parts]),
    )
