"""Numbers and times as small ids: log buckets, hour of day, day of week.

A missing value has the last id; a negative number the one before it.
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


def num_log_ids(num_buckets: int) -> int:
    """Ids of a log feature: its buckets, negative, missing."""
    return num_buckets + 2


def log_buckets(numbers: pl.Series, num_buckets: int) -> Ids:
    """The bucket floor(log2(1 + x)) of each number, the last one for all that lie above.

    Bucket 0 is [0, 1), bucket 1 [1, 3), bucket 2 [3, 7) and so on. Numbers below
    zero get the id `num_buckets` and missing ones `num_buckets + 1`. 1 + x is
    rounded to the nearest float, which matters beyond 2^53 only.
    """
    floats = numbers.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    # The exponent of a float that is at least 1 is the floor of its base-2 logarithm.
    exponents = ((1.0 + floats).view(np.int64) >> _EXPONENT_SHIFT) - _EXPONENT_BIAS
    ids: Ids = np.minimum(exponents, num_buckets - 1).astype(np.int32)
    ids[floats < 0] = num_buckets
    ids[np.isnan(floats)] = num_buckets + 1
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


def _cycle(seconds: pl.Series, step: int, first: int, length: int) -> Ids:
    whole = seconds.fill_null(0).to_numpy()
    ids: Ids = ((whole // step + first) % length).astype(np.int32)
    if seconds.null_count():
        ids[seconds.is_null().to_numpy()] = length
    return ids
