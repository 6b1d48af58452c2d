"""Numbers and times as small ids: bins, log buckets, hour of day, day of week.

A missing value has the last id. In log buckets a negative number has the one before it.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ids = NDArray[np.int32]

# Numbers of ids that the two cycles of a time have.
HOURS_PER_DAY = 24
DAYS_PER_WEEK = 7

# Times are seconds since 1970 in UTC, which has no leap seconds: hours and days are all equal.
_SECONDS_PER_HOUR = 3600
_SECONDS_PER_DAY = 86_400
_EPOCH_DAY_OF_WEEK = 3
"""1970-01-01 was a Thursday."""
# Layout of a float64 (IEEE 754): 52 bits of fraction below an exponent that is stored plus 1023.
_EXPONENT_SHIFT = np.int64(52)
_EXPONENT_BIAS = np.int64(1023)


def num_log_ids(num_buckets: int, parts: int = 1) -> int:
    """Ids of a log feature: the parts of its buckets, negative, missing."""
    return num_buckets * parts + 2


def log_buckets(numbers: pl.Series, num_buckets: int, parts: int = 1) -> Ids:
    """The bucket floor(log2(1 + x)) of each number, the last one for all that lie above.

    Bucket 0 is [0, 1), bucket 1 [1, 3), bucket 2 [3, 7) and so on. Numbers below
    zero get the id behind the last bucket and missing ones the next. 1 + x is
    rounded to the nearest float, which matters beyond 2^53 only.

    Args:
      numbers: The numbers.
      num_buckets: Number of buckets.
      parts: Number of equal parts of each bucket, a power of two; each has an id of its own.
    """
    floats = numbers.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    # The exponent of a float that is at least 1 is the floor of its base-2 logarithm.
    # The bits behind it are those of the part.
    shift = _EXPONENT_SHIFT - np.int64(parts.bit_length() - 1)
    places = ((1.0 + floats).view(np.int64) >> shift) - _EXPONENT_BIAS * parts
    ids: Ids = np.minimum(places, num_buckets * parts - 1).astype(np.int32)
    ids[floats < 0] = num_buckets * parts
    ids[np.isnan(floats)] = num_buckets * parts + 1
    return ids


def bins_between(numbers: pl.Series, edges: NDArray[np.float64]) -> Ids:
    """The number of edges that are not above each number; one more id where it is missing.

    Infinite numbers fall into the end bins.
    """
    floats = numbers.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    ids: Ids = np.searchsorted(edges, floats, side="right").astype(np.int32)
    ids[np.isnan(floats)] = len(edges) + 1
    return ids


def even_bins(numbers: pl.Series, low: float, high: float, num_bins: int) -> Ids:
    """The bin of each number among bins of equal width, the end bins for all beyond the bounds.

    Args:
      numbers: The numbers.
      low: Lower end of the first bin.
      high: Upper end of the last bin, which is in it.
      num_bins: Number of bins; a missing number has this id.
    """
    floats = numbers.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    is_missing = np.isnan(floats)
    clipped = np.clip(np.where(is_missing, low, floats), low, high)
    ids: Ids = np.floor((clipped - low) * (num_bins / (high - low))).astype(np.int32)
    np.minimum(ids, num_bins - 1, out=ids)
    ids[is_missing] = num_bins
    return ids


def truth_ids(flags: pl.Series) -> Ids:
    """0 for false, 1 for true, 2 where it is missing."""
    ids: Ids = flags.cast(pl.Int32).fill_null(2).to_numpy().astype(np.int32)
    return ids


def hours_of_day(seconds: pl.Series) -> Ids:
    """The hour of each time, 0 to 23 in UTC; 24 where it is missing.

    Times that count from another start than 1970 UTC give hours since that start.
    """
    return _cycle(seconds, _SECONDS_PER_HOUR, 0, HOURS_PER_DAY)


def days_of_week(seconds: pl.Series) -> Ids:
    """The day of the week of each time, 0 for Monday to 6 in UTC; 7 where it is missing.

    Times that count from another start than 1970 UTC give the same seven groups
    of days under other names.
    """
    return _cycle(seconds, _SECONDS_PER_DAY, _EPOCH_DAY_OF_WEEK, DAYS_PER_WEEK)


def days_of_week_of_days(days: pl.Series) -> Ids:
    """The day of the week of each whole number of days, as `days_of_week` has it of seconds."""
    return _cycle(days, 1, _EPOCH_DAY_OF_WEEK, DAYS_PER_WEEK)


def _cycle(seconds: pl.Series, step: int, first: int, length: int) -> Ids:
    whole = seconds.fill_null(0).to_numpy()
    ids: Ids = ((whole // step + first) % length).astype(np.int32)
    if seconds.null_count():
        ids[seconds.is_null().to_numpy()] = length
    return ids
