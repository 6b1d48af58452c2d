"""Values as labels: clipped, in whole parts, and within the sensitivity of labels of 0 and 1."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.train.methods.mosaic.cell_sums import PredictedRows, label_sums, row_sums
from tulle.train.methods.mosaic.label_parts import (
    LABEL_BITS,
    check_clip,
    label_parts,
    rounding_weights,
)
from tulle.train.methods.mosaic.row_numbers import RowRules
from unit.train.small_data import make_examples

_ONE = 1 << LABEL_BITS
_ROOM = 1 << 12
_LEAST, _MOST = -90_000, 90_000
"""Log odds in steps that are far below and far above what a row may be predicted."""
Row = tuple[int, list[tuple[int, int, int]]]
"""A label in parts, and the cell, log odds and weight of the row in each table."""


def test_labels_are_parts_of_their_clip_and_clipped_there() -> None:
    labels = np.array([0, 0.001, 100, 399.99, 400, 401, 1e30], np.float32)
    parts = label_parts(labels, 400.0)
    assert parts.dtype == np.int32
    assert parts[0] == 0
    assert parts[2] == _ONE // 4
    assert parts[4:].tolist() == [_ONE] * 3
    assert (np.diff(parts[:5]) > 0).all()
    assert (parts <= labels.astype(np.float64) / 400 * _ONE).all()
    assert label_parts(np.array([0, 1], np.float32), None).tolist() == [0, _ONE]


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf"), True, 1e-40])
def test_a_clip_that_nothing_can_be_divided_by_is_refused(clip: float) -> None:
    with pytest.raises(ConfigError, match="clip="):
        check_clip(clip)
    assert check_clip(400) == 400.0


@pytest.mark.parametrize("label", [-1.0, float("nan"), float("inf")])
def test_labels_that_are_no_values_are_refused(label: float) -> None:
    examples = make_examples(20)
    assert examples.labels is not None
    wrong = dataclasses.replace(examples, labels=np.append(examples.labels[1:], np.float32(label)))
    with pytest.raises(DataError, match="below 0"):
        PredictedRows(wrong, clip=400.0)
    with pytest.raises(DataError, match="0 or 1"):
        PredictedRows(wrong)


def test_values_without_a_clip_are_refused() -> None:
    examples = make_examples(20)
    assert examples.labels is not None
    halves = dataclasses.replace(examples, labels=examples.labels / 2)
    with pytest.raises(DataError, match="0 or 1"):
        PredictedRows(halves)
    assert PredictedRows(halves, clip=1.0).num_rows == 20


@given(weight=st.one_of(st.integers(0, 1 << 30), st.integers(0, 3 * _ROOM)))
@settings(max_examples=300)
def test_the_weights_of_values_leave_room_for_rounding(weight: int) -> None:
    """What the proof needs: B (1 + 2^-12) <= A, and B is 0 or at least 2^12."""
    smaller = int(rounding_weights(np.int64(weight)))
    assert smaller * (_ROOM + 1) <= weight * _ROOM
    assert smaller == 0 or smaller >= _ROOM
    assert weight < 2 * _ROOM or smaller >= weight * (1 - 2 / _ROOM)


def moved(one: Row, other: Row, sums: Callable[..., np.ndarray]) -> int:
    """The squared distance of two rows over all tables."""
    told = 0
    for (cell, steps, weight), (cell_b, steps_b, weight_b) in zip(one[1], other[1], strict=True):
        apart = sums(cell, one[0], steps, weight) - sums(cell_b, other[0], steps_b, weight_b)
        told += sum(int(number) ** 2 for number in apart.ravel())
    return told


def share(one: Row, other: Row) -> int:
    return max(sum(weight**2 for _, _, weight in row[1]) for row in (one, other))


def values(cell: int, label: int, steps: int, weight: int) -> np.ndarray:
    columns = (np.array([number], np.int64) for number in (cell, label, steps, weight))
    return row_sums(*columns, 2, rules=RowRules(are_values=True))


def without_room(cell: int, label: int, steps: int, weight: int) -> np.ndarray:
    """A planted fault: values are rounded without room for it."""
    columns = (np.array([number], np.int64) for number in (cell, label, steps, weight))
    return row_sums(*columns, 2)


_WEIGHTS = st.one_of(
    st.integers(0, 1 << 30), st.integers(0, 20), st.integers(_ROOM - 3, _ROOM + 5_000)
)
_LABELS = st.one_of(st.integers(0, _ONE), st.sampled_from([0, 1, _ONE - 1, _ONE]))


@st.composite
def valued_rows(draw: st.DrawFn) -> Row:
    log_odds = st.sampled_from([_LEAST, -8_000, -2_250, 0, 9_000, _MOST])
    tables = [
        (draw(st.integers(0, 1)), draw(log_odds), draw(_WEIGHTS)) for _ in range(draw(st.just(4)))
    ]
    return draw(_LABELS), tables


@given(one=valued_rows(), other=valued_rows())
@settings(max_examples=800)
def test_rows_of_any_values_are_no_further_apart_than_labels_of_0_and_1(
    one: Row, other: Row
) -> None:
    assert moved(one, other, values) <= 2 * share(one, other)


def of_positives(cell: int, label: int, steps: int, weight: int) -> np.ndarray:
    return values(cell, label, steps, weight if label else 0)


@given(one=valued_rows(), other=valued_rows())
@settings(max_examples=400)
def test_rows_that_do_not_take_part_are_within_the_bounds(one: Row, other: Row) -> None:
    assert moved(one, other, of_positives) <= 2 * share(one, other)
    # Public cells, weights and predictions: nothing but the label is replaced.
    assert moved(one, (other[0], one[1]), of_positives) <= share(one, one)


def worst_rounding(scale: int) -> tuple[Row, Row]:
    """Rounding takes the second row for a label of 0 in four tables, and for almost 1 in one."""
    one = _ONE, [(0, _LEAST, 500 * scale)] * 4 + [(1, _LEAST, 0)]
    other = _ONE - 1, [(0, _MOST, 3)] * 4 + [(0, _LEAST, 1_000 * scale)]
    return one, other


def test_rounding_without_room_would_break_the_bound() -> None:
    one, other = worst_rounding(1)
    assert moved(one, other, without_room) > 2 * share(one, other)
    for scale in (1, 10, 1 << 17):
        one, other = worst_rounding(scale)
        assert moved(one, other, values) <= 2 * share(one, other)


def test_a_label_above_the_clip_would_break_the_bound() -> None:
    """A planted fault: labels that are not clipped."""
    one, other = ((label, [(0, _LEAST, 1 << 20)]) for label in (int(1.5 * _ONE), 0))
    assert moved(one, other, values) > 2 * share(one, other)


@given(
    one=_LABELS, other=_LABELS, weights=st.lists(st.integers(0, 1 << 30), min_size=1, max_size=4)
)
@settings(max_examples=200)
def test_a_replaced_value_moves_sums_of_labels_by_at_most_the_weight_of_its_row(
    one: int, other: int, weights: list[int]
) -> None:
    told = 0
    for weight in weights:
        found = [
            label_sums(np.zeros(1, np.int64), np.array([label], np.int32), np.int64(weight), 1)
            for label in (one, other)
        ]
        told += int((found[0] - found[1])[0]) ** 2
    assert told <= sum(weight**2 for weight in weights)


def test_sums_of_values_are_those_of_a_loop_of_whole_numbers() -> None:
    rng = np.random.default_rng(2)
    cells, weights = rng.integers(0, 3, 300), rng.integers(0, 1 << 30, 300)
    labels = rng.integers(0, _ONE + 1, 300).astype(np.int32)
    expected = [0] * 3
    for cell, label, weight in zip(
        *(column.tolist() for column in (cells, labels, weights)), strict=True
    ):
        expected[cell] += weight * label // _ONE
    assert label_sums(cells, labels, weights, 3).tolist() == expected
