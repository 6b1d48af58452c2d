"""The report of incentives: its numbers, its findings and their ways out."""

import dataclasses
import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray
from tulle.select.billing.incentives import (
    BID_FACTORS,
    IncentiveReport,
    PricedSelection,
    Severity,
    ShadingCurve,
    overpaid_share,
    report_incentives,
    shading_curve,
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
FIRST, FIRST_PER_CLICK = PricingRule.FIRST_PRICE, PricingRule.FIRST_PRICE_PER_CLICK
EIGHT = np.arange(8)


def selection(
    epsilon: float, rule: PricingRule, *, gamma: float = 1.0, reserve: float = 0.0
) -> PricedSelection:
    return PricedSelection(
        mechanism=FloorMechanism(epsilon=epsilon, shortlist=Cutoff(gamma=gamma)),
        rule=rule,
        reserve=reserve,
    )


def outcome_by_hand(
    auctions: Auctions,
    device: DeviceClicks,
    epsilon: float,
    rule: PricingRule,
    reserve: float,
    ad: int,
    factor: float,
) -> tuple[float, float]:
    """Mean utility and probability to win of randomized response over all eligible candidates."""
    utility, chance, num_auctions = 0.0, 0.0, 0
    for places in rows_of(auctions):
        own = [p for p in places if auctions.ads[p] == ad]
        if not own:
            continue
        num_auctions += 1
        bids = {p: auctions.bids[p] * (factor if p == own[0] else 1) for p in places}
        scores = {p: bids[p] * auctions.server_click_probs[p] for p in places}
        ranked = sorted((p for p in places if scores[p] >= reserve), key=lambda p: -scores[p])
        if own[0] not in ranked:
            continue
        # Ties of private scores go to the better server score.
        favourite = max(ranked, key=lambda p: bids[p] * device.click_probs[p])
        weight = math.exp(epsilon) if favourite == own[0] else 1.0
        prob = weight / (len(ranked) - 1 + math.exp(epsilon))
        below = ranked[ranked.index(own[0]) + 1 :]
        next_score = scores[below[0]] if below else reserve
        server_prob, click_prob = auctions.server_click_probs[own[0]], device.click_probs[own[0]]
        price = {
            SECOND: next_score,
            PER_CLICK: click_prob * (next_score / server_prob if server_prob else 0.0),
            FIRST: scores[own[0]],
            FIRST_PER_CLICK: click_prob * bids[own[0]],
        }[rule]
        utility += prob * (auctions.bids[own[0]] * click_prob - price)
        chance += prob
    return utility / num_auctions, chance / num_auctions


@pytest.mark.parametrize("rule", PricingRule)
@pytest.mark.parametrize("reserve", [0.0, 0.15])
def test_utilities_agree_with_a_sum_by_hand(rule: PricingRule, reserve: float) -> None:
    auctions = random_auctions(80, seed=3)
    device = random_clicks(auctions, seed=4)
    curve = shading_curve(
        auctions, device, selection(1.3, rule, reserve=reserve), ads=np.array([4])
    )
    expected = [
        outcome_by_hand(auctions, device, 1.3, rule, reserve, 4, factor) for factor in BID_FACTORS
    ]
    assert np.allclose(curve.utilities, [u for u, _ in expected], rtol=1e-10, atol=1e-13)
    assert np.allclose(curve.win_probs, [p for _, p in expected], rtol=1e-10, atol=1e-13)


def test_several_advertisers_change_alone_and_are_averaged_by_auction() -> None:
    auctions = random_auctions(60, seed=5)
    device = random_clicks(auctions, seed=6)
    settings = selection(1.0, SECOND)
    counts = {ad: int(np.sum(auctions.ads == ad)) for ad in (2, 7)}
    single = {ad: shading_curve(auctions, device, settings, ads=np.array([ad])) for ad in counts}
    both = shading_curve(auctions, device, settings, ads=np.array([2, 7]))
    weighted = sum(counts[ad] * np.array(single[ad].utilities) for ad in counts)
    assert np.allclose(both.utilities, weighted / sum(counts.values()), rtol=1e-12)


def test_low_epsilon_without_reserve_or_cutoff_rewards_a_bid_of_nothing() -> None:
    auctions, device = calibrated_market(6000, 8, seed=1)
    by_impression = shading_curve(auctions, device, selection(1, SECOND), ads=EIGHT)
    by_click = shading_curve(auctions, device, selection(1, PER_CLICK), ads=EIGHT)
    assert by_impression.best_factor <= 0.1
    assert by_click.best_factor <= 0.1
    assert by_impression.gain == pytest.approx(0.31, abs=0.04)
    assert by_click.gain == pytest.approx(0.52, abs=0.05)
    # The floor of an ad that bids nothing, one of eight.
    assert by_click.win_probs[0] == pytest.approx(1 / (7 + math.e), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "gamma", "rule"),
    [(3.0, 0.8, SECOND), (3.0, 0.8, PER_CLICK), (5.0, 0.8, PER_CLICK), (3.0, 0.5, PER_CLICK)],
)
def test_bids_are_nearly_truthful_at_larger_epsilon_with_a_cutoff(
    epsilon: float, gamma: float, rule: PricingRule
) -> None:
    auctions, device = calibrated_market(12_000, 8, seed=2)
    curve = shading_curve(
        auctions,
        device,
        selection(epsilon, rule, gamma=gamma),
        ads=EIGHT,
        factors=(0.0, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2),
    )
    assert curve.gain <= 0.02


def test_a_cutoff_removes_the_gain_at_low_epsilon_and_a_reserve_most_of_it() -> None:
    auctions, device = calibrated_market(3000, 8, seed=3)
    reserve = float(np.quantile(auctions.server_scores, 0.5))
    bare = shading_curve(auctions, device, selection(1, PER_CLICK), ads=EIGHT)
    reserved = shading_curve(auctions, device, selection(1, PER_CLICK, reserve=reserve), ads=EIGHT)
    cut = shading_curve(auctions, device, selection(1, PER_CLICK, gamma=0.5), ads=EIGHT)
    assert bare.gain > 0.4
    assert reserved.gain < 0.15
    assert cut.gain < 0.03
    assert reserved.win_probs[0] == cut.win_probs[0] == 0


def test_a_first_price_rewards_shading_at_any_epsilon() -> None:
    auctions, device = calibrated_market(500, 8, seed=4)
    curve = shading_curve(auctions, device, selection(6, FIRST_PER_CLICK), ads=EIGHT)
    # Whoever pays the bid gains nothing by truth.
    assert curve.truthful_utility == pytest.approx(0, abs=1e-12)
    assert curve.best_factor < 1


def test_a_reserve_above_every_bid_leaves_nothing_to_gain() -> None:
    auctions = auctions_of([(1, 1.0, 0.5)])
    device = random_clicks(auctions, seed=1)
    curve = shading_curve(auctions, device, selection(1, SECOND, reserve=9.0), ads=np.array([1]))
    assert set(curve.utilities) == set(curve.win_probs) == {0.0}
    assert curve.gain == 0
    assert curve.best_factor == 1


def test_a_gain_over_no_utility_is_infinite() -> None:
    curve = ShadingCurve(factors=(0.5, 1.0), utilities=(1.0, -1.0), win_probs=(0.1, 0.1))
    assert curve.gain == math.inf
    assert curve.best_factor == 0.5


def test_factors_and_advertisers_that_cannot_be_are_refused() -> None:
    auctions = random_auctions(5, seed=1)
    device = random_clicks(auctions, seed=1)
    for factors in ((0.5,), (1.0, -0.1), (1.0, math.nan)):
        with pytest.raises(ConfigError, match="factors="):
            shading_curve(
                auctions, device, selection(1, SECOND), ads=auctions.ads[:1], factors=factors
            )
    for ads in ([], [12345]):
        with pytest.raises(ConfigError, match="ads must be"):
            shading_curve(auctions, device, selection(1, SECOND), ads=np.array(ads, np.int64))


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
    report = report_incentives(auctions, device, settings)
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
