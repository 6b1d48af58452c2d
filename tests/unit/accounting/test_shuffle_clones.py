"""Hiding among clones: both directions, the closed form, order and refusals."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.accounting.shuffling import (
    clones_blanket,
    profile_delta,
    profile_epsilon,
    response_blanket,
)
from tulle.errors import ConfigError

# What the contour over-reports at most, and the exact sum for what it leaves out.
SLACK, TAIL = 1 + 1e-3, 1e-30

local_epsilons = st.floats(0.05, 9.0)
nums_reports = st.integers(1, 10**7)


def clones_delta(epsilon: Any, **cell: Any) -> Any:
    return profile_delta(clones_blanket(**cell), epsilon)


def clones_epsilon(delta: float, **cell: Any) -> float:
    return profile_epsilon(clones_blanket(**cell), delta)


def closed_form(delta: float, local_epsilon: float, num_reports: int) -> float:
    """Feldman, McMillan, Talwar 2021, Theorem 3.1; where it holds, it is several times looser."""
    odds = math.exp(local_epsilon)
    spread = 8 * math.sqrt(odds * math.log(4 / delta) / num_reports) + 8 * odds / num_reports
    return min(local_epsilon, math.log1p(math.tanh(local_epsilon / 2) * spread))


def counted_deltas(epsilon: float, local_epsilon: float, num_reports: int) -> tuple[float, float]:
    """Both hockey sticks of (A+D, C-A+1-D) as FMT21 define it, over every C and A."""
    truth = 1 / (1 + math.exp(-local_epsilon))
    forth = back = 0.0
    for clones in range(num_reports):
        weight = stats.binom.pmf(clones, num_reports - 1, math.exp(-local_epsilon))
        halves = np.concatenate(([0.0], stats.binom.pmf(np.arange(clones + 1), clones, 0.5), [0.0]))
        with_one, with_zero = halves[:-1], halves[1:]
        one = truth * with_one + (1 - truth) * with_zero
        other = (1 - truth) * with_one + truth * with_zero
        forth += weight * np.maximum(one - math.exp(epsilon) * other, 0).sum()
        back += weight * np.maximum(other - math.exp(epsilon) * one, 0).sum()
    return forth, back


@pytest.mark.parametrize("local_epsilon", [0.4, 1.0, 4.0])
@pytest.mark.parametrize("num_reports", [1, 2, 9, 60, 400])
def test_the_profile_is_that_of_the_counted_pair_in_both_directions(
    local_epsilon: float, num_reports: int
) -> None:
    for epsilon in np.array([0.0, 0.1, 0.3, 0.7]) * local_epsilon:
        forth, back = counted_deltas(float(epsilon), local_epsilon, num_reports)
        delta = clones_delta(float(epsilon), local_epsilon=local_epsilon, num_reports=num_reports)
        assert forth == pytest.approx(back, rel=1e-9, abs=1e-15)
        assert forth * (1 - 1e-9) - 1e-15 <= delta <= forth * SLACK + 1e-15


@given(local_epsilons, nums_reports, nums_reports, st.floats(0, 0.999), st.floats(0, 1))
@settings(max_examples=60)
def test_delta_falls_with_epsilon_and_with_the_number_of_reports(
    local_epsilon: float, one: int, other: int, fraction: float, part: float
) -> None:
    epsilons = np.array([part * fraction, fraction]) * local_epsilon
    few, many = (
        clones_delta(epsilons, local_epsilon=local_epsilon, num_reports=num_reports)
        for num_reports in sorted((one, other))
    )
    assert few[1] <= few[0] * SLACK + TAIL
    assert np.all(many <= few * SLACK + TAIL)


@given(local_epsilons, local_epsilons, nums_reports)
@settings(max_examples=30)
def test_epsilon_grows_with_the_local_epsilon_and_stays_below_it(
    one: float, other: float, num_reports: int
) -> None:
    low, high = sorted((one, other))
    strong = clones_epsilon(1e-6, local_epsilon=low, num_reports=num_reports)
    weak = clones_epsilon(1e-6, local_epsilon=high, num_reports=num_reports)
    assert strong <= weak * SLACK
    assert strong <= low
    assert weak <= high


def test_a_single_report_is_not_amplified() -> None:
    assert clones_epsilon(1e-6, local_epsilon=2.5, num_reports=1) == 2.5


@pytest.mark.parametrize("num_values", [2, 4, 100])
def test_the_blanket_is_tighter_than_clones(num_values: int) -> None:
    cell = {"local_epsilon": 2.0, "num_reports": 10_000}
    blanket = response_blanket(num_values=num_values, **cell)
    assert profile_epsilon(blanket, 1e-6) < clones_epsilon(1e-6, **cell)


@given(st.floats(0.05, 6.0), st.integers(1000, 10**8), st.sampled_from([1e-3, 1e-6, 1e-9]))
@settings(max_examples=30)
def test_the_number_is_below_the_published_closed_form(
    local_epsilon: float, num_reports: int, delta: float
) -> None:
    # The theorem is proved for local epsilons up to this one.
    assume(local_epsilon <= math.log(num_reports / (16 * math.log(2 / delta))))
    epsilon = clones_epsilon(delta, local_epsilon=local_epsilon, num_reports=num_reports)
    assert epsilon <= closed_form(delta, local_epsilon, num_reports)


def test_the_closed_form_is_the_theorem_and_below_the_authors_program() -> None:
    """The program prints 0.5378040242374512: it has a larger factor than Theorem 3.1."""
    odds, delta, num_reports = math.exp(4.0), 1e-6, 10**5
    spread = 8 * math.sqrt(odds * math.log(4 / delta) / num_reports) + 8 * odds / num_reports
    factor = (1 - 1 / odds) / (1 + 1 / (odds * (1 + spread)))
    assert math.log1p(factor * spread) == pytest.approx(0.5378040242374512, abs=1e-15)
    ours = closed_form(delta, local_epsilon=4.0, num_reports=num_reports)
    assert ours == pytest.approx(0.5346339916517077, abs=1e-15)


@pytest.mark.parametrize(
    ("local_epsilon", "num_reports", "named"),
    [
        (0.0, 10, "local_epsilon=0.0"),
        (math.nan, 10, "local_epsilon=nan"),
        (1.0, 0, "num_reports=0"),
        (1.0, 2.0, "num_reports=2.0"),
    ],
)
def test_bad_settings_are_refused_by_name(
    local_epsilon: float, num_reports: int, named: str
) -> None:
    cell = {"local_epsilon": local_epsilon, "num_reports": num_reports}
    for refused in (clones_delta, clones_epsilon):
        with pytest.raises(ConfigError, match=named):
            refused(0.5, **cell)
