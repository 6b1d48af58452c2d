"""How many rows have each value, over blocks of any size, within a fixed memory.

Values are counted by their hash. If there are more different ones than may be
held, those with the largest hashes are let go and counted in a further pass
over the data, so a result is always exact and never an error that would tell
how many different values there are. The counts are as sensitive as the column.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features.hashing import Hashes, ValueHasher
from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_text
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import did_you_mean

Blocks = Callable[[], Iterator[pl.DataFrame]]
"""Gives the same rows each time it is called, in blocks of any size and order."""

_END = 2**64
"""Hashes have 64 bits; the end of the last range lies behind them all, so it is no uint64."""
_LEAST_IN_MEMORY = 1000
"""Fewer held values would need very many passes over the data."""
_FULL = 0.75
"""Share of the memory above which values are let go until the half is free."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedColumn:
    """A column whose values are counted, and how they are hashed."""

    kind: Kind
    hasher: ValueHasher

    @property
    def column(self) -> str:
        """Name of the column that is counted."""
        return self.hasher.column

    def hashes(self, values: pl.Series) -> tuple[Hashes, NDArray[np.bool_]]:
        """The hash of each value, and which ones are missing."""
        texts = as_text(values, self.kind)
        return self.hasher.hashes(texts), texts.is_null().to_numpy()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawCounts:
    """Exact rows of each value with a hash in [low, high), by column. Not for release."""

    low: int
    high: int
    hashes: Mapping[str, Hashes]
    """Sorted."""
    counts: Mapping[str, NDArray[np.int64]]


def count_in_parts(
    blocks: Blocks, columns: Sequence[CountedColumn], *, max_values_in_memory: int
) -> Iterator[RawCounts]:
    """Counts the values of all columns, one range of hashes after another.

    Args:
      blocks: The rows, again for each pass.
      columns: What is counted. Missing values are not.
      max_values_in_memory: Most different values, over all columns, that are held at
        a time in addition to those of one block. Fewer mean more passes.
    """
    if max_values_in_memory < _LEAST_IN_MEMORY:
        raise ConfigError(
            f"max_values_in_memory={max_values_in_memory} must be >= {_LEAST_IN_MEMORY}; "
            "8,000,000 take about half a gigabyte."
        )
    low, high = 0, _END
    num_rows: int | None = None
    while low < _END:
        counter = _RangeCounter(columns, low, high, max_values_in_memory)
        num_seen = sum(counter.add(block) for block in blocks())
        if num_rows is not None and num_seen != num_rows:
            raise DataError(
                "blocks() gave other rows when it was called again; it must read the data anew "
                "each time, e.g. a function that opens the file, not one iterator."
            )
        num_rows = num_seen
        part = counter.result()
        yield part
        # Hashes are uniform: as wide a range will fit again.
        low, high = part.high, min(_END, part.high + (part.high - part.low))


def check_column(block: pl.DataFrame, column: str) -> None:
    """Refuses rows that lack the column of a feature."""
    if column not in block.columns:
        raise DataError(
            f"column {column!r} is not in the data{did_you_mean(column, block.columns)}; add it "
            "or drop its feature."
        )


class _RangeCounter:
    """Counts values with a hash in [low, high) and lowers `high` when memory is full."""

    def __init__(
        self, columns: Sequence[CountedColumn], low: int, high: int, max_values: int
    ) -> None:
        self._columns = columns
        self._low, self._high = low, high
        self._max_values = max_values
        self._frames: dict[str, list[pl.DataFrame]] = {values.column: [] for values in columns}

    def add(self, block: pl.DataFrame) -> int:
        """Counts one block and returns its rows."""
        for values in self._columns:
            check_column(block, values.column)
            hashes, is_missing = values.hashes(block[values.column])
            counted = pl.DataFrame({"hash": hashes[self._is_in_range(hashes) & ~is_missing]})
            rows = counted.group_by("hash").agg(count=pl.len().cast(pl.Int64))
            self._frames[values.column].append(rows)
        if self._num_held() > self._max_values:
            self._merge()
            if self._num_held() > _FULL * self._max_values:
                self._let_go()
        return len(block)

    def result(self) -> RawCounts:
        """All counts, by hash."""
        self._merge()
        frames = {name: parts[0].sort("hash") for name, parts in self._frames.items()}
        return RawCounts(
            low=self._low,
            high=self._high,
            hashes={name: frame["hash"].to_numpy() for name, frame in frames.items()},
            counts={name: frame["count"].to_numpy() for name, frame in frames.items()},
        )

    def _num_held(self) -> int:
        return sum(len(frame) for frames in self._frames.values() for frame in frames)

    def _merge(self) -> None:
        empty = pl.DataFrame(schema={"hash": pl.UInt64, "count": pl.Int64})
        for name, frames in self._frames.items():
            merged = pl.concat([empty, *frames])
            if len(frames) > 1:
                merged = merged.group_by("hash").agg(pl.col("count").sum())
            self._frames[name] = [merged]

    def _let_go(self) -> None:
        held = np.concatenate([frames[0]["hash"].to_numpy() for frames in self._frames.values()])
        middle = self._max_values // 2
        self._high = int(np.partition(held, middle)[middle])
        for name, (frame,) in self._frames.items():
            self._frames[name] = [frame.filter(pl.col("hash") < self._high)]

    def _is_in_range(self, hashes: Hashes) -> NDArray[np.bool_]:
        is_in_range = np.ones(len(hashes), dtype=np.bool_)
        if self._low > 0:
            is_in_range &= hashes >= np.uint64(self._low)
        if self._high < _END:
            is_in_range &= hashes < np.uint64(self._high)
        return is_in_range
