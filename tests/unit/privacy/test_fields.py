"""Checks of single values that all packages share."""

import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.privacy.fields import check_delta, check_epsilon, check_prob

NO_NUMBERS = (True, "1", None, math.nan)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, *NO_NUMBERS])
def test_an_epsilon_is_finite_and_above_zero(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^epsilon=.* must be > 0 and finite, e\.g\. 1\.0\.$"):
        check_epsilon(value)


@pytest.mark.parametrize("value", [-1e-9, 1.0, math.inf, *NO_NUMBERS])
def test_a_delta_is_a_probability_below_one(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^delta=.* must be in \[0, 1\); choose e\.g\. 1e-7\.$"):
        check_delta(value)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, *NO_NUMBERS])
def test_a_probability_is_neither_zero_nor_one(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^base_rate=.* must be in \(0, 1\), e\.g\. 0\.05\.$"):
        check_prob("base_rate", value)


def test_numbers_in_range_come_back_as_floats() -> None:
    assert check_epsilon(2) == 2.0
    assert check_epsilon(np.float32(0.5), "local_epsilon") == 0.5
    assert check_delta(0) == 0.0
    assert check_prob("confidence", 0.95, example=0.95) == 0.95
    assert isinstance(check_epsilon(2), float)
