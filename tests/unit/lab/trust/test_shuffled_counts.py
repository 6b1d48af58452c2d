"""The noise of one shuffled report: as little as the crowd allows, and no less."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tulle.accounting.accountant import pld_epsilon
from tulle.lab.trust.shuffled_counts import ShuffledResponseConfig, largest_local_epsilon
from tulle.privacy.units import Adjacency


def exact_delta(epsilon: float, local_epsilon: float, num_reports: int) -> float:
    """Delta of shuffled bits: the worst of all neighbouring numbers of ones, by their laws."""
    truth = 1 / (1 + math.exp(-local_epsilon))

    def law(num_ones: int) -> np.ndarray:
        zeros = num_reports - num_ones
        return np.convolve(
            stats.binom.pmf(np.arange(num_ones + 1), num_ones, truth),
            stats.binom.pmf(np.arange(zeros + 1), zeros, 1 - truth),
        )

    laws = [law(num_ones) for num_ones in range(num_reports + 1)]
    pairs = [pair for a, b in itertools.pairwise(laws) for pair in ((a, b), (b, a))]
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in pairs)


@pytest.mark.parametrize("num_reports", [5, 40, 300])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_shuffled_bits_are_private_for_all_data(num_reports: int, epsilon: float) -> None:
    local_epsilon = largest_local_epsilon(epsilon, 1e-4, num_reports=num_reports)
    assert exact_delta(epsilon, local_epsilon, num_reports) <= 1e-4
    # A check that cannot fail proves nothing: twice the epsilon of a report is too much.
    assert exact_delta(epsilon, 2 * local_epsilon, num_reports) > 1e-4


def test_a_shuffled_report_may_say_much_more_than_the_release() -> None:
    config = ShuffledResponseConfig(
        epsilon=0.5, delta=1e-6, num_users=10_000, min_honest_users=10_000
    )
    assert config.local_epsilon > 3
    assert pld_epsilon(config.event(), 1e-6, Adjacency.REPLACE) <= 0.5


@pytest.mark.parametrize("num_values", [2, 20])
def test_the_local_epsilon_is_the_largest_that_fits(num_values: int) -> None:
    config = ShuffledResponseConfig(
        epsilon=0.5, delta=1e-6, num_users=5_000, min_honest_users=2_000, num_values=num_values
    )
    bolder = dataclasses.replace(
        config.event(),
        event=dataclasses.replace(config.event().event, epsilon=1.001 * config.local_epsilon),
    )
    assert pld_epsilon(config.event(), 1e-6, Adjacency.REPLACE) <= 0.5
    assert pld_epsilon(bolder, 1e-6, Adjacency.REPLACE) > 0.5


def test_one_user_cannot_hide_in_a_crowd() -> None:
    config = ShuffledResponseConfig(epsilon=0.5, delta=1e-6, num_users=50, min_honest_users=1)
    assert config.local_epsilon == 0.5


def test_an_epsilon_beyond_all_sense_needs_no_crowd() -> None:
    config = ShuffledResponseConfig(epsilon=50.0, delta=1e-6, num_users=100, min_honest_users=100)
    assert config.local_epsilon == pytest.approx(50.0)
