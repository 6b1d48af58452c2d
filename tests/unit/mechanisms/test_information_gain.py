import math

import mpmath
import pytest

from tulle.errors import ConfigError
from tulle.mechanisms.information_gain import (
    SourceKind,
    check_gain,
    epsilon_for_gain,
    information_gain,
    scopes_gain,
)
from tulle.mechanisms.source_noise import MOST_EPSILON, flip_prob


def mutual_information(num_states: int, epsilon: float) -> float:
    """Of a uniform state and its report, term by term of the joint law, in 40 digits."""
    with mpmath.workdps(40):
        lie = 1 / (mpmath.exp(epsilon) + num_states - 1)
        truth = lie * mpmath.exp(epsilon)
        bits = truth * mpmath.log(truth * num_states, 2)
        return float(bits + (num_states - 1) * lie * mpmath.log(lie * num_states, 2))


@pytest.mark.parametrize("num_states", [2, 3, 165, 2925, 2**32 - 1])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0, 14.0])
def test_the_gain_is_the_mutual_information(num_states: int, epsilon: float) -> None:
    expected = mutual_information(num_states, epsilon)
    assert information_gain(num_states, epsilon) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_published_gains_are_met_to_all_digits() -> None:
    # Vectors of the browsers' specification.
    assert information_gain(2925, 14) == 11.461727965384876
    assert information_gain(3, 14) == 1.584926511508231
    assert information_gain(1, 14) == 0.0


def test_published_epsilons_are_met_to_all_digits() -> None:
    assert epsilon_for_gain(5545, 6.5) == pytest.approx(9.028709123768687, abs=4e-15)
    assert epsilon_for_gain(84121, 11.5) == pytest.approx(12.45087042924698, abs=4e-15)


@pytest.mark.parametrize(("num_states", "most_bits"), [(5545, 6.5), (84121, 11.5), (100, 0.01)])
def test_the_epsilon_found_is_the_largest_that_fits(num_states: int, most_bits: float) -> None:
    epsilon = epsilon_for_gain(num_states, most_bits)
    assert information_gain(num_states, epsilon) <= most_bits
    assert information_gain(num_states, epsilon + 1e-9) > most_bits


def test_few_states_keep_the_largest_epsilon() -> None:
    assert epsilon_for_gain(2925, 11.5) == MOST_EPSILON
    with pytest.raises(ConfigError, match="most_bits=0"):
        epsilon_for_gain(2925, 0)


def test_the_gain_rises_with_epsilon_to_the_bits_of_the_state() -> None:
    gains = [information_gain(2925, epsilon) for epsilon in range(1, 15)]
    assert gains == sorted(gains)
    assert information_gain(2925, 14) < math.log2(2925)
    assert information_gain(2925, 0) == pytest.approx(0, abs=1e-12)


def test_a_source_above_the_limit_is_refused_with_the_epsilon_that_fits() -> None:
    assert check_gain(2925, 14, SourceKind.NAVIGATION) == pytest.approx(11.4617, abs=1e-4)
    with pytest.raises(ConfigError, match=r"event sources may tell 6.5; use epsilon <= 9.02871"):
        check_gain(5545, 14, SourceKind.EVENT)


def test_scopes_count_the_states_of_all_other_scopes() -> None:
    assert scopes_gain(2925, max_event_states=3, scope_limit=1) == math.log2(2925)
    assert scopes_gain(2925, max_event_states=3, scope_limit=20) == math.log2(2925 + 3 * 19)
    assert SourceKind.NAVIGATION.most_scoped_bits == 11.55
    assert SourceKind.EVENT.most_scoped_bits == 6.5


@pytest.mark.parametrize(
    ("num_states", "percent"), [(2925, 0.24263), (969, 0.08051), (165, 0.01372), (3, 2.49e-4)]
)
def test_flip_chances_are_the_published_ones(num_states: int, percent: float) -> None:
    assert 100 * flip_prob(num_states, 14) == pytest.approx(percent, rel=2e-3)


def test_an_epsilon_beyond_the_browsers_limit_is_refused() -> None:
    for epsilon in (14.1, -1, math.nan):
        with pytest.raises(ConfigError, match="epsilon"):
            flip_prob(3, epsilon)
