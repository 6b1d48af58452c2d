"""Hiding behind a blanket, of randomized response or of clones: truths, order and refusals."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.accounting.shuffling import (
    Blanket,
    clones_blanket,
    profile_delta,
    profile_epsilon,
    response_blanket,
)
from tulle.errors import ConfigError

# The contour may over-report by up to a thousandth, the exact sum does not.
SLACK = 1 + 1e-3
# What the exact sum counts for the counts that it leaves out.
TAIL = 1e-30

local_epsilons = st.floats(0.05, 9.0)
nums_values = st.none() | st.integers(2, 300)
nums_reports = st.integers(1, 10**7)


def blanket_of(local_epsilon: float, num_values: int | None, num_reports: int) -> Blanket:
    """The blanket of randomized response; without a number of values that of clones."""
    if num_values is None:
        return clones_blanket(local_epsilon, num_reports)
    return response_blanket(local_epsilon, num_values, num_reports)


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
        delta = profile_delta(clones_blanket(local_epsilon, num_reports), float(epsilon))
        assert forth == pytest.approx(back, rel=1e-9, abs=1e-15)
        assert forth * (1 - 1e-9) - 1e-15 <= delta <= forth * SLACK + 1e-15


@given(
    local_epsilons, nums_values, nums_reports, nums_reports, st.floats(0, 0.999), st.floats(0, 1)
)
@settings(max_examples=120)
def test_delta_falls_with_epsilon_and_with_the_number_of_reports(
    local_epsilon: float, num_values: int | None, one: int, other: int, fraction: float, part: float
) -> None:
    epsilons = np.array([part * fraction, fraction]) * local_epsilon
    few, many = (
        profile_delta(blanket_of(local_epsilon, num_values, num_reports), epsilons)
        for num_reports in sorted((one, other))
    )
    assert few[1] <= few[0] * SLACK + TAIL
    assert np.all(many <= few * SLACK + TAIL)


@given(local_epsilons, local_epsilons, nums_values, nums_reports, st.floats(1e-15, 0.5))
@settings(max_examples=60)
def test_epsilon_grows_with_the_local_epsilon_and_stays_below_it(
    one: float, other: float, num_values: int | None, num_reports: int, delta: float
) -> None:
    low, high = sorted((one, other))
    strong, weak = (
        profile_epsilon(blanket_of(local, num_values, num_reports), delta) for local in (low, high)
    )
    assert strong <= weak * SLACK
    assert 0 <= strong <= low
    assert weak <= high


@pytest.mark.parametrize("num_values", [None, 2, 15])
def test_a_single_report_is_not_amplified(num_values: int | None) -> None:
    alone = blanket_of(2.5, num_values, 1)
    assert profile_epsilon(alone, 1e-6) == 2.5
    truth = math.exp(2.5) / (math.exp(2.5) + (num_values or 2) - 1)
    expected = truth * (1 - math.exp(1.0 - 2.5))
    assert profile_delta(alone, 1.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_values", [3, 15, 100])
@pytest.mark.parametrize("local_epsilon", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("num_reports", [20, 300, 10_000])
def test_one_data_set_loses_no_more_than_the_bound(
    num_values: int, local_epsilon: float, num_reports: int
) -> None:
    cell = {"local_epsilon": local_epsilon, "num_values": num_values, "num_reports": num_reports}
    for delta in (0.01, 1e-4, 1e-6):
        epsilon = profile_epsilon(response_blanket(**cell), delta)
        assert blanket_lower_delta(epsilon, **cell) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("num_values", [3, 15, 100])
@pytest.mark.parametrize("local_epsilon", [1.0, 3.0, 5.0])
def test_one_data_set_loses_as_much_at_an_epsilon_smaller_by_a_thousandth(
    num_values: int, local_epsilon: float
) -> None:
    cell = {"local_epsilon": local_epsilon, "num_values": num_values, "num_reports": 10_000}
    epsilon = profile_epsilon(response_blanket(**cell), 1e-6)
    assert blanket_lower_delta(epsilon * 0.999, **cell) > 1e-6


@pytest.mark.parametrize("num_values", [2, 4, 100])
def test_the_blanket_is_tighter_than_clones(num_values: int) -> None:
    responses, clones = (blanket_of(2.0, values, 10_000) for values in (num_values, None))
    assert profile_epsilon(responses, 1e-6) < profile_epsilon(clones, 1e-6)


@given(st.floats(0.05, 6.0), st.integers(1000, 10**8), st.sampled_from([1e-3, 1e-6, 1e-9]))
@settings(max_examples=30)
def test_the_number_is_below_the_published_closed_form(
    local_epsilon: float, num_reports: int, delta: float
) -> None:
    # The theorem is proved for local epsilons up to this one.
    assume(local_epsilon <= math.log(num_reports / (16 * math.log(2 / delta))))
    epsilon = profile_epsilon(clones_blanket(local_epsilon, num_reports), delta)
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
    for num_values in (4, None) if "num_values" not in wrong else (4,):
        cell = {"local_epsilon": 1.0, "num_values": num_values, "num_reports": 100, **wrong}
        with pytest.raises(ConfigError, match=named):
            blanket_of(**cell)


@pytest.mark.parametrize("bad", [-0.1, math.nan])
def test_a_bad_epsilon_or_delta_is_refused(bad: float) -> None:
    blanket = response_blanket(1.0, 4, 100)
    for epsilons in (bad, np.array([0.1, bad])):
        with pytest.raises(ConfigError, match=f"epsilon={bad} must be >= 0"):
            profile_delta(blanket, epsilons)
    for delta in (bad, 1.0):
        with pytest.raises(ConfigError, match=r"must be in \[0, 1\)"):
            profile_epsilon(blanket, delta)
