"""Posted prices are one for each ad and cell, and say nothing but counts."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.select.ad_prices import AdPrices, PaidEvent
from tulle.select.auctions import Auctions, IntArray
from tulle.select.billing.bill import bill_counts, bill_impressions
from tulle.select.billing.money import to_micros
from tulle.select.billing.posted_prices import (
    CellCounts,
    PostedPrices,
    post_prices,
)
from tulle.select.billing.prices import PricingRule, price_candidates
from unit.select.billing.small_auctions import auctions_of, choices_at, counts_of

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
    assert counts.impressions.sum() == 500
    by_choice = bill_impressions(auctions, posted.prices(auctions, cells), choices)
    assert bill_counts(counts, posted) == by_choice


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
        CellCounts(cells=np.array([1]), ads=np.array([1]), impressions=np.array([-1]))
