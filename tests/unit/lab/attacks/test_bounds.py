"""What any attacker can do at most, against linear programmes and mechanisms that attain it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from tulle.errors import ConfigError
from tulle.lab.attacks.bounds import guess_ceiling, true_positive_ceilings
from tulle.mechanisms.analytic_gaussian import gaussian_delta

# What the solver takes for equal, 1e-7, makes slimmer sets of rates look empty to it.
EPSILONS = st.just(0.0) | st.floats(1e-5, 8)
DELTAS = st.just(0.0) | st.floats(1e-5, 0.5)


def best_rate(
    epsilon: float, delta: float, objective: list[float], false_positive_rate: float | None = None
) -> float:
    """The largest objective over (true, false) positive rates of both orders of neighbours."""
    grown = math.exp(epsilon)
    # p <= e f + d and f <= e p + d, and the same of 1 - p and 1 - f.
    rows = [[1, -grown], [-grown, 1], [grown, -1], [-1, grown]]
    limits = [delta, delta, grown - 1 + delta, grown - 1 + delta]
    rate = (0, 1) if false_positive_rate is None else (false_positive_rate, false_positive_rate)
    found = optimize.linprog(
        [-weight for weight in objective], A_ub=rows, b_ub=limits, bounds=[(0, 1), rate]
    )
    assert found.status == 0
    return float(-found.fun)


@given(epsilon=EPSILONS, delta=DELTAS)
def test_the_guess_ceiling_is_the_optimum_over_all_attackers(epsilon: float, delta: float) -> None:
    # Right with probability p if the bit is 1, and 1 - f if it is 0.
    expected = 0.5 + best_rate(epsilon, delta, [0.5, -0.5])
    assert guess_ceiling(epsilon, delta) == pytest.approx(expected, abs=1e-7)


@given(epsilon=EPSILONS, delta=DELTAS, rate=st.floats(0, 1))
def test_the_rate_ceiling_is_the_optimum_over_all_attackers(
    epsilon: float, delta: float, rate: float
) -> None:
    expected = best_rate(epsilon, delta, [1, 0], false_positive_rate=rate)
    assert true_positive_ceilings([rate], epsilon, delta)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_randomized_response_attains_the_guess_ceiling(epsilon: float) -> None:
    assert guess_ceiling(epsilon) == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_gaussian_noise_touches_the_rate_ceiling_and_never_exceeds_it(epsilon: float) -> None:
    delta = gaussian_delta(epsilon, noise_multiplier=1.0)
    rates = np.linspace(1e-6, 1 - 1e-6, 20_001)
    of_best_test = stats.norm.sf(stats.norm.isf(rates) - 1)
    assert np.all(of_best_test <= true_positive_ceilings(rates, epsilon, delta) + 1e-12)
    # A guarantee that is 5% too good would be refuted.
    assert np.any(of_best_test > true_positive_ceilings(rates, 0.95 * epsilon, delta))


def test_the_ends_are_chance_and_certainty() -> None:
    assert guess_ceiling(0.0) == 0.5
    assert guess_ceiling(math.inf) == guess_ceiling(1000.0) == guess_ceiling(0.0, 1.0) == 1.0
    rates = np.array([0.0, 0.3, 1.0])
    assert true_positive_ceilings(rates, 0.0) == pytest.approx(rates)
    assert np.array_equal(true_positive_ceilings(rates, 1.0, 1.0), np.ones(3))
    # Without false positives a pure guarantee allows no true ones, however large it is.
    assert np.array_equal(true_positive_ceilings(rates, 1000.0), [0.0, 1.0, 1.0])
    assert np.array_equal(true_positive_ceilings(rates, math.inf), np.ones(3))


@pytest.mark.parametrize(("epsilon", "delta"), [(-0.1, 0.0), (math.nan, 0.0), (1.0, -1.0), (1, 2)])
def test_no_guarantee_at_all_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="must be"):
        guess_ceiling(epsilon, delta)
    with pytest.raises(ConfigError, match="must be"):
        true_positive_ceilings([0.1], epsilon, delta)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_rates_that_are_no_shares_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="false_positive_rates"):
        true_positive_ceilings([0.5, rate], 1.0)
