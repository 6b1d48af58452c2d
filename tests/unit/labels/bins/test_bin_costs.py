"""Costs of bins from prefix sums are those of the definition."""

import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.labels.bins.bin_costs import POISSON, SQUARED, BinCosts, BregmanLoss

LABELS = np.array([0.0, 1.0, 2.5, 4.0, 9.0])
PRIOR = np.array([0.4, 0.0, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("start", range(5))
def test_a_squared_bin_costs_what_the_definition_says(start: int) -> None:
    epsilon = 1.7
    costs = BinCosts.of_prior(LABELS, PRIOR, epsilon, SQUARED)
    for end in range(start + 1, 6):
        weights = PRIOR.copy()
        weights[start:end] *= math.exp(epsilon)
        value = weights @ LABELS / weights.sum()
        cost = weights @ (LABELS - value) ** 2
        assert costs.of_bins(slice(start, start + 1), end)[0] == pytest.approx(cost, rel=1e-12)
        assert costs.bin_values(slice(start, start + 1), end)[0] == pytest.approx(value)


@pytest.mark.parametrize("start", range(5))
def test_a_poisson_bin_costs_what_the_definition_says(start: int) -> None:
    epsilon = 1.7
    costs = BinCosts.of_prior(LABELS, PRIOR, epsilon, POISSON)
    for end in range(start + 1, 6):
        weights = PRIOR.copy()
        weights[start:end] *= math.exp(epsilon)
        value = weights @ LABELS / weights.sum()
        logs = np.where(LABELS > 0, np.log(np.maximum(LABELS, 1e-300) / value), 0.0)
        cost = weights @ (LABELS * logs - LABELS + value)
        assert costs.of_bins(slice(start, start + 1), end)[0] == pytest.approx(cost, rel=1e-12)


def test_a_line_added_to_phi_changes_nothing() -> None:
    tilted = BregmanLoss(name="tilted", phi=lambda x: x**2 + 1000 * x - 7)
    plain, other = (BinCosts.of_prior(LABELS, PRIOR, 2.0, loss) for loss in (SQUARED, tilted))
    starts = slice(0, 5)
    np.testing.assert_allclose(plain.of_bins(starts, 5), other.of_bins(starts, 5), rtol=1e-9)


@pytest.mark.parametrize(
    ("loss", "lowest"),
    [
        (POISSON, -1.0),
        (BregmanLoss(name="log", phi=lambda x: -np.log(x)), 0.0),
        (BregmanLoss(name="scalar", phi=lambda x: x.sum()), 0.0),
    ],
)
def test_a_loss_that_is_not_defined_for_all_labels_is_refused(
    loss: BregmanLoss, lowest: float
) -> None:
    with pytest.raises(ConfigError, match=loss.name):
        BinCosts.of_prior(np.array([lowest, 1.0]), np.array([0.5, 0.5]), 1.0, loss)


def test_a_loss_needs_a_name() -> None:
    with pytest.raises(ConfigError):
        BregmanLoss(name=" ", phi=np.square)
