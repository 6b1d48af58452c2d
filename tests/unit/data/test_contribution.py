"""No unit keeps more rows than its bound, whatever the rule, and no unit touches another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from tulle.data.contribution import (
    BoundedRows,
    draw_rows_with_replacement,
    keep_first_rows,
    keep_random_rows,
    windows_of,
)
from tulle.errors import ConfigError, DataError
from tulle.privacy.windows import TimeWindows

Ids = NDArray[np.int64]
Rule = Callable[..., BoundedRows]
KEY = b"a key of 16 byte"


def random_rule(unit_ids: Any, **settings: Any) -> BoundedRows:
    return keep_random_rows(unit_ids, key=KEY, **settings)


def replacement_rule(unit_ids: Any, **settings: Any) -> BoundedRows:
    return draw_rows_with_replacement(unit_ids, key=KEY, **settings)


each_rule = pytest.mark.parametrize("rule", [keep_first_rows, random_rule, replacement_rule])
each_subset_rule = pytest.mark.parametrize("rule", [keep_first_rows, random_rule])
unit_ids_of_logs = npst.arrays(np.int64, st.integers(0, 60), elements=st.integers(-3, 8))
bounds = st.integers(1, 5)


def without_unit(unit_ids: Ids, unit: int) -> tuple[Ids, Ids]:
    """A neighbour under add-or-remove, and the rows of the others in the first log."""
    others = np.flatnonzero(unit_ids != unit)
    return unit_ids[others], others


def max_count(*columns: Ids) -> int:
    if columns[0].size == 0:
        return 0
    return int(np.unique(np.stack(columns), axis=1, return_counts=True)[1].max())


@each_rule
@given(unit_ids=unit_ids_of_logs, bound=bounds)
def test_no_unit_has_more_rows_than_its_bound(rule: Rule, unit_ids: Ids, bound: int) -> None:
    rows = rule(unit_ids, max_rows_per_unit=bound).rows
    assert max_count(unit_ids[rows]) <= bound
    assert (np.diff(rows) >= 0).all()


@each_rule
@given(unit_ids=unit_ids_of_logs, bound=bounds, data=st.data())
def test_no_unit_has_more_rows_in_a_window_than_its_bound(
    rule: Rule, unit_ids: Ids, bound: int, data: st.DataObject
) -> None:
    windows = data.draw(npst.arrays(np.int64, unit_ids.size, elements=st.integers(-1, 2)))
    result = rule(unit_ids, max_rows_per_unit=bound, windows=windows)
    assert max_count(unit_ids[result.rows], windows[result.rows]) <= bound
    pairs = {(int(u), int(w)) for u, w in zip(unit_ids, windows, strict=True)}
    assert result.report.num_units == len(pairs)


@each_subset_rule
@given(unit_ids=unit_ids_of_logs, bound=bounds)
def test_as_many_rows_as_the_bound_allows_are_kept_and_none_twice(
    rule: Rule, unit_ids: Ids, bound: int
) -> None:
    rows = rule(unit_ids, max_rows_per_unit=bound).rows
    counts = {int(u): min(bound, int((unit_ids == u).sum())) for u in unit_ids}
    assert {u: int((unit_ids[rows] == u).sum()) for u in counts} == counts
    assert (np.diff(rows) > 0).all()


@each_subset_rule
@given(unit_ids=unit_ids_of_logs, bound=bounds)
def test_bounding_twice_is_bounding_once(rule: Rule, unit_ids: Ids, bound: int) -> None:
    once = unit_ids[rule(unit_ids, max_rows_per_unit=bound).rows]
    again = rule(once, max_rows_per_unit=bound)
    assert again.rows.tolist() == list(range(once.size))
    assert again.report.num_kept == again.report.num_rows == once.size


@each_rule
@given(unit_ids=unit_ids_of_logs.filter(len), bound=bounds)
def test_a_unit_that_comes_or_goes_leaves_the_rows_of_all_others(
    rule: Rule, unit_ids: Ids, bound: int
) -> None:
    unit = int(unit_ids[0])
    neighbour, others = without_unit(unit_ids, unit)
    rows = rule(unit_ids, max_rows_per_unit=bound).rows
    expected = others[rule(neighbour, max_rows_per_unit=bound).rows]
    assert rows[unit_ids[rows] != unit].tolist() == expected.tolist()


@given(unit_ids=unit_ids_of_logs, bound=bounds, data=st.data())
def test_the_first_rule_keeps_the_earliest_rows(
    unit_ids: Ids, bound: int, data: st.DataObject
) -> None:
    times = data.draw(npst.arrays(np.int64, unit_ids.size, elements=st.integers(0, 5)))
    rows = keep_first_rows(unit_ids, max_rows_per_unit=bound, times=times).rows
    for unit in set(unit_ids.tolist()):
        own = np.flatnonzero(unit_ids == unit)
        earliest = sorted(own, key=lambda row: (times[row], row))[:bound]
        assert sorted(earliest) == rows[unit_ids[rows] == unit].tolist()


def test_times_that_are_in_order_already_give_the_rows_of_row_order() -> None:
    unit_ids = np.array([1, 2, 1, 1, 2])
    ordered = keep_first_rows(unit_ids, max_rows_per_unit=1, times=[0.5, 1.0, 1.0, 2.0, 3.0])
    assert ordered.rows.tolist() == [0, 1]
    reversed_times = keep_first_rows(unit_ids, max_rows_per_unit=1, times=[5, 4, 3, 2, 1])
    assert reversed_times.rows.tolist() == [3, 4]


def test_the_random_rule_is_stable_for_a_key_and_other_for_another() -> None:
    unit_ids = np.arange(3000) % 100
    rows = [
        keep_random_rows(unit_ids, max_rows_per_unit=5, key=key).rows.tolist()
        for key in (KEY, KEY, KEY[::-1])
    ]
    assert rows[0] == rows[1] != rows[2]


def test_the_random_rule_keeps_every_row_of_a_unit_equally_often() -> None:
    unit_ids = np.repeat(np.arange(20_000), 5)
    rows = keep_random_rows(unit_ids, max_rows_per_unit=2, key=KEY).rows
    counts = np.bincount(rows % 5, minlength=5)
    # Each count is binomial with 20,000 trials at 0.4; 6.5 deviations are 1e-10.
    assert np.abs(counts - 8000).max() < 6.5 * np.sqrt(20_000 * 0.4 * 0.6)
    first_kept = rows[::2] % 5, rows[1::2] % 5
    pairs = np.bincount(first_kept[0] * 5 + first_kept[1], minlength=25)
    assert np.count_nonzero(pairs) == 10
    assert np.abs(pairs[pairs > 0] - 2000).max() < 6.5 * np.sqrt(20_000 * 0.1 * 0.9)


def test_draws_with_replacement_give_every_unit_the_same_number_of_rows() -> None:
    unit_ids = np.repeat(np.arange(300), np.arange(300) % 7 + 1)
    result = draw_rows_with_replacement(unit_ids, max_rows_per_unit=4, key=KEY)
    assert (np.bincount(unit_ids[result.rows]) == 4).all()
    assert result.report.num_kept == 1200
    assert np.unique(result.rows).size < 1200


def test_draws_with_replacement_are_uniform_and_independent() -> None:
    unit_ids = np.repeat(np.arange(20_000), 4)
    rows = draw_rows_with_replacement(unit_ids, max_rows_per_unit=2, key=KEY).rows
    pairs = np.bincount(rows[::2] % 4 * 4 + rows[1::2] % 4, minlength=16).reshape(4, 4)
    expected = np.triu(np.full((4, 4), 2500.0), 1) + np.diag(np.full(4, 1250.0))
    deviations = np.abs(pairs - expected)[np.triu_indices(4)] / np.sqrt(2500)
    assert deviations.max() < 6.5
    assert pairs[np.tril_indices(4, -1)].sum() == 0


def test_the_report_says_what_was_kept_and_does_not_print_it() -> None:
    report = keep_first_rows([5, 5, 5, 6, 7, 7], max_rows_per_unit=1).report
    assert (report.num_rows, report.num_kept, report.num_units) == (6, 3, 3)
    assert repr(report) == "BoundReport(max_rows_per_unit=1)"


def test_windows_are_whole_lengths_since_1970_or_an_origin() -> None:
    times = [0, 86_399, 86_400, -1, 200_000]
    assert windows_of(times, TimeWindows(86_400)).tolist() == [0, 0, 1, -1, 2]
    assert windows_of([5.5, 9.9], TimeWindows(4)).tolist() == [1, 2]
    since = TimeWindows.parse("2 days from 1970-01-02")
    assert windows_of([0, 86_399, 86_400, 3 * 86_400], since).tolist() == [-1, -1, 0, 1]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32, np.uint64, np.float32])
def test_windows_do_not_depend_on_the_type_of_the_times(dtype: Any) -> None:
    times = np.array([0, 5, 9, 10, 25])
    for text in (
        "7 days",
        "7 days from 2026-01-05",
        "day in America/New_York",
        "month in Asia/Tokyo",
    ):
        windows = TimeWindows.parse(text)
        found = windows_of(times.astype(dtype), windows)
        assert found.tolist() == [windows.number(time * 1_000_000) for time in times.tolist()]


@pytest.mark.parametrize("time", [2**63, -(2**63), 1e30])
def test_times_beyond_all_windows_are_refused(time: float) -> None:
    with pytest.raises(DataError, match=r"2\^62"):
        windows_of(np.array([time]), TimeWindows(10))


def test_a_window_bound_keeps_rows_of_every_window() -> None:
    windows = windows_of([0, 10, 90_000, 90_001], TimeWindows(86_400))
    assert keep_first_rows([1, 1, 1, 1], max_rows_per_unit=1, windows=windows).rows.tolist() == [
        0,
        2,
    ]


@each_rule
def test_an_empty_log_stays_empty(rule: Rule) -> None:
    result = rule(np.array([], np.int64), max_rows_per_unit=3)
    assert result.rows.size == result.report.num_units == 0


@each_rule
@pytest.mark.parametrize("bound", [0, -1, 1.5, True, None])
def test_bounds_that_are_no_counts_are_refused(rule: Rule, bound: Any) -> None:
    with pytest.raises(ConfigError, match="max_rows_per_unit="):
        rule([1, 2], max_rows_per_unit=bound)


@each_rule
@pytest.mark.parametrize("bad", [[1.0, 2.0], [[1]], ["a"], [None]])
def test_unit_ids_that_are_no_whole_numbers_are_refused(rule: Rule, bad: Any) -> None:
    with pytest.raises(DataError, match="drop rows without a unit"):
        rule(bad, max_rows_per_unit=1)


@pytest.mark.parametrize(
    "columns", [{"times": [1]}, {"windows": [1, 2, 3]}, {"times": [3, 2, 1]}, {"times": []}]
)
def test_columns_of_another_length_are_refused(columns: dict[str, Any]) -> None:
    columns = {name: np.array(values, np.int64) for name, values in columns.items()}
    with pytest.raises(DataError, match="one value for each row"):
        keep_first_rows([1, 2], max_rows_per_unit=1, **columns)


@pytest.mark.parametrize("times", [[1.0, np.nan], [np.inf, 1.0], ["x", "y"], [[1], [2]]])
def test_times_that_are_no_finite_numbers_are_refused(times: Any) -> None:
    with pytest.raises(DataError, match="times"):
        keep_first_rows([1, 2], max_rows_per_unit=1, times=times)
