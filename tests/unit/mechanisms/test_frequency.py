import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.frequency import (
    SupportProbs,
    check_held_values,
    count_reports,
    debias_counts,
    variance_per_report,
)


@dataclasses.dataclass(frozen=True)
class _Config:
    num_values: int = 3
    support_probs: SupportProbs = SupportProbs(  # noqa: RUF009
        if_held=Fraction(3, 4), if_not_held=Fraction(1, 8)
    )


def test_expected_report_counts_give_back_the_true_counts() -> None:
    true_counts = np.array([100, 40, 20])
    expected = true_counts * 0.75 + (160 - true_counts) * 0.125
    np.testing.assert_allclose(debias_counts(expected, 160, _Config()), true_counts)


def test_the_variance_mixes_units_that_hold_the_value_and_units_that_do_not() -> None:
    held, not_held = 3 / 16 / 0.625**2, 7 / 64 / 0.625**2
    assert variance_per_report(_Config(), frequency=1.0) == pytest.approx(held)
    assert variance_per_report(_Config()) == pytest.approx(not_held)
    assert variance_per_report(_Config(), frequency=0.25) == pytest.approx(
        0.25 * held + 0.75 * not_held
    )


def test_a_frequency_outside_the_unit_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"frequency=1\.5"):
        variance_per_report(_Config(), frequency=1.5)


def test_counts_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(DataError, match="num_values=3"):
        debias_counts([1, 2], 3, _Config())


def test_values_and_rows_of_marks_are_counted() -> None:
    assert count_reports(np.array([0, 2, 2]), _Config()).tolist() == [1, 0, 2]
    marks = np.array([[True, True, False], [False, True, False]])
    assert count_reports(marks, _Config()).tolist() == [1, 2, 0]


def test_marks_with_a_missing_column_are_refused() -> None:
    with pytest.raises(DataError, match="num_values=3 columns"):
        count_reports(np.zeros((4, 2), np.bool_), _Config())


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.uint64])
def test_every_integer_type_is_taken(dtype: type) -> None:
    checked = check_held_values(np.array([0, 1, 1], dtype), 2)
    assert checked.dtype == np.int64
    assert checked.tolist() == [0, 1, 1]
