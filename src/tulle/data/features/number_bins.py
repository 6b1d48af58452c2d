"""Edges of bins of numbers: exact quantiles of public columns, noisy ones of sensitive columns.

Quantiles of a public column are those of all rows, counted value by value in one streaming pass;
they do not depend on blocks or on the order of rows. Memory is bounded: a column with more than a
million different values is counted by its values rounded down to fewer bits, all alike.

For a sensitive column, rows are counted in about a thousand fixed buckets, and noise is added to
every bucket, whether a row is in it or not. One row is in one bucket of each column, as it has one
value, so the noise and the cost are those of counts of known values (`RowCountNoise`). Edges are
where the running sum of noisy counts reaches the quantiles: post-processing.
"""

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features.column_features import PrivateQuantileFeature
from tulle.data.features.private_vocabulary import RowCountNoise
from tulle.mechanisms.entropy import NoiseSource

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_MOST_VALUES = 1 << 20
"""Different values that are told apart at once, 16 MB. If there are more, all values lose low bits,
so that neighbouring ones become one."""
_SIGN = np.uint64(1 << 63)
"""The bit of a 64-bit float that says that it is negative."""
_NUM_EVEN_BUCKETS = 1024
"""Buckets between two bounds, whose width is a thousandth of the range."""
_LEAST_POWER, _MOST_POWER = -16, 48
"""Powers of two between which numbers are told apart: from a cent of a cent to trillions."""
_PARTS = 8
"""Buckets between two powers of two, which are at most an eighth of a number wide."""
_CLEAR_DEVIATIONS = 4.0
"""Standard deviations of the largest error of a running sum that a bin must have in rows: then
noise moves its edges by a part of a bin."""


class NumberCounts:
    """Counts how many rows have each number, over blocks of any size. As sensitive as the rows."""

    def __init__(self) -> None:
        self._lost_bits = 0
        self._counted = pl.DataFrame(schema={"key": pl.UInt64, "count": pl.Int64})

    def add(self, numbers: pl.Series) -> None:
        """Counts some rows; missing numbers are left out."""
        floats = numbers.cast(pl.Float64).fill_nan(None).drop_nulls().to_numpy()
        rows = pl.DataFrame({"key": _rounded(_keys(floats), self._lost_bits)})
        rows = rows.group_by("key").agg(count=pl.len().cast(pl.Int64))
        self._counted = _merged(pl.concat([self._counted, rows]))
        while len(self._counted) > _MOST_VALUES:
            self._lost_bits += 1
            keys = _rounded(self._counted["key"].to_numpy(), self._lost_bits)
            self._counted = _merged(self._counted.with_columns(key=pl.Series(keys)))

    def edges(self, num_bins: int) -> FloatArray:
        """Numbers at which a new bin begins, so that bins have about as many rows each."""
        counted = self._counted.sort("key")
        values = _floats_of(counted["key"].to_numpy())
        places = bin_starts(counted["count"].to_numpy(), num_bins)
        below, above = values[places - 1], values[places]
        # In the middle, where a short float of the same value cannot cross. A value that lost bits
        # stands for some above it, and there the next one is the edge.
        with np.errstate(invalid="ignore"):
            middle = below / 2 + above / 2
        is_between = (middle > below) & (middle < above) & (self._lost_bits == 0)
        return np.where(is_between, middle, above)


def bin_starts(counts: NDArray[np.int64] | FloatArray, num_bins: int) -> NDArray[np.int64]:
    """Places at which bins begin, but for the first bin, so that they have about equal counts.

    Args:
      counts: Rows of each value, in the order of the values.
      num_bins: Largest number of bins. If there are no more values, each is a bin.
    """
    sums = np.cumsum(counts)
    starts: list[int] = []
    start, done = 0, 0.0
    for left in range(num_bins, 1, -1):
        if len(counts) - start <= left:
            starts += range(start + 1, len(counts))
            break
        target = done + (float(sums[-1]) - done) / left
        end = int(np.searchsorted(sums, target)) + 1
        # Whichever of the two ends is nearer, but never an empty bin.
        if end - 1 > start and sums[end - 1] - target > target - sums[end - 2]:
            end -= 1
        if end >= len(counts):
            break
        starts.append(end)
        start, done = end, float(sums[end - 1])
    return np.array(starts, np.int64)


class BucketCounts:
    """Counts the rows of a sensitive column in fixed buckets. Not for release without noise."""

    def __init__(self, feature: PrivateQuantileFeature) -> None:
        self._edges = _bucket_edges(feature)
        self.raw_counts: IntArray = np.zeros(len(self._edges) + 1, np.int64)

    def add(self, numbers: pl.Series) -> None:
        """Counts some rows; missing numbers are left out."""
        floats = numbers.cast(pl.Float64).fill_nan(None).drop_nulls().to_numpy()
        buckets = np.searchsorted(self._edges, floats, side="right")
        self.raw_counts += np.bincount(buckets, minlength=len(self.raw_counts))

    def edges(self, noisy_counts: IntArray, num_bins: int, stddev: float) -> FloatArray:
        """Edges of bins by noisy counts; fewer bins than asked for where noise is large.

        Args:
          noisy_counts: The counts of all buckets, with noise.
          num_bins: Largest number of bins.
          stddev: Standard deviation of the noise on each count.
        """
        # Quantiles of running sums of noise: they wander by the root of the number of buckets.
        sums = np.maximum.accumulate(np.cumsum(noisy_counts).astype(np.float64))
        least = _CLEAR_DEVIATIONS * stddev * math.sqrt(len(noisy_counts))
        clear = int(min(max(sums[-1], 0.0) / least, num_bins)) if least > 0 else num_bins
        counts = np.diff(sums, prepend=0.0)
        return self._edges[bin_starts(counts, max(clear, 1)) - 1]


def release_bucket_counts(
    raw_counts: IntArray, noise: RowCountNoise, *, rng: NoiseSource
) -> IntArray:
    """Adds noise to the count of every bucket of a column, empty ones too.

    Args:
      raw_counts: Rows in each bucket, after contribution bounding.
      noise: Noise for all columns that are counted together.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      Unit: that of the noise; replace, add-or-remove or zero-out. A unit of R rows adds R to the
      counts of a column, at most to one bucket: L1 and L2 sensitivity R a column, so R C and
      R sqrt(C) for C columns. Event: noise.event(), once for all columns. Relies on: at most R
      rows a unit; buckets that do not depend on the data.
    """
    return raw_counts + noise.sample_noise(len(raw_counts), rng=rng)


def _bucket_edges(feature: PrivateQuantileFeature) -> FloatArray:
    if feature.low is not None and feature.high is not None:
        return np.linspace(feature.low, feature.high, _NUM_EVEN_BUCKETS + 1)[1:-1]
    parts = 1 + np.arange(_PARTS) / _PARTS
    # Exact in any arithmetic: eighths times powers of two.
    powers = np.ldexp(parts[None, :], np.arange(_LEAST_POWER, _MOST_POWER)[:, None]).ravel()
    return np.concatenate([-powers[::-1], powers])


def _keys(floats: FloatArray) -> NDArray[np.uint64]:
    """64-bit numbers that are in the order of the floats."""
    bits = (floats + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _floats_of(keys: NDArray[np.uint64]) -> FloatArray:
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).view(np.float64)


def _rounded(keys: NDArray[np.uint64], lost_bits: int) -> NDArray[np.uint64]:
    return keys >> np.uint64(lost_bits) << np.uint64(lost_bits)


def _merged(counted: pl.DataFrame) -> pl.DataFrame:
    return counted.group_by("key").agg(pl.col("count").sum())
