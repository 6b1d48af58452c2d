"""Tables that may be asked for: sizes within bounds, places that fit the model's."""

import math

import numpy as np
import pytest

from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.candidate_table import _alike as groups_of
from tulle.train.methods.mosaic.cell_model import cells_of_rows
from tulle.train.methods.mosaic.column_values import ColumnValues, public_values, sensitive_values


def column(name: str, num_values: int, place: int = 0) -> ColumnValues:
    return public_values(name, place, np.arange(num_values, 0, -1))


@pytest.mark.parametrize("sizes", [(10,), (5_000,), (3, 4_000), (700, 900), (30, 400, 500)])
def test_a_table_is_never_larger_than_allowed(sizes: tuple[int, ...]) -> None:
    columns = [column(str(place), size, place) for place, size in enumerate(sizes)]
    table = CandidateTable(columns, num_rows=1_000, spread=0.3, max_cells=4_096)
    assert table.num_cells <= 4_096
    assert table.num_cells > 4_096 // 4 or table.num_cells == math.prod(s + 1 for s in sizes)


def test_rows_are_where_the_model_looks_them_up() -> None:
    columns = [column("a", 3, 0), column("b", 4, 1)]
    table = CandidateTable(columns, num_rows=10, spread=0.3, max_cells=100)
    cells = cells_of_rows(table.parts, [np.array([0, 2]), np.array([3, 0])])
    # Ids are ranked by frequency from 1 on; 0 is for values that never occurred.
    assert cells.tolist() == [1 * 5 + 4, 3 * 5 + 1]


def test_rare_values_are_one() -> None:
    table = CandidateTable([column("a", 1_000)], num_rows=10, spread=0.3, max_cells=16)
    places = cells_of_rows(table.parts, [np.arange(1_000)])
    assert sorted(set(places.tolist())) == list(range(16))
    assert places[:15].tolist() == list(range(1, 16))
    assert not places[15:].any()


def test_a_table_without_rows_promises_nothing() -> None:
    empty = sensitive_values("audience", 0, np.full(10, -5.0), 10.0)
    table = CandidateTable(empty, num_rows=100, spread=0.5, max_cells=100)
    assert table.expected_gain(1.0, 0.1) == 0


def test_more_noise_gains_less() -> None:
    table = CandidateTable([column("a", 50)], num_rows=1_275, spread=0.3, max_cells=100)
    gains = [table.expected_gain(variance, 0.1) for variance in (0.1, 1.0, 10.0, 1e6)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 0.01 * gains[0]


def test_what_is_known_gains_no_more() -> None:
    counts = public_values("a", 0, np.full(50, 20_000))
    table = CandidateTable([counts], num_rows=1_000_000, spread=0.3, max_cells=100)
    before = table.expected_gain(1.0, 0.1)
    table.note_spread(0.3, 0.01, 0.1)
    assert table.expected_gain(1.0, 0.1) < 0.1 * before


def test_looking_twice_leaves_as_little_as_looking_once_with_half_the_noise() -> None:
    counts = public_values("a", 0, np.full(50, 20_000))

    def left(*variances: float) -> float:
        table = CandidateTable([counts], num_rows=1_000_000, spread=0.9, max_cells=100)
        table.note_spread(0.3, variances[0], 0.1)
        for variance in variances[1:]:
            table.note_again(1.0, variance, 0.1)
        return table.expected_gain(1.0, 0.1)

    assert left(2e6, 2e6) == pytest.approx(left(1e6), rel=0.01)
    assert left(2e6, 2e6) < 0.9 * left(2e6)


def test_a_table_remembers_what_it_first_showed() -> None:
    table = CandidateTable([column("a", 50)], num_rows=1_275, spread=0.3, max_cells=100)
    assert not table.has_more_to_tell
    table.note_spread(0.4, 1.0, 0.1)
    assert table.has_more_to_tell
    table.note_again(0.0, 1.0, 0.1)
    assert not table.has_more_to_tell
    assert table.first_spread == 0.4
    assert table.expected_gain(1.0, 0.1) == 0


def test_sensitive_values_that_do_not_stand_out_are_one() -> None:
    noisy = np.concatenate([np.full(5, 1_000.0), np.full(195, 3.0)])
    values, coarse = sensitive_values("audience", 1, noisy, 10.0)
    assert values.num_values == 6
    assert not values.ranks[5:].any()
    assert len(set(coarse.ranks[:5].tolist())) == 1
    assert coarse.ranks[0] > coarse.ranks[10]


def test_all_of_few_sensitive_values_are_kept() -> None:
    (values,) = sensitive_values("device", 0, np.array([50.0, -3.0, 2.0]), 10.0)
    assert values.num_values == 4
    assert sorted(values.ranks.tolist()) == [1, 2, 3]


def test_groups_are_those_of_sorted_bins() -> None:
    rng = np.random.default_rng(0)
    rows = np.exp(rng.normal(3, 4, 5_000)) * (rng.random(5_000) > 0.1)
    variances = np.exp(rng.normal(-5, 2, 5_000))
    bins = np.floor(4 * np.log(np.maximum([rows, variances], 1e-12)))
    _, expected = np.unique(bins, axis=1, return_inverse=True)
    assert groups_of(rows, variances).tolist() == expected.ravel().tolist()


def test_sizes_that_are_no_numbers_have_groups_too() -> None:
    sizes = np.array([1.0, np.nan, 0.0, np.inf, 1e12, -1.0])
    assert groups_of(sizes).tolist() == [1, 0, 0, 2, 2, 0]
