"""What a device adds to a sum is a whole number of steps, whatever it computed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tulle.select.auctions import FloatArray
from tulle.select.evaluation.device_terms import TermRange
from tulle.select.evaluation.term_grid import (
    NUM_STEPS,
    square_step,
    squares_on_grid,
    term_step,
    terms_on_grid,
)

LIMITS = TermRange(low=-3.0, high=5.0)


@given(hnp.arrays(np.float64, 6, elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_every_term_is_bounded_even_where_a_computation_went_wrong(terms: FloatArray) -> None:
    with np.errstate(over="ignore"):
        steps = terms_on_grid(terms, LIMITS)
    assert steps.dtype == np.int64
    assert steps.min() >= 0
    assert steps.max() <= NUM_STEPS


@given(hnp.arrays(np.float64, 6, elements=st.floats(-3.0, 5.0)))
def test_terms_are_kept_up_to_half_a_step(terms: FloatArray) -> None:
    back = LIMITS.low + term_step(LIMITS) * terms_on_grid(terms, LIMITS)
    assert np.abs(back - terms).max() <= term_step(LIMITS) * 0.5000001


def test_squares_are_those_of_users_rounded_up() -> None:
    steps = terms_on_grid(np.array([5.0, -3.0, 5.0, 1.0]), LIMITS)
    squares = squares_on_grid(steps, np.array([0, 1, 0, 2]), LIMITS, 2)
    unit = square_step(LIMITS, 2)
    assert squares * unit == pytest.approx([100.0, 9.0, 1.0], abs=unit)
    assert squares[0] == NUM_STEPS
    assert np.all(squares * unit >= np.array([100.0, 9.0, 1.0]) * (1 - 1e-12))


def test_a_square_is_bounded_for_a_user_with_too_many_terms() -> None:
    steps = np.full(9, NUM_STEPS)
    assert squares_on_grid(steps, np.zeros(9, np.int64), LIMITS, 2).tolist() == [NUM_STEPS]
