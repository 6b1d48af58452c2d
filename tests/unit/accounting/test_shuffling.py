"""The engine under both shuffle bounds: two routes to one number, and its limits."""

import math

import numpy as np
import pytest

from tulle.accounting import shuffling
from tulle.accounting.shuffling import Blanket, profile_delta, profile_epsilon, response_blanket
from tulle.errors import ConfigError


def summed_delta(blanket: Blanket, epsilon: float) -> float:
    """The defining expectation, term by term over all counts."""
    count, prob, rest = blanket.num_reports, blanket.value_prob, blanket.rest_prob
    none = 1 - 2 * prob - rest
    lie = math.exp(-blanket.local_epsilon)
    gain, loss, drift = 1 - math.exp(epsilon) * lie, lie - math.exp(epsilon), 1 - math.exp(epsilon)
    total = 0.0
    for a in range(count + 1):
        for b in range(count + 1 - a):
            for r in range(count + 1 - a - b):
                value = a * gain + b * loss + r * lie * drift
                if value > 0:
                    ways = math.comb(count, a) * math.comb(count - a, b)
                    ways *= math.comb(count - a - b, r)
                    total += value * ways * prob ** (a + b) * rest**r * none ** (count - a - b - r)
    return blanket.truth_prob * total / (count * prob)


@pytest.mark.parametrize(
    ("local_epsilon", "num_values"), [(0.3, 2), (1.0, 3), (1.0, 40), (3.0, 5), (6.0, 2)]
)
@pytest.mark.parametrize("num_reports", [2, 7, 12])
def test_few_reports_are_summed_exactly(
    local_epsilon: float, num_values: int, num_reports: int
) -> None:
    blanket = response_blanket(local_epsilon, num_values, num_reports)
    for epsilon in np.array([0.0, 0.05, 0.4, 0.8, 0.97]) * local_epsilon:
        expected = summed_delta(blanket, float(epsilon))
        assert profile_delta(blanket, float(epsilon)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("local_epsilon", "num_values", "num_reports"),
    [(1.0, 2, 70), (1.0, 5, 100), (0.1, 3, 90), (5.0, 4, 2800), (8.0, 15, 50_000), (3.0, 90, 2000)],
)
def test_the_contour_is_above_the_exact_sum_by_less_than_a_thousandth(
    local_epsilon: float, num_values: int, num_reports: int
) -> None:
    blanket = response_blanket(local_epsilon, num_values, num_reports)
    for fraction in (0.0, 0.01, 0.1, 0.3, 0.5, 0.7):
        atoms = shuffling._atoms(local_epsilon, fraction * local_epsilon)
        exact = shuffling._log_exact(blanket, atoms)
        if exact > math.log(1e-30):
            contour = shuffling._log_contour(blanket, atoms)
            # The exact sum already has an allowance of 2e-11 for its rounding.
            assert -2e-11 <= contour - exact < 1e-3


@pytest.mark.parametrize("num_reports", [1, 2, 100, 101, 10**7, 10**12])
@pytest.mark.parametrize("num_values", [2, 15, 10**6])
@pytest.mark.parametrize("local_epsilon", [1e-6, 0.3, 10.0, 299.0, 900.0])
def test_extreme_settings_give_finite_falling_deltas(
    local_epsilon: float, num_values: int, num_reports: int
) -> None:
    blanket = response_blanket(local_epsilon, num_values, num_reports)
    fractions = np.array([0, 1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, 1, 2])
    deltas = profile_delta(blanket, fractions * local_epsilon)
    assert np.all((deltas >= 0) & (deltas <= 1))
    assert np.all(np.diff(deltas) <= 1e-3 * deltas[:-1])
    assert np.all(deltas[:-2] > 0), "a delta below local_epsilon is never zero"


def test_an_array_is_answered_like_its_entries() -> None:
    blanket = response_blanket(2.0, 4, 5000)
    epsilons = np.array([[0.0, 0.1], [0.2, 2.5]])
    deltas = profile_delta(blanket, epsilons)
    assert deltas.shape == (2, 2)
    assert deltas.tolist() == [[profile_delta(blanket, e) for e in row] for row in epsilons]


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-6, 1e-12, 1e-60, 0.0])
def test_the_epsilon_is_proved_and_a_smaller_one_is_not(delta: float) -> None:
    blanket = response_blanket(3.0, 15, 20_000)
    epsilon = profile_epsilon(blanket, delta)
    assert profile_delta(blanket, epsilon) <= delta
    if epsilon > 0:
        assert profile_delta(blanket, epsilon * (1 - 1e-6)) > delta
    assert (epsilon == blanket.local_epsilon) == (delta == 0)


@pytest.mark.parametrize("epsilon", [-1e-9, -3.0, math.nan])
def test_an_epsilon_below_zero_is_refused_with_what_to_use(epsilon: float) -> None:
    with pytest.raises(ConfigError, match=r"must be >= 0; below 0 use\s+delta\(-epsilon\)"):
        profile_delta(response_blanket(2.0, 4, 50), epsilon)
