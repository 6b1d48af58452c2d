"""Sums over cells move by no more than their stated sensitivity."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.train.methods.mosaic.cell_sums import (
    LABEL_SENSITIVITY,
    MOST_PREDICTED,
    ROW_SENSITIVITY,
    label_sums,
    row_sums,
)

_CELLS = 3
_Row = tuple[int, int, float]
rows = st.tuples(st.integers(0, _CELLS - 1), st.integers(0, 1), st.floats(1e-6, 1 - 1e-6))


def sums(data: list[_Row]) -> np.ndarray:
    cells, labels, predictions = (np.array(column) for column in zip(*data, strict=True))
    return row_sums(cells, labels.astype(float), predictions, np.ones(len(cells)), _CELLS)


@given(others=st.lists(rows, min_size=1, max_size=4), one=rows, other=rows)
@settings(max_examples=300)
def test_a_replaced_row_moves_sums_by_at_most_the_sensitivity(
    others: list[_Row], one: _Row, other: _Row
) -> None:
    distance = np.linalg.norm(sums([*others, one]) - sums([*others, other]))
    assert distance <= ROW_SENSITIVITY * (1 + 1e-12)


@st.composite
def spent_rows(draw: st.DrawFn) -> tuple[int, list[tuple[int, float, float]]]:
    """A row in three tables: its label; in each its cell, its prediction and its weight."""
    parts = [draw(st.floats(0, 1)) for _ in range(3)]
    weights = np.sqrt(np.array(parts) / max(sum(parts), 1e-9))
    chances = [draw(st.sampled_from([1e-9, 0.2, MOST_PREDICTED, 0.9])) for _ in range(3)]
    cells = [draw(st.integers(0, 1)) for _ in range(3)]
    return draw(st.integers(0, 1)), list(zip(cells, chances, weights.tolist(), strict=True))


@given(one=spent_rows(), other=spent_rows())
@settings(max_examples=500)
def test_rows_that_spend_differently_are_no_further_apart_over_all_tables(
    one: tuple[int, list[tuple[int, float, float]]],
    other: tuple[int, list[tuple[int, float, float]]],
) -> None:
    """Squares of weights add up to 1; where they go may change with the row."""
    squared = 0.0
    for (cell, chance, weight), (cell_b, chance_b, weight_b) in zip(one[1], other[1], strict=True):
        moved = weighted_sums(cell, one[0], chance, weight)
        moved -= weighted_sums(cell_b, other[0], chance_b, weight_b)
        squared += float(np.sum(moved**2))
    assert squared <= ROW_SENSITIVITY**2 * (1 + 1e-9)


def weighted_sums(cell: int, label: int, chance: float, weight: float) -> np.ndarray:
    row = np.array([float(label)]), np.array([chance]), np.array([weight])
    return row_sums(np.array([cell]), *row, _CELLS)


def test_the_sensitivity_is_reached_in_one_cell_and_between_two() -> None:
    tiny = 1e-12
    same_cell = sums([(0, 1, tiny)]) - sums([(0, 0, MOST_PREDICTED)])
    other_cell = sums([(0, 1, tiny)]) - sums([(1, 1, tiny)])
    for moved in (same_cell, other_cell):
        assert abs(np.linalg.norm(moved) - ROW_SENSITIVITY) < 1e-9


def test_without_the_weights_of_likely_rows_the_bound_would_not_hold() -> None:
    """A row predicted at 0.9 would move by 1.9; its weight keeps it within the bound."""
    unweighted = np.array([1.0, 0.0]) - np.array([-0.9, 0.9])
    assert np.linalg.norm(unweighted) > ROW_SENSITIVITY
    weighted = sums([(0, 1, 1e-12)]) - sums([(0, 0, 0.9)])
    assert np.linalg.norm(weighted) <= ROW_SENSITIVITY


@given(data=st.lists(rows, min_size=1, max_size=5), place=st.integers(0, 4))
@settings(max_examples=200)
def test_a_flipped_label_moves_sums_of_labels_by_the_weight_of_its_row(
    data: list[_Row], place: int
) -> None:
    cells, labels, weights = (np.array(column) for column in zip(*data, strict=True))
    flipped = labels.copy()
    flipped[place % len(labels)] ^= 1
    moved = label_sums(cells, labels.astype(float), weights, _CELLS)
    moved -= label_sums(cells, flipped.astype(float), weights, _CELLS)
    expected = LABEL_SENSITIVITY * weights[place % len(labels)]
    assert abs(np.linalg.norm(moved) - expected) < 1e-9


@pytest.mark.parametrize("chance", [math.nan, math.inf, -math.inf, -3.0, 7.0])
def test_predictions_that_are_no_chances_do_not_show(chance: float) -> None:
    others = [(0, 1, 0.3), (1, 0, 0.2)]
    moved = sums([*others, (2, 1, chance)]) - sums([*others, (0, 1, 0.1)])
    assert np.linalg.norm(moved) <= ROW_SENSITIVITY * (1 + 1e-12)


def test_sums_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(3)
    cells, labels = rng.integers(0, _CELLS, 50), rng.integers(0, 2, 50).astype(float)
    predictions, weights = rng.random((2, 50))
    expected = np.zeros((2, _CELLS))
    for cell, label, chance, own in zip(cells, labels, predictions, weights, strict=True):
        weight = own * min(1.0, MOST_PREDICTED / chance)
        expected[:, cell] += weight * (label - chance), weight * chance
    found = row_sums(cells, labels, predictions, weights, _CELLS)
    assert np.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(("num_rows", "most"), [(1_000, 1e-12), (1_000_000, 1e-9)])
def test_rounding_of_sums_is_far_below_the_margin_of_the_noise(num_rows: int, most: float) -> None:
    """Replacing an early row changes how all later additions are rounded."""
    rng = np.random.default_rng(1)
    cells, weights = np.zeros(num_rows, np.int64), np.sqrt(rng.random(num_rows))
    predictions = rng.random(num_rows)
    labels = (rng.random(num_rows) < predictions).astype(np.float64)

    def summed(where: slice) -> np.ndarray:
        return row_sums(cells[where], labels[where], predictions[where], weights[where], 1)

    for place in range(5):
        everything, alone = summed(slice(None)), summed(slice(place, place + 1))
        labels[place], predictions[place] = 1 - labels[place], rng.random()
        moved, moved_alone = summed(slice(None)), summed(slice(place, place + 1))
        rounding = np.linalg.norm((moved - everything) - (moved_alone - alone))
        assert 0 < rounding < most * ROW_SENSITIVITY
        assert rounding < num_rows**2 * 2.0**-53 * ROW_SENSITIVITY
