"""Randomized response behind its blanket: order, limits and refusals."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.accounting.shuffling import profile_delta, profile_epsilon, response_blanket
from tulle.errors import ConfigError

# The contour may over-report by up to a thousandth, the exact sum does not.
SLACK = 1 + 1e-3
# What the exact sum counts for the counts that it leaves out.
TAIL = 1e-30

local_epsilons = st.floats(0.05, 9.0)
nums_values = st.integers(2, 300)
nums_reports = st.integers(1, 10**7)
fractions = st.floats(0.0, 0.999)


def blanket_delta(epsilon: Any, **cell: Any) -> Any:
    return profile_delta(response_blanket(**cell), epsilon)


def blanket_epsilon(delta: float, **cell: Any) -> float:
    return profile_epsilon(response_blanket(**cell), delta)


def blanket_lower_delta(
    epsilon: float, *, local_epsilon: float, num_values: int, num_reports: int
) -> float:
    """The truth for one data set: all other units hold a third value (num_values >= 3)."""
    odds, grown, lies = math.exp(local_epsilon), math.exp(epsilon), num_values - 2
    total = odds + num_values - 1
    up, down = odds - grown, 1 - grown * odds
    drift = (1 - grown) * lies / (total - 2)
    both = np.arange(1, num_reports + 1)
    offset = down * both + drift * (num_reports - both)
    least = np.floor(-offset / (up - down)) + 1
    excess = (up - down) * both / 2 * stats.binom.sf(least - 2, both - 1, 0.5)
    excess += offset * stats.binom.sf(least - 1, both, 0.5)
    return float(stats.binom.pmf(both, num_reports, 2 / total) @ excess) / num_reports


@given(local_epsilons, nums_values, nums_reports, fractions, st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_delta_falls_with_epsilon(
    local_epsilon: float, num_values: int, num_reports: int, fraction: float, part: float
) -> None:
    large = fraction * local_epsilon
    deltas = blanket_delta(
        np.array([part * large, large]),
        local_epsilon=local_epsilon,
        num_values=num_values,
        num_reports=num_reports,
    )
    assert deltas[1] <= deltas[0] * SLACK + TAIL


@given(local_epsilons, nums_values, nums_reports, nums_reports, fractions)
@settings(max_examples=60)
def test_delta_falls_with_the_number_of_reports(
    local_epsilon: float, num_values: int, one: int, other: int, fraction: float
) -> None:
    few, many = (
        blanket_delta(
            fraction * local_epsilon,
            local_epsilon=local_epsilon,
            num_values=num_values,
            num_reports=num_reports,
        )
        for num_reports in sorted((one, other))
    )
    assert many <= few * SLACK + TAIL


@given(local_epsilons, local_epsilons, nums_values, nums_reports)
@settings(max_examples=30)
def test_epsilon_grows_with_the_local_epsilon(
    one: float, other: float, num_values: int, num_reports: int
) -> None:
    weak, strong = (
        blanket_epsilon(1e-6, local_epsilon=local, num_values=num_values, num_reports=num_reports)
        for local in sorted((one, other), reverse=True)
    )
    assert strong <= weak * SLACK


@given(local_epsilons, nums_values, nums_reports, st.floats(1e-15, 0.5))
@settings(max_examples=30)
def test_epsilon_is_never_above_the_local_epsilon(
    local_epsilon: float, num_values: int, num_reports: int, delta: float
) -> None:
    epsilon = blanket_epsilon(
        delta, local_epsilon=local_epsilon, num_values=num_values, num_reports=num_reports
    )
    assert 0 <= epsilon <= local_epsilon


@pytest.mark.parametrize("num_values", [2, 15])
def test_a_single_report_is_not_amplified(num_values: int) -> None:
    settings_of_one = {"local_epsilon": 2.5, "num_values": num_values, "num_reports": 1}
    assert blanket_epsilon(1e-6, **settings_of_one) == 2.5
    truth = math.exp(2.5) / (math.exp(2.5) + num_values - 1)
    expected = truth * (1 - math.exp(1.0 - 2.5))
    assert blanket_delta(1.0, **settings_of_one) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_values", [3, 15, 100])
@pytest.mark.parametrize("local_epsilon", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("num_reports", [20, 300, 10_000])
def test_one_data_set_loses_no_more_than_the_bound(
    num_values: int, local_epsilon: float, num_reports: int
) -> None:
    cell = {"local_epsilon": local_epsilon, "num_values": num_values, "num_reports": num_reports}
    for delta in (0.01, 1e-4, 1e-6):
        epsilon = blanket_epsilon(delta, **cell)
        assert blanket_lower_delta(epsilon, **cell) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("num_values", [3, 15, 100])
@pytest.mark.parametrize("local_epsilon", [1.0, 3.0, 5.0])
def test_one_data_set_loses_as_much_at_an_epsilon_smaller_by_a_thousandth(
    num_values: int, local_epsilon: float
) -> None:
    cell = {"local_epsilon": local_epsilon, "num_values": num_values, "num_reports": 10_000}
    epsilon = blanket_epsilon(1e-6, **cell)
    assert blanket_lower_delta(epsilon * 0.999, **cell) > 1e-6


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"local_epsilon": 0.0}, "local_epsilon=0.0 must be a finite number > 0"),
        ({"local_epsilon": -1e4}, "local_epsilon=-10000.0"),
        ({"local_epsilon": math.nan}, "local_epsilon=nan"),
        ({"local_epsilon": math.inf}, "local_epsilon=inf"),
        ({"num_values": 1}, "num_values=1 must be a whole number >= 2"),
        ({"num_values": 2.5}, "num_values=2.5"),
        ({"num_reports": 0}, "num_reports=0 must be a whole number >= 1"),
        ({"num_reports": True}, "num_reports=True"),
        ({"num_reports": math.nan}, "num_reports=nan"),
    ],
)
def test_bad_settings_are_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    cell: dict[str, Any] = {"local_epsilon": 1.0, "num_values": 4, "num_reports": 100, **wrong}
    with pytest.raises(ConfigError, match=named):
        blanket_delta(0.1, **cell)
    with pytest.raises(ConfigError, match=named):
        blanket_epsilon(1e-6, **cell)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_a_bad_epsilon_is_refused(epsilon: float) -> None:
    cell = {"local_epsilon": 1.0, "num_values": 4, "num_reports": 100}
    with pytest.raises(ConfigError, match=f"epsilon={epsilon} must be >= 0"):
        blanket_delta(epsilon, **cell)
    with pytest.raises(ConfigError, match=f"epsilon={epsilon} must be >= 0"):
        blanket_delta(np.array([0.1, epsilon]), **cell)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_a_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match=r"must be in \[0, 1\)"):
        blanket_epsilon(delta, local_epsilon=1.0, num_values=4, num_reports=100)
