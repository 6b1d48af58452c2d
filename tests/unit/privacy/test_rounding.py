import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.privacy.rounding import BINARY_NOISE, round_down, round_up

VALUES = st.floats(min_value=1e-200, max_value=1e200)


@given(value=VALUES, num_digits=st.integers(1, 9))
def test_each_side_stays_on_its_side_and_close(value: float, num_digits: int) -> None:
    low, high = round_down(value, num_digits), round_up(value, num_digits)
    assert low <= value <= high
    assert high - low <= 1.0001 * 10.0 ** (1 - num_digits) * value
    assert float(f"{high:.{num_digits}g}") == high


@pytest.mark.parametrize(
    ("value", "up", "down"), [(1.00004, 1.001, 1.0), (0.1 + 0.2, 0.3, 0.3), (0.0, 0.0, 0.0)]
)
def test_four_digits_without_binary_noise(value: float, up: float, down: float) -> None:
    assert round_up(value, 4, slack=BINARY_NOISE) == up
    assert round_down(value, 4, slack=BINARY_NOISE) == down


def test_what_has_no_limit_stays_so() -> None:
    assert round_up(math.inf, 4) == math.inf


def test_slack_forgives_a_little() -> None:
    assert round_up(0.60000001, 4) == 0.6001
    assert round_up(0.60000001, 4, slack=1e-7) == 0.6
