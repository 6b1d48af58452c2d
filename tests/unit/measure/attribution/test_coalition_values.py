"""Values of players against all orders of players, and the axioms that fix them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.measure.attribution.coalition_values import CoalitionValue, coalition_values

SHAPLEY, REMOVAL = CoalitionValue.SHAPLEY, CoalitionValue.REMOVAL
Worths = NDArray[np.float64]


def average_over_all_orders(worths: Worths, num_players: int) -> list[float]:
    totals = [0.0] * num_players
    orders = list(itertools.permutations(range(num_players)))
    for order in orders:
        before = 0
        for player in order:
            totals[player] += worths[before | 1 << player] - worths[before]
            before |= 1 << player
    return [total / len(orders) for total in totals]


def random_worths(seed: int, num_players: int) -> Worths:
    return np.random.default_rng(seed).normal(size=1 << num_players)


@pytest.mark.parametrize("num_players", [1, 2, 3, 5, 6])
def test_shapley_values_are_averages_over_all_orders(num_players: int) -> None:
    worths = random_worths(3, num_players)
    expected = average_over_all_orders(worths, num_players)
    assert coalition_values(worths, SHAPLEY) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("num_players", [1, 2, 4])
def test_the_removal_value_is_what_is_lost_without_the_player(num_players: int) -> None:
    worths = random_worths(4, num_players)
    everyone = (1 << num_players) - 1
    expected = [worths[everyone] - worths[everyone ^ 1 << i] for i in range(num_players)]
    assert coalition_values(worths, REMOVAL) == pytest.approx(expected, abs=1e-12)


@given(seed=st.integers(0, 2**32), num_players=st.integers(1, 12))
def test_shapley_values_add_up_to_the_worth_of_all(seed: int, num_players: int) -> None:
    worths = random_worths(seed, num_players)
    assert coalition_values(worths, SHAPLEY).sum() == pytest.approx(worths[-1] - worths[0])


@given(seed=st.integers(0, 2**32), value=st.sampled_from(CoalitionValue))
def test_a_player_who_never_adds_anything_is_worth_nothing(
    seed: int, value: CoalitionValue
) -> None:
    without = random_worths(seed, 4)
    sets = np.arange(32)
    # Player 2 joins: the worth is that of the other four.
    others = (sets & 0b00011) | (sets >> 1 & 0b01100)
    assert coalition_values(without[others], value)[2] == pytest.approx(0, abs=1e-12)
    kept = coalition_values(without[others], value)[[0, 1, 3, 4]]
    assert kept == pytest.approx(coalition_values(without, value))


@given(seed=st.integers(0, 2**32), value=st.sampled_from(CoalitionValue))
def test_players_who_add_the_same_are_worth_the_same(seed: int, value: CoalitionValue) -> None:
    worths = random_worths(seed, 4)
    sets = np.arange(16)
    swapped = (sets & 0b1001) | (sets >> 1 & 0b0010) | (sets << 1 & 0b0100)
    values = coalition_values(worths + worths[swapped], value)
    assert values[1] == pytest.approx(values[2])


def test_many_games_are_valued_at_once() -> None:
    games = np.stack([random_worths(seed, 3) for seed in range(5)])
    together = coalition_values(games, SHAPLEY)
    assert together == pytest.approx(np.stack([coalition_values(g, SHAPLEY) for g in games]))


@pytest.mark.parametrize("num_sets", [1, 3, 6])
def test_worths_that_are_not_of_all_sets_are_refused(num_sets: int) -> None:
    with pytest.raises(ConfigError, match="2\\^players"):
        coalition_values(np.zeros(num_sets), SHAPLEY)
