"""Bills are exact: whole counts, whole micros, whatever the order and however they are cut."""

from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions
from tulle.select.billing.bill import (
    Bill,
    BillLine,
    Choices,
    bill_clicks,
    bill_counts,
    bill_impressions,
    merge_bills,
)
from tulle.select.billing.prices import (
    AdPrices,
    PaidEvent,
    PostedPrices,
    PricingRule,
    price_candidates,
)
from unit.select.billing.small_auctions import auctions_of, choices_at, random_auctions, rows_of

SECOND, PER_CLICK = PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK


def random_choices(auctions: Auctions, *, seed: int) -> Choices:
    rng = np.random.default_rng(seed)
    return choices_at(auctions, np.array([rng.choice(row) for row in rows_of(auctions)]))


def part_of(choices: Choices, rows: np.ndarray) -> Choices:
    return Choices(auctions=choices.auctions[rows], ads=choices.ads[rows])


def billed_one_by_one(
    auctions: Auctions, prices: AdPrices, choices: Choices, paid: np.ndarray
) -> dict[int, tuple[int, int]]:
    """Impressions and micros of each ad, one choice after the other in whole numbers."""
    impressions: Counter[int] = Counter()
    amounts: Counter[int] = Counter()
    for auction, ad, is_paid in zip(choices.auctions, choices.ads, paid, strict=True):
        places = rows_of(auctions)[auction]
        price = prices.amounts[next(p for p in places if auctions.ads[p] == ad)]
        # Prices here are far from the ends of a micro, or whole but for float rounding.
        micros = int(Fraction(float(price)) * 10**6 + Fraction(1, 10**6))
        impressions[int(ad)] += 1
        amounts[int(ad)] += micros if is_paid else 0
    return {ad: (num, amounts[ad]) for ad, num in impressions.items()}


def test_a_bill_is_the_sum_of_the_prices_of_the_choices() -> None:
    auctions = random_auctions(400, seed=1)
    prices = price_candidates(auctions, SECOND, reserve=0)
    choices = random_choices(auctions, seed=2)
    bill = bill_impressions(auctions, prices, choices)
    expected = billed_one_by_one(auctions, prices, choices, np.ones(400, bool))
    assert {ln.ad: (ln.impressions, ln.amount_micros) for ln in bill.lines} == expected
    assert [line.ad for line in bill.lines] == sorted(expected)
    assert bill.num_impressions == 400
    assert bill.total_micros == sum(amount for _, amount in expected.values())
    assert Decimal(bill.total) == sum((Decimal(line.amount) for line in bill.lines), Decimal(0))
    assert all(line.clicks is None for line in bill.lines)


def test_a_bill_of_clicks_charges_what_was_clicked() -> None:
    auctions = random_auctions(400, seed=3)
    prices = price_candidates(auctions, PER_CLICK, reserve=0)
    choices = random_choices(auctions, seed=4)
    is_clicked = np.random.default_rng(5).random(400) < 0.3
    bill = bill_clicks(auctions, prices, choices, raw_is_clicked=is_clicked)
    expected = billed_one_by_one(auctions, prices, choices, is_clicked)
    assert {ln.ad: (ln.impressions, ln.amount_micros) for ln in bill.lines} == expected
    clicks = Counter(choices.ads[is_clicked].tolist())
    assert all(line.clicks == clicks[line.ad] for line in bill.lines)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), num_parts=st.integers(1, 5))
def test_bills_of_batches_add_up_however_they_are_cut(seed: int, num_parts: int) -> None:
    auctions = random_auctions(40, seed=seed)
    prices = price_candidates(auctions, SECOND, reserve=0)
    choices = random_choices(auctions, seed=seed)
    rng = np.random.default_rng(seed)
    order, part = rng.permutation(40), rng.integers(0, num_parts, 40)
    parts = [
        bill_impressions(auctions, prices, part_of(choices, order[part == number]))
        for number in range(num_parts)
    ]
    assert merge_bills(parts) == bill_impressions(auctions, prices, choices)


def float_bill(amounts: np.ndarray) -> int:
    """A wrong bill: prices are added up in floats and rounded at the end."""
    return int(np.floor(float(np.sum(amounts)) * 10**6))


def test_float_sums_would_depend_on_the_cut_and_are_caught() -> None:
    amounts = np.array([0.1234567, 0.7654329, 0.0000009] * 5)
    rows = [[(ad, 1.0, 0.5)] for ad in [1] * len(amounts)]
    auctions = auctions_of(*rows)
    prices = AdPrices(amounts=amounts, paid_event=PaidEvent.IMPRESSION)
    choices = choices_at(auctions, np.arange(len(amounts)))
    whole = bill_impressions(auctions, prices, choices)
    halves = [
        bill_impressions(auctions, prices, part_of(choices, rows))
        for rows in (np.arange(7), np.arange(7, 15))
    ]
    assert merge_bills(halves).total_micros == whole.total_micros == 5 * (123456 + 765432)
    assert float_bill(amounts[:7]) + float_bill(amounts[7:]) != float_bill(amounts)


def test_prices_of_clicks_are_not_billed_as_impressions() -> None:
    auctions = random_auctions(5, seed=1)
    choices = random_choices(auctions, seed=1)
    per_click = price_candidates(auctions, PER_CLICK, reserve=0)
    with pytest.raises(ConfigError, match=r"one click, not of one impression.*bill_clicks"):
        bill_impressions(auctions, per_click, choices)
    shown = price_candidates(auctions, SECOND, reserve=0)
    with pytest.raises(ConfigError, match=r"one impression, not of one click"):
        bill_clicks(auctions, shown, choices, raw_is_clicked=np.ones(5, bool))
    with pytest.raises(ConfigError, match="raw_is_clicked"):
        bill_clicks(auctions, per_click, choices, raw_is_clicked=np.ones(4, bool))


def test_nothing_is_billed_if_one_choice_is_wrong() -> None:
    auctions = auctions_of([(1, 2.0, 0.5)], [(2, 2.0, 0.5)])
    prices = price_candidates(auctions, SECOND, reserve=0)
    wrong = Choices(auctions=np.array([0, 1]), ads=np.array([1, 1]))
    with pytest.raises(DataError, match="no candidate of its auction"):
        bill_impressions(auctions, prices, wrong)


def test_prices_of_other_auctions_are_refused() -> None:
    auctions = auctions_of([(1, 2.0, 0.5)], [(2, 2.0, 0.5)])
    prices = AdPrices(amounts=np.ones(3), paid_event=PaidEvent.IMPRESSION)
    with pytest.raises(ConfigError, match="same candidates"):
        bill_impressions(auctions, prices, choices_at(auctions, np.array([0, 1])))


def test_a_bill_of_counts_is_exact_beyond_64_bits() -> None:
    posted = PostedPrices(
        paid_event=PaidEvent.IMPRESSION,
        cells=np.array([0, 0, 1]),
        ads=np.array([1, 2, 1]),
        micros=np.array([10**14 - 1, 5, 7]),
    )
    bill = bill_counts(
        posted,
        cells=np.array([1, 0, 0]),
        ads=np.array([1, 1, 2]),
        impressions=np.array([3, 10**9 + 7, 0]),
    )
    assert bill.lines == (
        BillLine(
            ad=1,
            impressions=10**9 + 10,
            clicks=None,
            amount_micros=21 + (10**14 - 1) * (10**9 + 7),
        ),
        BillLine(ad=2, impressions=0, clicks=None, amount_micros=0),
    )


def test_bills_of_different_events_do_not_merge() -> None:
    shown = Bill(paid_event=PaidEvent.IMPRESSION, lines=())
    with pytest.raises(ConfigError, match="all for impressions or all for clicks"):
        merge_bills([shown, Bill(paid_event=PaidEvent.CLICK, lines=())])
    with pytest.raises(ConfigError, match="at least one"):
        merge_bills([])
    assert merge_bills([shown]) == shown


def test_no_choices_cost_nothing() -> None:
    auctions = random_auctions(3, seed=1)
    none = Choices(auctions=np.zeros(0, np.int64), ads=np.zeros(0, np.int64))
    bill = bill_impressions(auctions, price_candidates(auctions, SECOND, reserve=0), none)
    assert bill.lines == ()
    assert bill.total == "0.000000"


TWO = auctions_of([(1, 2.0, 0.5), (2, 3.0, 0.5)], [(2, 1.0, 0.5), (987654, 1.0, 0.5)])


def choices_of(*pairs: tuple[int, int]) -> Choices:
    return Choices(
        auctions=np.array([auction for auction, _ in pairs], np.int64),
        ads=np.array([ad for _, ad in pairs], np.int64),
    )


def test_every_choice_is_found_in_its_own_auction() -> None:
    auctions = random_auctions(200, seed=3)
    rng = np.random.default_rng(4)
    places = np.array([rng.choice(row) for row in rows_of(auctions)])
    numbers = rng.permutation(200)[:150]
    choices = Choices(auctions=numbers, ads=auctions.ads[places[numbers]])
    assert np.array_equal(choices.places(auctions), places[numbers])


def test_no_choices_have_no_places() -> None:
    assert choices_of().places(TWO).shape == (0,)


def test_an_auction_is_not_billed_twice() -> None:
    with pytest.raises(DataError, match="twice"):
        choices_of((0, 1), (0, 2))


def test_an_ad_of_another_auction_is_refused_without_naming_it() -> None:
    with pytest.raises(DataError, match="no candidate of its auction") as refusal:
        choices_of((0, 987654)).places(TWO)
    assert "987654" not in str(refusal.value)


@pytest.mark.parametrize("auction", [-1, 2, 10**9])
def test_an_unknown_auction_is_refused(auction: int) -> None:
    with pytest.raises(DataError, match="not there"):
        choices_of((auction, 2)).places(TWO)


def test_an_ad_that_is_twice_in_its_auction_is_refused() -> None:
    with pytest.raises(DataError, match="or one twice"):
        choices_of((0, 1)).places(auctions_of([(1, 2.0, 0.5), (1, 3.0, 0.5)]))


def test_choices_of_unequal_length_are_refused() -> None:
    with pytest.raises(DataError, match="one auction and one ad"):
        Choices(auctions=np.array([0, 1]), ads=np.array([1]))
