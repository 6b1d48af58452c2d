"""Prices by server rank: the four rules, the reserve, and what they imply."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import DataError
from tulle.select.ad_prices import AdPrices, PaidEvent
from tulle.select.auctions import Auctions
from tulle.select.billing.prices import PricingRule, price_candidates
from tulle.select.billing.reserve import above_reserve
from tulle.select.metrics import expected_metrics
from tulle.select.server_ranks import server_ranks
from unit.select.billing.small_auctions import (
    auctions_of,
    random_auctions,
    random_clicks,
    rows_of,
)

SECOND, PER_CLICK = PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK
FIRST, FIRST_PER_CLICK = PricingRule.FIRST_PRICE, PricingRule.FIRST_PRICE_PER_CLICK


def exact_prices(auctions: Auctions, rule: PricingRule, reserve: float) -> list[Fraction]:
    """One auction at a time, in rational numbers."""
    prices = [Fraction(0)] * auctions.num_candidates
    for places in rows_of(auctions):
        scores = {p: Fraction(float(auctions.server_scores[p])) for p in places}
        ranked = sorted(places, key=lambda p: (-scores[p], p))
        below = [*(scores[p] for p in ranked[1:]), Fraction(reserve)]
        for place, next_score in zip(ranked, below, strict=True):
            chance = Fraction(float(auctions.server_click_probs[place]))
            prices[place] = {
                SECOND: next_score,
                PER_CLICK: next_score / chance if chance else Fraction(0),
                FIRST: scores[place],
                FIRST_PER_CLICK: Fraction(float(auctions.bids[place])),
            }[rule]
    return prices


@pytest.mark.parametrize("rule", PricingRule)
@pytest.mark.parametrize("reserve", [0.0, 0.3])
def test_prices_agree_with_rational_arithmetic(rule: PricingRule, reserve: float) -> None:
    auctions = above_reserve(random_auctions(300, seed=5), reserve).auctions
    prices = price_candidates(auctions, rule, reserve=reserve)
    exact = [float(price) for price in exact_prices(auctions, rule, reserve)]
    assert np.allclose(prices.amounts, exact, rtol=1e-14, atol=0)
    assert prices.paid_event is (
        PaidEvent.CLICK if rule in (PER_CLICK, FIRST_PER_CLICK) else PaidEvent.IMPRESSION
    )


def test_the_last_of_an_auction_pays_the_reserve() -> None:
    auctions = auctions_of([(1, 2.0, 0.5), (2, 3.0, 0.5), (3, 1.0, 0.5)], [(7, 4.0, 0.25)])
    prices = price_candidates(auctions, SECOND, reserve=0.2)
    assert prices.amounts.tolist() == [0.5, 1.0, 0.2, 0.2]
    per_click = price_candidates(auctions, PER_CLICK, reserve=0.2)
    assert per_click.amounts.tolist() == [1.0, 2.0, 0.4, 0.8]


def test_equal_scores_pay_each_other_and_the_later_one_the_next() -> None:
    auctions = auctions_of([(1, 2.0, 0.5), (2, 2.0, 0.5), (3, 1.0, 0.5)])
    assert price_candidates(auctions, SECOND, reserve=0).amounts.tolist() == [1.0, 0.5, 0.0]


def test_an_ad_that_is_never_clicked_has_free_clicks() -> None:
    auctions = auctions_of([(1, 2.0, 0.0), (2, 3.0, 0.0)])
    assert price_candidates(auctions, PER_CLICK, reserve=0).amounts.tolist() == [0.0, 0.0]


@settings(max_examples=200)
@given(
    rows=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1)), min_size=1, max_size=8),
    reserve_share=st.floats(0, 1),
)
def test_a_second_price_of_a_click_is_at_most_the_bid(
    rows: list[tuple[float, float]], reserve_share: float
) -> None:
    auctions = auctions_of([(ad, bid, chance) for ad, (bid, chance) in enumerate(rows)])
    reserve = reserve_share * float(auctions.server_scores.min())
    prices = price_candidates(auctions, PER_CLICK, reserve=reserve)
    assert np.all(prices.amounts <= auctions.bids)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), reserve=st.sampled_from([0.0, 0.2, 0.7]))
def test_no_selection_earns_more_by_impressions_than_the_servers_winner(
    seed: int, reserve: float
) -> None:
    auctions = above_reserve(random_auctions(12, seed=seed), reserve).auctions
    if not len(auctions):
        return
    device = random_clicks(auctions, seed=seed)
    is_winner = (server_ranks(auctions) == 0).astype(float)
    for rule in (SECOND, FIRST):
        prices = price_candidates(auctions, rule, reserve=reserve)
        best = expected_metrics(auctions, device, is_winner, prices).revenue
        for chosen in (device.click_probs, is_winner, 1 - is_winner + 1e-9):
            sums = np.add.reduceat(chosen, auctions.offsets[:-1])
            probs = chosen / np.repeat(sums, auctions.sizes)
            revenue = expected_metrics(auctions, device, probs, prices).revenue
            assert revenue <= best * (1 + 1e-12)


def test_a_price_by_the_best_other_score_would_break_that_bound() -> None:
    auctions = auctions_of([(1, 1.0, 0.9), (2, 1.0, 0.5)])
    wrong = AdPrices(amounts=np.array([0.5, 0.9]), paid_event=PaidEvent.IMPRESSION)
    device = random_clicks(auctions, seed=0)
    second_wins = expected_metrics(auctions, device, np.array([0.0, 1.0]), wrong).revenue
    assert second_wins > expected_metrics(auctions, device, np.array([1.0, 0.0]), wrong).revenue


def test_a_candidate_below_the_reserve_is_refused_with_the_way_out() -> None:
    with pytest.raises(DataError, match=r"reserve=0\.6.*above_reserve"):
        price_candidates(auctions_of([(1, 1.0, 0.5)]), SECOND, reserve=0.6)


def test_no_auctions_have_no_prices() -> None:
    nothing = above_reserve(auctions_of([(1, 1.0, 0.5)]), 2.0).auctions
    for rule in PricingRule:
        assert price_candidates(nothing, rule, reserve=2.0).amounts.shape == (0,)
