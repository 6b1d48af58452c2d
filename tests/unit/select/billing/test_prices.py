"""Prices by server rank: the four rules, the reserve, and what they imply."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, IntArray, above_reserve, server_ranks
from tulle.select.billing.bill import bill_counts, bill_impressions
from tulle.select.billing.prices import (
    MAX_PRICE,
    MICROS_PER_UNIT,
    AdPrices,
    PaidEvent,
    PostedPrices,
    PricingRule,
    expected_metrics,
    from_micros,
    money_text,
    post_prices,
    price_candidates,
    sum_by_group,
    to_micros,
)
from unit.select.billing.small_auctions import (
    auctions_of,
    choices_at,
    counts_of,
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


SETS = ([3, 5, 8], [3, 8], [5, 3, 9, 1])


def auctions_in_cells(num_auctions: int, *, seed: int) -> tuple[Auctions, IntArray]:
    """Auctions with one of three sets of ads, in any order, and numbers of their cells."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, len(SETS), num_auctions)
    rows = [
        [(int(ad), float(rng.lognormal()), float(rng.random())) for ad in rng.permutation(SETS[n])]
        for n in numbers
    ]
    return auctions_of(*rows), np.array([70, 20, 40])[numbers]


def second_prices(auctions: Auctions) -> AdPrices:
    return price_candidates(auctions, PricingRule.SECOND_PRICE, reserve=0)


def test_a_posted_price_is_the_mean_of_the_cell_rounded_down() -> None:
    auctions, cells = auctions_in_cells(120, seed=1)
    prices = second_prices(auctions)
    posted = post_prices(auctions, prices, cells)
    candidate_cells = np.repeat(cells, auctions.sizes)
    micros = to_micros(prices.amounts)
    pairs = sorted(set(zip(candidate_cells.tolist(), auctions.ads.tolist(), strict=True)))
    assert list(zip(posted.cells.tolist(), posted.ads.tolist(), strict=True)) == pairs
    for (cell, ad), price in zip(pairs, posted.micros.tolist(), strict=True):
        own = micros[(candidate_cells == cell) & (auctions.ads == ad)].tolist()
        assert price == math.floor(Fraction(sum(own), len(own)))


def test_every_auction_of_a_cell_has_the_same_price_for_an_ad() -> None:
    auctions, cells = auctions_in_cells(120, seed=2)
    prices = post_prices(auctions, second_prices(auctions), cells).prices(auctions, cells)
    candidate_cells = np.repeat(cells, auctions.sizes)
    for cell, ad in itertools.product(np.unique(cells), np.unique(auctions.ads)):
        own = prices.amounts[(candidate_cells == cell) & (auctions.ads == ad)]
        assert len(set(own.tolist())) <= 1
    # The prices of the auctions themselves would not pass.
    first = second_prices(auctions).amounts[(candidate_cells == 20) & (auctions.ads == 3)]
    assert len(set(first.tolist())) > 1


def test_counts_at_posted_prices_give_the_bill_of_the_choices() -> None:
    auctions, cells = auctions_in_cells(500, seed=3)
    posted = post_prices(auctions, second_prices(auctions), cells)
    rng = np.random.default_rng(4)
    choices = choices_at(auctions, auctions.offsets[:-1] + rng.integers(0, auctions.sizes))
    counts = counts_of(choices, cells)
    assert counts["impressions"].sum() == 500
    by_choice = bill_impressions(auctions, posted.prices(auctions, cells), choices)
    assert bill_counts(posted, **counts) == by_choice


def explained_totals(micros: IntArray) -> dict[tuple[int, ...], int]:
    """How many outcomes have each vector of spend, over all choices of winners.

    Args:
      micros: [auctions, ads], a price for each ad in each auction.
    """
    num_auctions, num_ads = micros.shape
    outcomes = np.array(list(itertools.product(range(num_ads), repeat=num_auctions)))
    spent = np.stack(
        [np.where(outcomes == ad, micros[:, ad], 0).sum(axis=1) for ad in range(num_ads)],
        axis=1,
    )
    totals, num_outcomes = np.unique(spent, axis=0, return_counts=True)
    return dict(zip(map(tuple, totals.tolist()), num_outcomes.tolist(), strict=True))


def test_totals_of_auction_prices_name_every_winner_and_posted_ones_only_counts() -> None:
    rng = np.random.default_rng(9)
    rows = [[(ad, float(rng.lognormal()), 0.5) for ad in range(3)] for _ in range(8)]
    auctions = auctions_of(*rows)
    cells = np.zeros(8, np.int64)
    prices = second_prices(auctions)
    by_auction = explained_totals(to_micros(prices.amounts).reshape(8, 3))
    posted = post_prices(auctions, prices, cells).prices(auctions, cells)
    by_count = explained_totals(to_micros(posted.amounts).reshape(8, 3))

    # A last-ranked ad without a reserve pays nothing: who won then shows in the others' totals.
    assert max(by_auction.values()) == 1
    assert len(by_auction) == 3**8
    # 8 impressions among 3 ads: 45 vectors of counts, each with all its outcomes.
    assert len(by_count) == math.comb(10, 2)
    assert sorted(by_count.values()) == sorted(
        math.factorial(8) // math.prod(map(math.factorial, (a, b, 8 - a - b)))
        for a in range(9)
        for b in range(9 - a)
    )


def test_coarse_money_does_not_hide_winners_either() -> None:
    rng = np.random.default_rng(10)
    cents = rng.integers(5, 300, (8, 3)) * 10_000
    alone = sum(1 for num in explained_totals(cents).values() if num == 1)
    assert alone / 3**8 > 0.5


def test_a_cell_with_different_candidates_is_refused() -> None:
    auctions = auctions_of([(1, 1.0, 0.5), (2, 2.0, 0.5)], [(1, 1.0, 0.5), (3, 2.0, 0.5)])
    with pytest.raises(DataError, match="different candidates"):
        post_prices(auctions, second_prices(auctions), np.array([0, 0]))
    larger = auctions_of([(1, 1.0, 0.5), (2, 2.0, 0.5)], [(1, 1.0, 0.5)])
    with pytest.raises(DataError, match="different candidates"):
        post_prices(larger, second_prices(larger), np.array([4, 4]))
    post_prices(larger, second_prices(larger), np.array([4, 5]))


def test_an_ad_without_a_posted_price_is_refused() -> None:
    auctions, cells = auctions_in_cells(30, seed=5)
    posted = post_prices(auctions, second_prices(auctions), cells)
    with pytest.raises(DataError, match="no posted price"):
        posted.micros_of(np.array([20, 20]), np.array([3, 5]))
    with pytest.raises(DataError, match="no posted price"):
        posted.prices(auctions, cells + 1)


def test_a_price_list_that_is_not_sorted_is_refused() -> None:
    def price_list(cells: list[int], ads: list[int], micros: list[int]) -> PostedPrices:
        return PostedPrices(
            paid_event=PaidEvent.IMPRESSION,
            cells=np.array(cells),
            ads=np.array(ads),
            micros=np.array(micros),
        )

    price_list([0, 0, 1], [4, 5, 2], [1, 1, 1])
    for cells, ads in (([1, 0], [1, 1]), ([0, 0], [2, 1]), ([0, 0], [2, 2])):
        with pytest.raises(DataError, match="sorted"):
            price_list(cells, ads, [1, 1])
    with pytest.raises(DataError, match=">= 0"):
        price_list([0], [1], [-1])
    with pytest.raises(DataError, match="one cell, one ad"):
        price_list([0], [1, 2], [1])


def test_counts_and_cells_that_do_not_fit_are_refused() -> None:
    auctions, cells = auctions_in_cells(30, seed=5)
    with pytest.raises(ConfigError, match="one entry for each of the auctions"):
        post_prices(auctions, second_prices(auctions), cells[1:])
    with pytest.raises(ConfigError, match="same candidates"):
        post_prices(auctions, AdPrices(amounts=np.ones(1), paid_event=PaidEvent.IMPRESSION), cells)
    with pytest.raises(DataError, match="impressions"):
        bill_counts(
            post_prices(auctions, second_prices(auctions), cells),
            cells=np.array([1]),
            ads=np.array([1]),
            impressions=np.array([-1]),
        )


LARGEST = MAX_PRICE * MICROS_PER_UNIT


@settings(max_examples=300)
@given(micros=st.integers(0, LARGEST))
def test_whole_micros_come_back(micros: int) -> None:
    assert to_micros(from_micros(np.array([micros]))).tolist() == [micros]
    # The same from decimal text, whose nearest float may be a little less.
    assert to_micros(np.array([float(money_text(micros))])).tolist() == [micros]


@settings(max_examples=300)
@given(amount=st.floats(0, 1e5))
def test_a_price_is_rounded_down(amount: float) -> None:
    exact = Fraction(amount) * MICROS_PER_UNIT
    rounded = to_micros(np.array([amount])).tolist()[0]
    assert exact - 1 < rounded <= exact * (1 + Fraction(1, 10**15))


@settings(max_examples=300)
@given(micros=st.integers(1, LARGEST - 1), steps=st.integers(-6, 6), more=st.integers(0, 6))
def test_a_lower_price_is_never_more(micros: int, steps: int, more: int) -> None:
    spacing = np.spacing(micros / MICROS_PER_UNIT)
    low = micros / MICROS_PER_UNIT + steps * spacing
    rounded = to_micros(np.array([low, low + more * spacing]))
    assert rounded[0] <= rounded[1]


def test_a_plain_floor_would_lose_a_micro() -> None:
    amounts = np.array([0.29, 8.2, 1.001, 0.000249])
    assert to_micros(amounts).tolist() == [290_000, 8_200_000, 1_001_000, 249]
    floors = np.floor(amounts * MICROS_PER_UNIT).tolist()
    assert floors == [290_000, 8_199_999, 1_000_999, 248]


def test_sums_are_exact_beyond_64_bits() -> None:
    rng = np.random.default_rng(2)
    micros = rng.integers(LARGEST - 1000, LARGEST, 200_000)
    groups = rng.integers(0, 3, len(micros))
    exact = [sum(micros[groups == group].tolist()) for group in range(3)]
    assert max(exact) > 2**62
    assert sum_by_group(micros, groups, 3) == exact
    # What a sum in floats would have given.
    assert [int(s) for s in np.bincount(groups, weights=micros)] != exact


def test_a_group_without_rows_is_zero() -> None:
    assert sum_by_group(np.array([5, 6]), np.array([2, 2]), 4) == [0, 0, 11, 0]


@pytest.mark.parametrize(
    ("micros", "text"), [(0, "0.000000"), (7, "0.000007"), (12_345_678, "12.345678")]
)
def test_text_has_all_digits(micros: int, text: str) -> None:
    assert money_text(micros) == text


def test_text_of_a_large_amount_has_all_digits() -> None:
    assert money_text(10**40 + 1) == "1" + "0" * 34 + ".000001"


@pytest.mark.parametrize("amount", [-1e-9, MAX_PRICE * 1.01, float("nan"), float("inf")])
def test_what_is_no_price_is_refused(amount: float) -> None:
    with pytest.raises(DataError, match="prices must be in"):
        to_micros(np.array([1.0, amount]))
