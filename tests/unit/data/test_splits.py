"""Splits hold every row once, keep what must stay together, and repeat for a key."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from tulle.data.splits import (
    split_at_days,
    split_at_random,
    split_at_times,
    split_by_time,
    split_by_unit,
)
from tulle.errors import ConfigError, DataError

KEY = b"a key of 16 byte"
Parts = list[NDArray[np.int64]]
Split = Callable[..., Parts]


def random_split(values: NDArray[np.int64], fractions: Any) -> Parts:
    return split_at_random(values.size, fractions=fractions, key=KEY)


def unit_split(values: NDArray[np.int64], fractions: Any) -> Parts:
    return split_by_unit(values, fractions=fractions, key=KEY)


def time_split(values: NDArray[np.int64], fractions: Any) -> Parts:
    return split_by_time(values, fractions=fractions)


each_split = pytest.mark.parametrize("split", [random_split, unit_split, time_split])
logs = npst.arrays(np.int64, st.integers(0, 50), elements=st.integers(-5, 20))


@each_split
@given(values=logs, weights=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_parts_hold_every_row_once(
    split: Split, values: NDArray[np.int64], weights: list[int]
) -> None:
    parts = split(values, [weight / sum(weights) for weight in weights])
    assert len(parts) == len(weights)
    assert sorted(np.concatenate(parts).tolist()) == list(range(values.size))
    assert all((np.diff(part) > 0).all() for part in parts)


@given(times=logs, weights=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_no_part_reaches_back_into_the_one_before(
    times: NDArray[np.int64], weights: list[int]
) -> None:
    parts = split_by_time(times, fractions=[weight / sum(weights) for weight in weights])
    latest = -math.inf
    for part in parts:
        if part.size:
            assert times[part].min() > latest
            latest = times[part].max()


@given(unit_ids=logs)
def test_all_rows_of_a_unit_are_in_one_part(unit_ids: NDArray[np.int64]) -> None:
    train, test = unit_split(unit_ids, (0.6, 0.4))
    assert not set(unit_ids[train].tolist()) & set(unit_ids[test].tolist())


def test_a_unit_keeps_its_part_in_other_data() -> None:
    first, _ = unit_split(np.arange(1000), (0.5, 0.5))
    later, _ = unit_split(np.arange(500, 2000), (0.5, 0.5))
    assert set(first[first >= 500].tolist()) == set((later[later < 500] + 500).tolist())


@pytest.mark.parametrize("split", [random_split, unit_split])
def test_parts_have_the_size_that_was_asked_for(split: Split) -> None:
    fractions = (0.7, 0.2, 0.1)
    parts = split(np.arange(100_000), fractions)
    for part, fraction in zip(parts, fractions, strict=True):
        # 6.5 deviations: 1e-10.
        allowed = 6.5 * math.sqrt(100_000 * fraction * (1 - fraction))
        assert abs(part.size - 100_000 * fraction) < allowed


def test_distinct_times_are_cut_at_the_exact_share() -> None:
    times = np.random.default_rng(0).permutation(1000)
    train, test = split_by_time(times, fractions=(0.8, 0.2))
    assert (train.size, test.size) == (800, 200)
    assert times[train].max() == 799


def test_rows_at_the_time_of_the_cut_stay_together_in_the_later_part() -> None:
    train, test = split_by_time([1, 2, 2, 2, 3], fractions=(0.6, 0.4))
    assert (train.tolist(), test.tolist()) == ([0], [1, 2, 3, 4])


def test_boundaries_belong_to_the_later_part() -> None:
    parts = split_at_times([0, 10, 5, 9.5, 20], boundaries=[5, 10])
    assert [part.tolist() for part in parts] == [[0], [2, 3], [1, 4]]


def test_days_are_counted_from_the_start() -> None:
    day = 86_400
    parts = split_at_days([100, 100 + 6 * day, 99 + 6 * day], boundary_days=[6], start=100)
    assert [part.tolist() for part in parts] == [[0, 2], [1]]


@pytest.mark.parametrize("split", [random_split, unit_split])
def test_the_same_key_repeats_the_split_and_unit_and_random_splits_differ(split: Split) -> None:
    values = np.arange(200)
    assert split(values, (0.5, 0.5))[0].tolist() == split(values, (0.5, 0.5))[0].tolist()
    assert (
        unit_split(values, (0.5, 0.5))[0].tolist() != random_split(values, (0.5, 0.5))[0].tolist()
    )
    other = split_at_random(200, fractions=(0.5, 0.5), key=KEY[::-1])
    assert other[0].tolist() != random_split(values, (0.5, 0.5))[0].tolist()


@each_split
@pytest.mark.parametrize(
    "fractions", [(1.0,), (), (0.5, 0.4), (0.5, 0.6), (1.0, 0.0), (1.5, -0.5), (math.nan, 0.5)]
)
def test_fractions_that_do_not_add_up_are_refused(split: Split, fractions: Any) -> None:
    with pytest.raises(ConfigError, match="fractions="):
        split(np.arange(10), fractions)


@pytest.mark.parametrize("boundaries", [[2, 1], [math.nan], [math.inf]])
def test_boundaries_out_of_order_are_refused(boundaries: list[float]) -> None:
    with pytest.raises(ConfigError, match="boundaries="):
        split_at_times([1, 2], boundaries=boundaries)


@pytest.mark.parametrize("num_rows", [-1, 1.5, True])
def test_a_number_of_rows_that_is_none_is_refused(num_rows: Any) -> None:
    with pytest.raises(DataError, match="num_rows="):
        split_at_random(num_rows, fractions=(0.5, 0.5), key=KEY)


def test_missing_times_are_refused() -> None:
    with pytest.raises(DataError, match="missing"):
        split_by_time([1.0, np.nan], fractions=(0.5, 0.5))
