"""Sums over cells move by no more than their stated sensitivity."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.train.cells.cell_sums import (
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
    return row_sums(cells, labels.astype(float), predictions, _CELLS)


@given(others=st.lists(rows, min_size=1, max_size=4), one=rows, other=rows)
@settings(max_examples=300, deadline=None)
def test_a_replaced_row_moves_sums_by_at_most_the_sensitivity(
    others: list[_Row], one: _Row, other: _Row
) -> None:
    distance = np.linalg.norm(sums([*others, one]) - sums([*others, other]))
    assert distance <= ROW_SENSITIVITY * (1 + 1e-12)


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
@settings(max_examples=200, deadline=None)
def test_a_flipped_label_moves_sums_of_labels_by_one(data: list[_Row], place: int) -> None:
    cells, labels, _ = (np.array(column) for column in zip(*data, strict=True))
    flipped = labels.copy()
    flipped[place % len(labels)] ^= 1
    moved = label_sums(cells, labels.astype(float), _CELLS)
    moved -= label_sums(cells, flipped.astype(float), _CELLS)
    assert abs(np.linalg.norm(moved) - LABEL_SENSITIVITY) < 1e-9


@pytest.mark.parametrize("chance", [math.nan, math.inf, -math.inf, -3.0, 7.0])
def test_predictions_that_are_no_chances_do_not_show(chance: float) -> None:
    others = [(0, 1, 0.3), (1, 0, 0.2)]
    moved = sums([*others, (2, 1, chance)]) - sums([*others, (0, 1, 0.1)])
    assert np.linalg.norm(moved) <= ROW_SENSITIVITY * (1 + 1e-12)


def test_sums_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(3)
    cells, labels = rng.integers(0, _CELLS, 50), rng.integers(0, 2, 50).astype(float)
    predictions = rng.random(50)
    expected = np.zeros((2, _CELLS))
    for cell, label, chance in zip(cells, labels, predictions, strict=True):
        weight = min(1.0, MOST_PREDICTED / chance)
        expected[:, cell] += weight * (label - chance), weight * chance
    assert np.allclose(row_sums(cells, labels, predictions, _CELLS), expected, rtol=1e-12)
