"""Classes: how far a replaced row moves the sums of all of them, and what each may spend."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.methods.mosaic.cell_sums import (
    LABEL_SENSITIVITY,
    MOST_PREDICTED,
    PROBABILITY_BITS,
    ROW_SENSITIVITY,
    most_predicted,
    probabilities,
    row_sums,
)
from tulle.train.methods.mosaic.label_law import law_of_class
from tulle.train.methods.mosaic.label_parts import LABEL_BITS
from tulle.train.methods.mosaic.noise_shares import ClassShares, NoiseShares

_ONE = 1 << PROBABILITY_BITS
_CELLS, _TABLES = 2, 3
_Row = tuple[int, list[list[tuple[int, int, int]]]]
"""Class of a row; for each class and table its cell, its log odds in steps and its weight."""


def added(row: _Row, number: int, table: int, most: int) -> list[int]:
    """What a row adds to the sums of a table of a class."""
    label, spent = row
    cell, steps, weight = spent[number][table]
    columns = [np.array([one]) for one in (cell, int(label == number) << LABEL_BITS, steps)]
    cells, labels, log_odds = (column.astype(np.int32) for column in columns)
    found = row_sums(
        cells.astype(np.int64), labels, log_odds, np.array([weight]), _CELLS, most=most
    )
    numbers: list[int] = found.ravel().tolist()
    return numbers


def told(one: _Row, other: _Row, most: int) -> Fraction:
    """Shares of classes that the replaced row costs, if no class may spend more than they do."""
    num_classes = len(one[1])
    share = max(
        sum(weight**2 for *_, weight in tables) for row in (one, other) for tables in row[1]
    )
    moved = sum(
        (a - b) ** 2
        for number in range(num_classes)
        for table in range(_TABLES)
        for a, b in zip(
            added(one, number, table, most), added(other, number, table, most), strict=True
        )
    )
    return Fraction(moved, 2 * max(share, 1))


@st.composite
def rows_of_classes(draw: st.DrawFn) -> tuple[_Row, _Row]:
    num_classes = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    largest = draw(st.sampled_from([3, 1 << 10, 1 << 29]))

    def row() -> _Row:
        steps = rng.choice([-60_000, -12_000, -7_000, -2_250, 0, 9_000], (num_classes, _TABLES))
        cells = rng.integers(0, _CELLS, (num_classes, _TABLES))
        weights = rng.integers(0, largest, (num_classes, _TABLES))
        spent = np.stack([cells, steps, weights], axis=2).tolist()
        return int(rng.integers(num_classes)), [[tuple(own) for own in part] for part in spent]

    return row(), row()


@given(rows=rows_of_classes())
@settings(max_examples=120)
def test_a_replaced_row_costs_at_most_the_shares_of_two_classes(rows: tuple[_Row, _Row]) -> None:
    """Whatever is predicted, and however both rows divide their shares; without any tolerance."""
    assert told(*rows, most_predicted(len(rows[0][1]))) <= 2


def worst_rows(num_classes: int, most: int) -> tuple[_Row, _Row]:
    """The rows of the proof that are furthest apart: from class 0 to class 1."""
    place = int(np.searchsorted(probabilities(most).predicted, most))
    never, likely, weight = -probabilities().most, place - probabilities().most, 1 << 28
    nothing = [(0, never, 0)] * (_TABLES - 1)

    def row(label: int, other_cell: int) -> _Row:
        # The row's own class is thought impossible, and every other one likely.
        return label, [
            [(0, never, weight), *nothing]
            if number == label
            else [(0 if number < 2 else other_cell, likely, weight), *nothing]
            for number in range(num_classes)
        ]

    return row(0, 0), row(1, 1)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
def test_the_bound_is_reached_whatever_the_number_of_classes(num_classes: int) -> None:
    most = most_predicted(num_classes)
    found = told(*worst_rows(num_classes, most), most)
    assert 2 - 1e-4 < found <= 2


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_the_number_of_two_classes_would_break_the_bound_for_more(num_classes: int) -> None:
    assert told(*worst_rows(num_classes, MOST_PREDICTED), MOST_PREDICTED) > 2.2


@pytest.mark.parametrize("num_classes", [2, 3, 4, 10, 100, 256])
def test_predictions_count_up_to_the_largest_number_that_the_bound_allows(num_classes: int) -> None:
    """1 + 2 c + 2 (K - 1) c^2 <= 2, exactly, and not one step more."""

    def cost(c: int) -> int:
        return _ONE**2 + 2 * c * _ONE + 2 * (num_classes - 1) * c**2

    most = most_predicted(num_classes)
    assert cost(most) <= 2 * _ONE**2 < cost(most + 1)
    table = probabilities(most)
    assert (table.capped <= table.factors).all()
    assert (table.factors <= _ONE).all()
    assert (table.capped <= most).all()


def test_one_set_of_tables_counts_predictions_as_two_classes_do() -> None:
    assert most_predicted(2) == MOST_PREDICTED
    assert math.isclose(MOST_PREDICTED / _ONE, (math.sqrt(3) - 1) / 2, rel_tol=1e-8)
    assert probabilities(MOST_PREDICTED).capped is not probabilities(most_predicted(3)).capped


def sums(weight: np.int64) -> np.ndarray:
    return np.array([int(weight)], np.int64)


def of_classes(labels: float = 0.2, rows: float = 0.25) -> tuple[NoiseShares, list[ClassShares]]:
    whole = NoiseShares(1.0, rng=SeededNoise(1))
    return whole, whole.of_classes(5, label_share=labels, row_share=rows)


def test_classes_take_twice_what_each_may_spend_and_leave_the_rest_to_counts() -> None:
    whole, classes = of_classes()
    assert whole.left == pytest.approx(0.1, abs=1e-9)
    assert all(own.left == pytest.approx(0.45, abs=1e-9) for own in classes)
    whole.release(sums, sensitivity=ROW_SENSITIVITY, share=0.09)
    with pytest.raises(ConfigError, match="is left of the noise budget"):
        whole.release(sums, sensitivity=ROW_SENSITIVITY, share=0.02)
    with pytest.raises(ConfigError, match="is left of the noise budget"):
        whole.of_classes(3, label_share=0.01, row_share=0.0)


def test_more_than_the_whole_budget_is_refused_for_any_number_of_classes() -> None:
    for num_classes in (2, 50):
        with pytest.raises(ConfigError, match="share"):
            NoiseShares(1.0, rng=SeededNoise(1)).of_classes(
                num_classes, label_share=0.3, row_share=0.21
            )
    with pytest.raises(ConfigError, match="num_classes=1"):
        NoiseShares(1.0, rng=SeededNoise(1)).of_classes(1, label_share=0.3, row_share=0.2)


def test_no_class_spends_more_than_its_part() -> None:
    _, (one, other, *_) = of_classes()
    one.release(sums, sensitivity=LABEL_SENSITIVITY, share=0.19)
    with pytest.raises(ConfigError, match="is left of the noise budget"):
        one.release(sums, sensitivity=LABEL_SENSITIVITY, share=0.02)
    # What one has spent is not missing where another one spends.
    other.release(sums, sensitivity=LABEL_SENSITIVITY, share=0.19)


def test_what_is_not_spent_on_labels_is_not_spent_on_rows() -> None:
    _, (one, *_) = of_classes()
    one.begin_rows()
    assert one.left == pytest.approx(0.25, abs=1e-9)
    with pytest.raises(ConfigError, match="is left of the noise budget"):
        one.release(sums, sensitivity=ROW_SENSITIVITY, share=0.26)
    one.release(sums, sensitivity=ROW_SENSITIVITY, share=0.24)
    one.begin_rows()
    assert one.left < 0.011


def test_rows_are_never_released_with_the_noise_of_labels_nor_the_other_way() -> None:
    _, (one, *_) = of_classes()
    with pytest.raises(ConfigError, match="begin_rows"):
        one.release(sums, sensitivity=ROW_SENSITIVITY, share=0.1)
    early = one.for_rows(0.05, lambda most: np.array([most]), sensitivity=LABEL_SENSITIVITY)
    one.begin_rows()
    with pytest.raises(ConfigError, match="begin_rows"):
        early.release(lambda weights: weights, weights=np.array([5]))
    with pytest.raises(ConfigError, match="begin_rows"):
        one.release(sums, sensitivity=LABEL_SENSITIVITY, share=0.1)


@pytest.mark.parametrize("noisy", [0.95, 0.7, 0.2, 0.001])
def test_predictions_start_from_how_frequent_a_class_is(noisy: float) -> None:
    """The typical prediction that changes are computed with stays below that of a likely class."""
    law = law_of_class(noisy, 1e-5)
    assert law.log_odds == pytest.approx(math.log(noisy / (1 - noisy)))
    assert law.rate == min(noisy, 0.6)


def test_a_class_that_noise_hides_is_taken_to_be_as_frequent_as_the_noise() -> None:
    assert law_of_class(-0.01, 0.002).rate == law_of_class(0.0, 0.002).rate == 0.002
    assert law_of_class(1.2, 0.002).mean == 0.999
