"""Earnings of a bidder equal an integral over competing bids, and honest bids earn most."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from tulle.errors import ConfigError, DataError
from tulle.quality.bidding import CompetingBids, ExponentialBids, UniformBids, bidding_utility
from tulle.quality.metrics import evaluate_predictions

DENSITIES = {
    "exponential": (ExponentialBids(mean=0.3), lambda c: math.exp(-c / 0.3) / 0.3),
    "uniform": (UniformBids(highest=0.8), lambda c: float(c < 0.8) / 0.8),
}


@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.parametrize("bid", [0.0, 1e-4, 0.2, 0.8, 3.0])
def test_chances_and_prices_are_the_integrals_of_the_density(name: str, bid: float) -> None:
    law, density = DENSITIES[name]
    jumps = [0.8] if bid > 0.8 else None
    won = quad(density, 0, bid, points=jumps)[0]
    paid = quad(lambda c: c * density(c), 0, bid, points=jumps)[0]
    assert law.win_prob(np.array([bid])) == pytest.approx([won], abs=1e-9)
    assert law.expected_price(np.array([bid])) == pytest.approx([paid], abs=1e-9)


def test_the_utility_is_the_mean_of_value_minus_price_where_the_bid_wins() -> None:
    labels, chances, values = np.array([1, 0, 1]), np.array([0.5, 0.2, 0.1]), np.array([2, 3, 1])
    made = bidding_utility(labels, chances, values, UniformBids(highest=2.0))
    competing = np.linspace(0, 2, 200_001)[:-1] + 5e-6
    earned = [
        np.where(competing < v * p, v * y - competing, 0).mean()
        for y, p, v in zip(labels, chances, values, strict=True)
    ]
    assert made.utility.value == pytest.approx(np.mean(earned), abs=1e-5)
    assert made.utility.standard_error == pytest.approx(np.std(earned, ddof=1) / 3**0.5, abs=1e-5)


@pytest.mark.parametrize("law", [None, ExponentialBids(mean=0.02), UniformBids(highest=0.5)])
def test_of_two_predictions_with_one_auc_the_miscalibrated_one_earns_less(
    law: CompetingBids | None,
) -> None:
    rng = np.random.default_rng(0)
    chances = rng.beta(1, 15, 100_000)
    labels = rng.random(100_000) < chances
    right = bidding_utility(labels, chances, competing=law)
    for wrong in (np.sqrt(chances), chances**2, np.minimum(1, 3 * chances)):
        found = bidding_utility(labels, wrong, competing=law)
        metrics = evaluate_predictions(labels, wrong)
        if wrong.max() < 1:
            assert metrics.auc_loss == evaluate_predictions(labels, chances).auc_loss
        gap = right.utility.value - found.utility.value
        assert gap > 0.02 * right.utility.value
        assert found.over_constant < right.over_constant


def test_the_true_chance_is_the_best_bid_of_a_row() -> None:
    labels = np.repeat([0, 1], [70, 30])
    earned = {
        p: bidding_utility(labels, np.full(100, p)).utility.value for p in np.linspace(0, 1, 101)
    }
    assert max(earned, key=lambda p: earned[p]) == pytest.approx(0.3)


def test_the_constant_earns_one_and_the_oracle_all() -> None:
    labels, base_rate = [0, 0, 0, 1], 0.25
    constant = bidding_utility(labels, [base_rate] * 4)
    assert constant.over_constant == pytest.approx(1)
    # With a mean competing bid of r, bidding r earns r / e.
    assert constant.utility.value == pytest.approx(base_rate / math.e)
    assert bidding_utility(labels, labels).share_of_oracle == pytest.approx(1)
    assert 0 < constant.share_of_oracle < 1
    metrics = evaluate_predictions(labels, [base_rate] * 4)
    assert metrics.bidding_over_constant == pytest.approx(1)
    assert metrics.bidding_share_of_oracle == pytest.approx(constant.share_of_oracle)


def test_uniform_competition_above_all_bids_is_the_squared_error() -> None:
    rng = np.random.default_rng(1)
    labels, chances = rng.random(500) < 0.3, rng.random(500)
    made = bidding_utility(labels, chances, competing=UniformBids(highest=1.0))
    squared = np.mean((labels - chances) ** 2)
    assert made.utility.value == pytest.approx((labels.mean() - squared) / 2)


@pytest.mark.parametrize("law", [ExponentialBids, UniformBids])
@pytest.mark.parametrize("number", [0.0, -1.0, math.inf, math.nan])
def test_a_competition_without_positive_bids_is_refused(law: type, number: float) -> None:
    name = "mean" if law is ExponentialBids else "highest"
    with pytest.raises(ConfigError, match=f"{name}="):
        law(**{name: number})


def test_values_that_are_no_amounts_are_refused() -> None:
    for values in ([1.0], ["1", "2"], [1.0, -1.0], [1.0, math.nan]):
        with pytest.raises(DataError, match="values"):
            bidding_utility([0, 1], [0.1, 0.2], values)
    with pytest.raises(DataError, match="have the value 0"):
        bidding_utility([0, 1], [0.1, 0.2], [1.0, 0.0])
