"""The report of incentives: its numbers, its findings and their ways out."""

import dataclasses
import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray
from tulle.select.billing.bid_shading import PricedSelection
from tulle.select.billing.incentives import (
    IncentiveReport,
    Severity,
    overpaid_share,
    report_incentives,
)
from tulle.select.billing.prices import PricingRule, price_candidates
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.shortlists import Cutoff
from unit.select.billing.small_auctions import (
    auctions_of,
    calibrated_market,
    random_auctions,
    random_clicks,
    rows_of,
)

SECOND, PER_CLICK = PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK


def favourite_chances(auctions: Auctions, device: DeviceClicks) -> FloatArray:
    """A device that always shows its favourite."""
    probs = np.zeros(auctions.num_candidates)
    scores = device.scores(auctions)
    for places in rows_of(auctions):
        probs[max(places, key=lambda p: scores[p])] = 1
    return probs


def report_of(
    epsilon: float, rule: PricingRule, *, gamma: float = 1.0, reserve: float = 0.0
) -> IncentiveReport:
    auctions, device = calibrated_market(1500, 8, seed=7)
    mechanism = FloorMechanism(epsilon=epsilon, shortlist=Cutoff(gamma=gamma))
    settings = PricedSelection(mechanism=mechanism, rule=rule, reserve=reserve)
    return report_incentives(auctions, device, settings)


def severities(report: IncentiveReport) -> dict[str, Severity]:
    return {finding.topic: finding.severity for finding in report.findings}


def test_the_overpaid_share_is_the_chance_of_wins_below_the_price() -> None:
    auctions = auctions_of([(1, 2.0, 0.5), (2, 1.0, 0.5)], [(1, 2.0, 0.5), (2, 1.0, 0.5)])
    prices = price_candidates(auctions, SECOND, reserve=0)
    device = DeviceClicks(click_probs=np.array([0.2, 0.9, 0.25, 0.0]))
    # Values .4 and .5 against prices .5 and 0: the first is overpaid, and the third just not.
    probs = np.array([0.3, 0.7, 0.6, 0.4])
    assert overpaid_share(auctions, device, probs, prices) == pytest.approx(0.15, rel=1e-12)
    with pytest.raises(ConfigError, match="same candidates"):
        overpaid_share(auctions, device, probs[1:], prices)


@pytest.mark.parametrize("rule", [PER_CLICK, PricingRule.FIRST_PRICE_PER_CLICK])
def test_a_price_of_a_click_is_never_above_its_value(rule: PricingRule) -> None:
    auctions = random_auctions(300, seed=2)
    device = random_clicks(auctions, seed=3)
    prices = price_candidates(auctions, rule, reserve=0)
    anything = np.ones(auctions.num_candidates)
    assert overpaid_share(auctions, device, anything, prices) == 0
    dearer = dataclasses.replace(prices, amounts=prices.amounts * 1.05 + 0.001)
    assert overpaid_share(auctions, device, anything, dearer) > 0


@pytest.mark.parametrize(
    ("num_candidates", "private_stddev", "low", "high"),
    [(2, 1.0, 0.08, 0.17), (15, 0.3, 0.004, 0.06)],
)
def test_second_prices_of_impressions_overcharge_some_favourites(
    num_candidates: int, private_stddev: float, low: float, high: float
) -> None:
    auctions, device = calibrated_market(
        4000, num_candidates, seed=5, private_stddev=private_stddev
    )
    prices = price_candidates(auctions, SECOND, reserve=0)
    share = overpaid_share(auctions, device, favourite_chances(auctions, device), prices)
    assert low < share < high


def test_a_bare_selection_at_low_epsilon_has_every_problem_and_a_way_out() -> None:
    report = report_of(1.0, SECOND)
    assert severities(report)["truthfulness"] is Severity.PROBLEM
    assert severities(report)["reserve"] is Severity.PROBLEM
    assert severities(report)["rationality"] is Severity.PROBLEM
    assert severities(report)["revenue"] is Severity.CAUTION
    assert all(
        bool(finding.way_out) == (finding.severity is not Severity.FINE)
        for finding in report.findings
    )
    way_out = next(f.way_out for f in report.findings if f.topic == "truthfulness")
    assert "positive reserve" in way_out
    assert "gamma < 1" in way_out


def test_the_ways_out_work() -> None:
    reserve = float(np.quantile(calibrated_market(1500, 8, seed=7)[0].server_scores, 0.5))
    better = severities(report_of(3.0, PER_CLICK, gamma=0.6, reserve=reserve))
    assert better == {
        "rationality": Severity.FINE,
        "truthfulness": Severity.FINE,
        "reserve": Severity.FINE,
        "revenue": Severity.FINE,
        "clicks": Severity.CAUTION,
    }


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
def test_revenue_by_impression_is_never_above_the_non_personalised_one(epsilon: float) -> None:
    report = report_of(epsilon, SECOND)
    assert report.revenue <= report.non_personalised_revenue
    assert -1 <= report.revenue_change <= 0


def test_revenue_by_click_can_be_above_it() -> None:
    assert report_of(6.0, PER_CLICK).revenue_change > 0.05


def test_revenues_agree_with_a_sum_by_hand() -> None:
    auctions = auctions_of([(1, 2.0, 0.5), (2, 1.0, 0.6), (3, 1.0, 0.1)])
    device = DeviceClicks(click_probs=np.array([0.1, 0.9, 0.2]))
    settings = PricedSelection(mechanism=FloorMechanism(epsilon=1.0), rule=SECOND, reserve=0.2)
    report = report_incentives(auctions, device, settings, num_advertisers=1)
    # The third is below the reserve. Prices .6 and .2; the second is the device's favourite.
    top = math.e / (1 + math.e)
    assert report.revenue == pytest.approx((1 - top) * 0.6 + top * 0.2, rel=1e-12)
    assert report.non_personalised_revenue == pytest.approx(0.6, rel=1e-12)
    assert report.revenue_change == pytest.approx(report.revenue / 0.6 - 1, rel=1e-12)
    assert report.overpaid_share == pytest.approx(1 - top, rel=1e-12)


def test_a_first_price_leaves_no_utility_to_truth_and_the_report_says_so() -> None:
    report = report_of(5.0, PricingRule.FIRST_PRICE_PER_CLICK, gamma=0.5, reserve=0.01)
    finding = next(f for f in report.findings if f.topic == "truthfulness")
    assert finding.severity is Severity.PROBLEM
    assert "truth leaves it no utility" in finding.text


def test_a_reserve_above_every_score_is_refused() -> None:
    auctions = auctions_of([(1, 2.0, 0.5)])
    settings = PricedSelection(mechanism=FloorMechanism(epsilon=1.0), rule=SECOND, reserve=3.0)
    with pytest.raises(ConfigError, match=r"reserve=3\.0 leaves no ad"):
        report_incentives(auctions, random_clicks(auctions, seed=1), settings)


def test_no_revenue_at_all_is_no_change() -> None:
    auctions = auctions_of([(1, 2.0, 0.5)])
    settings = PricedSelection(mechanism=FloorMechanism(epsilon=1.0), rule=SECOND, reserve=0.0)
    report = report_incentives(auctions, random_clicks(auctions, seed=1), settings)
    assert report.revenue_change == 0
