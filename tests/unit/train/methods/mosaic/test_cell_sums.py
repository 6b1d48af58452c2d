"""Sums over cells are exact, and move by no more than their stated sensitivity."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import DataError
from tulle.train.methods.mosaic import cell_sums, row_loops, row_numbers
from tulle.train.methods.mosaic.cell_sums import (
    LABEL_SENSITIVITY,
    LOG_ODDS_BITS,
    MOST_PREDICTED,
    PROBABILITY_BITS,
    ROW_SENSITIVITY,
    PredictedRows,
    RowColumns,
    exact_sums,
    label_sums,
    log_odds_steps,
    probabilities,
    row_sums,
)
from tulle.train.methods.mosaic.label_parts import LABEL_BITS
from unit.train.small_data import make_examples

_CELLS = 3
_ONE = 1 << PROBABILITY_BITS
_Row = tuple[int, int, int]
_STEPS = st.one_of(
    st.integers(-20 << LOG_ODDS_BITS, 20 << LOG_ODDS_BITS), st.integers(-(2**31), 2**31 - 1)
)
rows = st.tuples(st.integers(0, _CELLS - 1), st.integers(0, 1), _STEPS)


def sums(data: list[_Row], weight: int) -> np.ndarray:
    cells, labels, log_odds = (np.array(column) for column in zip(*data, strict=True))
    weights = np.full(len(cells), weight)
    return row_sums(cells, parts(labels), log_odds.astype(np.int32), weights, _CELLS)


def parts(labels: np.ndarray) -> np.ndarray:
    """Labels of 0 and 1 in parts of 2^30."""
    return labels.astype(np.int32) << LABEL_BITS


def squared(moved: np.ndarray) -> int:
    """The squared length of whole numbers, exactly."""
    return sum(int(number) ** 2 for number in moved.ravel())


@given(
    others=st.lists(rows, min_size=1, max_size=4),
    one=rows,
    other=rows,
    weight=st.one_of(st.integers(0, 1 << 30), st.integers(0, 20)),
)
@settings(max_examples=400)
def test_a_replaced_row_moves_sums_by_at_most_the_sensitivity(
    others: list[_Row], one: _Row, other: _Row, weight: int
) -> None:
    """In whole numbers, so without any tolerance."""
    moved = sums([*others, one], weight) - sums([*others, other], weight)
    assert squared(moved) <= 2 * weight**2
    assert math.sqrt(2) == ROW_SENSITIVITY


@st.composite
def spent_rows(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """A row in three tables: its label; in each its cell, its log odds and its weight."""
    most = draw(st.sampled_from([3, 50, 1 << 20, 1 << 30]))
    weights = [draw(st.integers(0, most)) for _ in range(3)]
    log_odds = [draw(st.sampled_from([-90_000, -8_000, -2_250, 0, 9_000])) for _ in range(3)]
    cells = [draw(st.integers(0, 1)) for _ in range(3)]
    return draw(st.integers(0, 1)), list(zip(cells, log_odds, weights, strict=True))


@given(one=spent_rows(), other=spent_rows())
@settings(max_examples=500)
def test_rows_that_spend_differently_are_no_further_apart_over_all_tables(
    one: tuple[int, list[tuple[int, int, int]]], other: tuple[int, list[tuple[int, int, int]]]
) -> None:
    """The share is what the row spends that spends more; where it goes may change with the row."""
    share = max(sum(weight**2 for _, _, weight in row) for _, row in (one, other))
    told = 0
    for (cell, steps, weight), (cell_b, steps_b, weight_b) in zip(one[1], other[1], strict=True):
        moved = sums([(cell, one[0], steps)], weight)
        moved = moved - sums([(cell_b, other[0], steps_b)], weight_b)
        told += squared(moved)
    assert told <= 2 * share


def test_the_sensitivity_is_reached_in_one_cell_and_between_two() -> None:
    likely = int(np.searchsorted(probabilities().predicted, MOST_PREDICTED)) - probabilities().most
    least, weight = -probabilities().most, 1 << 30
    same_cell = sums([(0, 1, least)], weight) - sums([(0, 0, likely)], weight)
    other_cell = sums([(0, 1, least)], weight) - sums([(1, 1, least)], weight)
    for moved in (same_cell, other_cell):
        assert math.sqrt(squared(moved)) / weight == pytest.approx(ROW_SENSITIVITY, rel=1e-6)


def test_the_public_table_has_what_the_proof_needs() -> None:
    """All of its entries: 0 <= Q <= U <= 1 and Q <= c, with c rounded down."""
    table = probabilities()
    assert len(table.predicted) == 2 * table.most + 1
    assert (table.capped >= 0).all()
    assert (table.capped <= table.factors).all()
    assert (table.factors <= _ONE).all()
    assert (table.capped <= MOST_PREDICTED).all()
    assert _ONE**2 + 2 * MOST_PREDICTED**2 + 2 * MOST_PREDICTED * _ONE <= 2 * _ONE**2
    more = MOST_PREDICTED + 1
    assert _ONE**2 + 2 * more**2 + 2 * more * _ONE > 2 * _ONE**2
    log_odds = np.arange(-table.most, table.most + 1) / (1 << LOG_ODDS_BITS)
    assert np.allclose(table.predicted / _ONE, 1 / (1 + np.exp(-log_odds)), atol=1e-9, rtol=0)
    assert (np.diff(table.predicted) >= 0).all()


Added = Callable[[int, int, int], tuple[int, int]]
"""From weight, label and steps of log odds to what a row adds to both sums of its cell."""


def added(weight: int, label: int, steps: int) -> tuple[int, int]:
    found = sums([(0, label, steps)], weight)
    return int(found[0, 0]), int(found[1, 0])


def _parts(steps: int) -> tuple[int, int, int]:
    place, table = steps + probabilities().most, probabilities()
    return tuple(int(part[place]) for part in table[:3])  # type: ignore[return-value]


def rounded_up(weight: int, label: int, steps: int) -> tuple[int, int]:
    """A planted fault: products are rounded up."""
    _, capped, factor = _parts(steps)
    likely = -(-weight * capped >> PROBABILITY_BITS)
    return label * -(-weight * factor >> PROBABILITY_BITS) - likely, likely


def rounded_to_nearest(weight: int, label: int, steps: int) -> tuple[int, int]:
    """A planted fault: products are rounded to the nearest whole number."""
    _, capped, factor = _parts(steps)
    half = _ONE >> 1
    likely = (weight * capped + half) >> PROBABILITY_BITS
    return label * ((weight * factor + half) >> PROBABILITY_BITS) - likely, likely


def without_factor(weight: int, label: int, steps: int) -> tuple[int, int]:
    """A planted fault: likely rows count as much as the others."""
    likely = weight * _parts(steps)[0] >> PROBABILITY_BITS
    return label * weight - likely, likely


def rounded_residual(weight: int, label: int, steps: int) -> tuple[int, int]:
    """A planted fault: residual and prediction are rounded away from 0, each on its own."""
    predicted, capped, factor = _parts(steps)
    residual = factor * (label * _ONE - predicted) * weight
    size = -(-abs(residual) >> 2 * PROBABILITY_BITS)
    return (size if residual > 0 else -size), -(-weight * capped >> PROBABILITY_BITS)


def is_bounded(function: Added) -> bool:
    """Whether any two rows of small weights, in one cell or two, are within the sensitivity."""
    steps = (-60_000, -9_000, -4_000, -2_251, -2_250, 0, 4_000, 60_000)
    found = [
        (weight, function(weight, label, some))
        for weight, label, some in itertools.product((1, 2, 3, 7, 40), (0, 1), steps)
    ]
    for (weight, one), (weight_b, other) in itertools.product(found, repeat=2):
        share = max(weight, weight_b) ** 2
        same = (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2
        apart = one[0] ** 2 + one[1] ** 2 + other[0] ** 2 + other[1] ** 2
        if max(same, apart) > 2 * share:
            return False
    return True


def test_what_a_row_adds_is_bounded_however_small_its_weight() -> None:
    assert is_bounded(added)


@pytest.mark.parametrize(
    "fault", [rounded_up, rounded_to_nearest, without_factor, rounded_residual]
)
def test_a_rounding_that_breaks_the_bound_is_noticed(fault: Added) -> None:
    assert not is_bounded(fault)


def test_without_the_weights_of_likely_rows_the_bound_would_not_hold() -> None:
    """A row predicted at 0.9 would move by 1.9; its weight keeps it within the bound."""
    weight, likely = 1 << 20, int(log_odds_steps(math.log(9)))
    unweighted = np.array([1.0, 0.0]) - np.array([-0.9, 0.9])
    assert np.linalg.norm(unweighted) > ROW_SENSITIVITY
    weighted = sums([(0, 1, -60_000)], weight) - sums([(0, 0, likely)], weight)
    assert squared(weighted) <= 2 * weight**2


@given(
    data=st.lists(
        st.tuples(st.integers(0, _CELLS - 1), st.integers(0, 1), st.integers(0, 1 << 30)),
        min_size=1,
        max_size=5,
    ),
    place=st.integers(0, 4),
)
@settings(max_examples=200)
def test_a_flipped_label_moves_sums_of_labels_by_the_weight_of_its_row(
    data: list[_Row], place: int
) -> None:
    cells, labels, weights = (np.array(column) for column in zip(*data, strict=True))
    flipped = labels.copy()
    flipped[place % len(labels)] ^= 1
    moved = label_sums(cells, parts(labels), weights, _CELLS)
    moved = moved - label_sums(cells, parts(flipped), weights, _CELLS)
    assert squared(moved) == int(weights[place % len(labels)]) ** 2
    assert LABEL_SENSITIVITY == 1


def random_rows(num_rows: int, seed: int = 3) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    cells, labels = rng.integers(0, _CELLS, num_rows), rng.integers(0, 2, num_rows)
    log_odds, weights = rng.integers(-30_000, 30_000, num_rows), rng.integers(0, 1 << 30, num_rows)
    return cells, parts(labels), log_odds.astype(np.int32), weights


def test_sums_are_those_of_a_loop_of_whole_numbers() -> None:
    data = random_rows(200)
    expected = [[0] * _CELLS, [0] * _CELLS]
    for cell, label, steps, weight in zip(*(column.tolist() for column in data), strict=True):
        predicted = round(_ONE / (1 + math.exp(-steps / 4096)))
        likely = weight * min(predicted, MOST_PREDICTED) // _ONE
        factor = _ONE if predicted <= MOST_PREDICTED else MOST_PREDICTED * _ONE // predicted
        expected[0][cell] += label * (weight * factor // _ONE) // _ONE - likely
        expected[1][cell] += likely
    assert row_sums(*data, _CELLS).tolist() == expected


def test_one_weight_for_all_rows_is_that_weight_for_each() -> None:
    cells, labels, log_odds, _ = random_rows(500)
    each = np.full(500, 12_345_678)
    alike = row_sums(cells, labels, log_odds, np.int64(12_345_678), _CELLS)
    assert np.array_equal(alike, row_sums(cells, labels, log_odds, each, _CELLS))
    assert np.array_equal(
        label_sums(cells, labels, np.int64(12_345_678), _CELLS),
        label_sums(cells, labels, each, _CELLS),
    )


@given(seed=st.integers(0, 1_000), size=st.integers(1, 3_000), num_parts=st.integers(1, 6))
@settings(max_examples=40)
def test_sums_are_the_same_in_any_order_and_any_pieces(
    seed: int, size: int, num_parts: int
) -> None:
    """Bit for bit, as they are whole numbers."""
    data, rng = random_rows(1_000, seed), np.random.default_rng(seed)
    expected = row_sums(*data, _CELLS)
    order = rng.permutation(1_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_loops, "ROWS_AT_A_TIME", size)
        assert np.array_equal(row_sums(*(column[order] for column in data), _CELLS), expected)
    edges = [0, *sorted(rng.integers(0, 1_000, num_parts - 1).tolist()), 1_000]
    pieces = [
        row_sums(*(column[start:stop] for column in data), _CELLS)
        for start, stop in itertools.pairwise(edges)
    ]
    assert np.array_equal(np.sum(pieces, axis=0), expected)


def test_sums_of_floats_would_be_rounded_where_these_are_not() -> None:
    """A planted fault: all rows in one piece, where floats no longer hold whole numbers."""
    terms, cells = np.full((1 << 22) + 3, (1 << 32) - 1), np.zeros((1 << 22) + 3, np.int64)
    right = len(terms) * ((1 << 32) - 1)
    assert right > 2**53
    assert exact_sums(cells, terms, 1).tolist() == [right]
    assert int(np.bincount(cells, terms)[0]) != right


@pytest.mark.parametrize(
    "terms",
    [
        np.array([1, (1 << 32) + 1]),
        np.array([1, -(1 << 32) - 1]),
        np.array([1.0, 2.0]),
        np.array([1, 2], np.int32),
    ],
)
def test_terms_that_could_be_rounded_or_overflow_are_refused(terms: np.ndarray) -> None:
    with pytest.raises(DataError, match="exact sums"):
        exact_sums(np.zeros(2, np.int64), terms, 1)


def test_rows_that_could_overflow_are_refused_before_they_are_summed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cell_sums.MAX_ROWS >= 1_000_000_000
    assert cell_sums.MAX_ROWS * row_numbers.MAX_TERM <= 1 << 62
    assert row_loops.ROWS_AT_A_TIME * row_numbers.MAX_TERM <= 1 << 53
    monkeypatch.setattr(cell_sums, "MAX_ROWS", 99)
    with pytest.raises(DataError, match=r"100 rows.*at most 99"):
        PredictedRows(make_examples(100))
    with pytest.raises(DataError, match="at most 99"):
        exact_sums(np.zeros(100, np.int64), np.ones(100, np.int64), 1)


def test_predictions_are_sums_of_whole_steps_and_can_be_taken_back() -> None:
    examples = dataclasses.replace(make_examples(300), labels=np.zeros(300, np.float32))
    added_rows = PredictedRows(examples)
    rng = np.random.default_rng(1)
    changes = [log_odds_steps(rng.normal(0, 3, 300)) for _ in range(20)]
    expected = added_rows.raw_row_sums(added_rows.one_cell, np.int64(1 << 30), 1)
    for change in changes:
        added_rows.add(change)
    moved = added_rows.raw_row_sums(added_rows.one_cell, np.int64(1 << 30), 1)
    assert not np.array_equal(moved, expected)
    for change in reversed(changes):
        added_rows.add(-change)
    again = added_rows.raw_row_sums(added_rows.one_cell, np.int64(1 << 30), 1)
    assert np.array_equal(again, expected)


@pytest.mark.parametrize("typical", [3, 400, 50_000, 1 << 30])
def test_public_sums_of_predictions_are_right(typical: int) -> None:
    """Of weights of any size: most rows of a fine table hardly weigh anything."""
    given_rows = PredictedRows(make_examples(4_000))
    given_rows.add(int(log_odds_steps(-1.5)))
    rng = np.random.default_rng(2)
    cells, weights = rng.integers(0, 4, 4_000), rng.integers(0, 2 * typical, 4_000)
    chance = 1 / (1 + math.exp(1.5))
    found = given_rows.predicted(cells, weights, np.full(4, float(typical)))
    for power, sums_found in enumerate(found, start=1):
        expected = np.bincount(cells, chance * weights.astype(float) ** power, minlength=4)
        assert sums_found == pytest.approx(expected, rel=0.3 if typical == 3 else 0.01)


@pytest.mark.parametrize(
    ("most", "dtype"),
    [(255, np.uint8), (256, np.uint16), (65_535, np.uint16), (65_536, np.int32)],
)
def test_ids_take_as_little_memory_as_they_can(most: int, dtype: type) -> None:
    examples = make_examples(50)
    features = tuple(dataclasses.replace(one, num_ids=70_000) for one in examples.features)
    examples.public_features[30, 1] = most
    read = RowColumns(dataclasses.replace(examples, features=features))
    assert read.ids("public", 1).dtype == dtype
    assert np.array_equal(read.ids("public", 1), examples.public_features[:, 1])


def test_an_id_that_has_changed_since_it_was_checked_is_refused() -> None:
    """It would fall into the cell of another id, as 256 is 0 in 8 bits."""
    examples = make_examples(50)
    read = RowColumns(examples)
    examples.public_features[7, 0] = 256
    with pytest.raises(DataError, match="prepare the data again"):
        read.ids("public", 0)
