"""Public orders hold every row once and stay the same for the same seed."""

import numpy as np
import pytest
from scipy import stats

from tulle.data.samplers.row_order import RowGroups, ShuffledOrder


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 255, 256, 257, 5000])
def test_an_order_holds_every_row_once(num_rows: int) -> None:
    order = ShuffledOrder(num_rows=num_rows, seed=3, number=1)
    rows = order.rows_at(np.arange(num_rows))
    assert np.array_equal(np.sort(rows), np.arange(num_rows))


def test_orders_differ_by_seed_and_by_number_and_repeat_otherwise() -> None:
    positions = np.arange(1000)
    rows = [
        ShuffledOrder(num_rows=1000, seed=seed, number=number).rows_at(positions).tolist()
        for seed, number in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert rows[0] == rows[3]
    assert rows[0] != rows[1] != rows[2] != rows[0]


def test_an_order_is_the_same_in_every_version() -> None:
    rows = ShuffledOrder(num_rows=10, seed=0, number=0).rows_at(np.arange(10))
    assert rows.tolist() == [7, 4, 2, 6, 9, 3, 5, 0, 1, 8]


def test_neighbours_do_not_stay_together() -> None:
    order = ShuffledOrder(num_rows=1_000_003, seed=0, number=0)
    rows = order.rows_at(np.arange(200_000))
    for lag in (1, 2, 64, 1024):
        correlation = np.corrcoef(rows[:-lag], rows[lag:])[0, 1]
        assert abs(correlation) < 7 / np.sqrt(rows.size)


def test_rows_at_each_place_are_spread_evenly_over_orders() -> None:
    num_places, num_orders = 16, 800
    counts = np.zeros((num_places, 8))
    for seed in range(num_orders):
        order = ShuffledOrder(num_rows=256, seed=seed, number=0)
        counts[np.arange(num_places), order.rows_at(np.arange(num_places)) // 32] += 1
    expected = num_orders / 8
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(statistic, num_places * 7) > 1e-9


@pytest.mark.parametrize(("num_rows", "num_groups"), [(1, 1), (10, 3), (12, 4), (1000, 7)])
def test_groups_hold_every_row_once_and_have_the_same_size(num_rows: int, num_groups: int) -> None:
    groups = RowGroups(num_rows=num_rows, num_groups=num_groups, seed=5)
    members = [groups.rows_of(g, np.arange(groups.num_runs)) for g in range(num_groups)]
    assert np.array_equal(np.sort(np.concatenate(members)), np.arange(num_rows))
    assert max(map(len, members)) - min(map(len, members)) <= 1
    for group, rows in enumerate(members):
        assert (groups.groups_of(rows) == group).all()
        assert (np.diff(rows) > 0).all()


def test_more_rows_at_the_end_leave_the_groups_of_the_others() -> None:
    few, many = (RowGroups(num_rows=n, num_groups=5, seed=2) for n in (83, 84))
    rows = np.arange(83)
    assert np.array_equal(few.groups_of(rows), many.groups_of(rows))


def test_rows_are_spread_evenly_and_without_pattern_over_groups() -> None:
    groups = RowGroups(num_rows=80_000, num_groups=8, seed=0).groups_of(np.arange(80_000))
    turns = groups[::8]  # one row of each run: its group is uniform
    statistic = float(((np.bincount(turns, minlength=8) - 1250) ** 2 / 1250).sum())
    assert stats.chi2.sf(statistic, 7) > 1e-9
    pairs = np.bincount(turns[:-1] * 8 + turns[1:], minlength=64)
    expected = (turns.size - 1) / 64
    assert stats.chi2.sf(float(((pairs - expected) ** 2 / expected).sum()), 63) > 1e-9
