"""Log buckets, hours and days of the week."""

import math
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.data.features.transforms import days_of_week, hours_of_day, log_buckets


def test_buckets_double_in_width() -> None:
    numbers = pl.Series([0, 1, 2, 3, 6, 7, 14, 15, 2**30 - 2, 2**30 - 1])
    assert log_buckets(numbers, 40).tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 29, 30]


def test_negative_and_missing_numbers_have_their_own_ids() -> None:
    numbers = pl.Series([None, -1, -(2**63), 0, 100, 2**63 - 1], dtype=pl.Int64)
    assert log_buckets(numbers, 4).tolist() == [5, 4, 4, 0, 3, 3]
    reals = pl.Series([None, float("nan"), -1e-9, 0.5, math.inf, -math.inf, -1.0])
    assert log_buckets(reals, 4).tolist() == [5, 5, 4, 0, 3, 4, 4]


@given(st.lists(st.integers(min_value=0, max_value=2**52), max_size=20))
def test_buckets_are_exact_floors(numbers: list[int]) -> None:
    expected = [(1 + number).bit_length() - 1 for number in numbers]
    assert log_buckets(pl.Series(numbers, dtype=pl.Int64), 64).tolist() == expected


@given(st.lists(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1))))
def test_hours_and_days_are_those_of_the_calendar(moments: list[datetime]) -> None:
    moments = [moment.replace(tzinfo=UTC, microsecond=0) for moment in moments]
    seconds = pl.Series([int(moment.timestamp()) for moment in moments], dtype=pl.Int64)
    assert hours_of_day(seconds).tolist() == [moment.hour for moment in moments]
    assert days_of_week(seconds).tolist() == [moment.weekday() for moment in moments]


@pytest.mark.parametrize("numbers", [[], [None], [None, None]])
def test_missing_times_have_the_last_id(numbers: list[None]) -> None:
    series = pl.Series(numbers, dtype=pl.Int64)
    assert hours_of_day(series).tolist() == [24] * len(numbers)
    assert days_of_week(series).tolist() == [7] * len(numbers)


def test_ids_are_of_the_type_that_is_stored() -> None:
    series = pl.Series([1, None])
    for ids in (log_buckets(series, 3), hours_of_day(series), days_of_week(series)):
        assert ids.dtype == np.int32
