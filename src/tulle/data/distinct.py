"""How many different values there are, and how often each occurs, in bounded memory."""

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray

_LEAST_TO_MERGE = 1 << 16


class DistinctValues:
    """Counts values that come in blocks: exact up to a capacity, then from a sample of values.

    Wegman's adaptive sampling: once more values are held than the capacity, only those
    whose hash ends in one more zero bit are kept, with all their occurrences. The
    standard error of the number is 1.2 / sqrt(capacity) of it (Flajolet, On adaptive
    sampling, 1990); it is 0 as long as all values are held.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._num_zero_bits = 0
        self._held = _table([], [])
        self._waiting: list[pl.DataFrame] = []

    def add(self, values: pl.Series) -> None:
        """Counts the values of one block. Nulls are no values."""
        counted = values.drop_nulls().rename("value").value_counts(name="times")
        block = counted.select(pl.col("value").hash().alias("hash"), pl.col("times").cast(pl.Int64))
        self._waiting.append(self._kept(block))
        num_waiting = sum(table.height for table in self._waiting)
        if num_waiting > max(_LEAST_TO_MERGE, self._held.height):
            self._merge()

    @property
    def num_distinct(self) -> int:
        """The number of different values, exact or estimated."""
        self._merge()
        return self._held.height << self._num_zero_bits

    @property
    def relative_error(self) -> float:
        """Standard error of `num_distinct` as a share of it; 0 if it is exact."""
        self._merge()
        return 0.0 if self._num_zero_bits == 0 else 1.2 / math.sqrt(self._capacity)

    @property
    def times(self) -> NDArray[np.int64]:
        """How often each value occurs, for all values or for a sample of them, sorted."""
        self._merge()
        return self._held["times"].sort().to_numpy()

    def _merge(self) -> None:
        if not self._waiting:
            return
        tables = [self._held, *self._waiting]
        self._held = pl.concat(tables).group_by("hash").agg(pl.col("times").sum())
        self._waiting = []
        while self._held.height > self._capacity:
            self._num_zero_bits += 1
            self._held = self._kept(self._held)

    def _kept(self, table: pl.DataFrame) -> pl.DataFrame:
        mask = (1 << self._num_zero_bits) - 1
        return table.filter((pl.col("hash") & pl.lit(mask, pl.UInt64)) == 0) if mask else table


def _table(hashes: list[int], times: list[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {"hash": hashes, "times": times}, schema={"hash": pl.UInt64, "times": pl.Int64}
    )
