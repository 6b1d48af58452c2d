"""Exact bills: one line for each ad, whole counts and whole micros.

Choices are released by a mechanism of selection and prices are public, so a bill follows from
what is released already: it needs no noise and costs no budget. Clicks are another matter. They
are data of Type II (Laro et al. 2024, section 2.1): no mechanism of selection protects them.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, BoolArray, FloatArray, IntArray
from tulle.select.billing.prices import (
    AdPrices,
    PaidEvent,
    PostedPrices,
    money_text,
    sum_by_group,
    to_micros,
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """One chosen ad for each of some auctions. Released by a mechanism of selection."""

    auctions: IntArray
    """[choices], the number of each auction; none twice."""
    ads: IntArray
    """[choices], the ad that was chosen."""

    def __post_init__(self) -> None:
        if self.auctions.ndim != 1 or self.auctions.shape != self.ads.shape:
            raise DataError("choices need one auction and one ad each.")
        if len(np.unique(self.auctions)) < len(self.auctions):
            raise DataError(
                "an auction is there twice; it can be billed once. Keep one choice of each."
            )

    def __len__(self) -> int:
        return len(self.auctions)

    def places(self, auctions: Auctions) -> IntArray:
        """[choices], where each chosen ad is in the arrays of all candidates."""
        if np.any((self.auctions < 0) | (self.auctions >= len(auctions))):
            raise DataError(
                f"a choice is of an auction that is not there; they are 0 to {len(auctions) - 1}. "
                "Bill a choice with the batch it was made in."
            )
        places, offsets = auctions.places_of(self.auctions)
        sizes = np.diff(offsets)
        is_chosen = auctions.ads[places] == np.repeat(self.ads, sizes)
        choice_of_place = np.repeat(np.arange(len(self)), sizes)
        if np.any(np.bincount(choice_of_place[is_chosen], minlength=len(self)) != 1):
            raise DataError(
                "a choice is no candidate of its auction, or one twice; "
                "nothing is billed before every choice is one of the ads that were offered."
            )
        chosen_places: IntArray = places[is_chosen]
        return chosen_places


@dataclasses.dataclass(frozen=True, kw_only=True)
class BillLine:
    """What one ad had and owes."""

    ad: int
    impressions: int
    clicks: int | None
    """Number of clicks; None where impressions are paid and clicks are not known."""
    amount_micros: int

    @property
    def amount(self) -> str:
        """Amount in the currency, with all digits."""
        return money_text(self.amount_micros)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bill:
    """What all ads of one or several batches owe, by rising ad."""

    paid_event: PaidEvent
    lines: tuple[BillLine, ...]

    @property
    def num_impressions(self) -> int:
        """Number of impressions of all ads together."""
        return sum(line.impressions for line in self.lines)

    @property
    def total_micros(self) -> int:
        """Amount of all ads together, in millionths of the currency."""
        return sum(line.amount_micros for line in self.lines)

    @property
    def total(self) -> str:
        """Amount of all ads together, in the currency, with all digits."""
        return money_text(self.total_micros)


def bill_impressions(auctions: Auctions, prices: AdPrices, choices: Choices) -> Bill:
    """Bills each choice at the price of the chosen candidate.

    Args:
      auctions: The batch that the choices were made in.
      prices: Prices of all its candidates, for an impression.
      choices: Choices, at most one for each auction.

    Privacy:
      Unit: one decision. Post-processing of the choices with public prices: no event of its own.
      Relies on: choices of a mechanism of selection, prices without private data.
    """
    _check_paid_event(prices.paid_event, PaidEvent.IMPRESSION, "bill_clicks()")
    amounts = to_micros(_prices_of(auctions, prices, choices))
    return _bill(choices.ads, amounts, np.ones(len(choices), np.int64), None)


def bill_clicks(
    auctions: Auctions, prices: AdPrices, choices: Choices, *, raw_is_clicked: BoolArray
) -> Bill:
    """Bills the choices that were clicked.

    Args:
      auctions: The batch that the choices were made in.
      prices: Prices of all its candidates, for a click.
      choices: Choices, at most one for each auction.
      raw_is_clicked: [choices], Type II data.

    Privacy:
      None for clicks: exact counts of them are in the bill, and the mechanism of selection
      protects the data a choice follows from, not what a user does afterwards.
    """
    _check_paid_event(prices.paid_event, PaidEvent.CLICK, "bill_impressions()")
    if raw_is_clicked.shape != choices.ads.shape:
        raise ConfigError("raw_is_clicked must have one entry for each of the choices.")
    amounts = to_micros(_prices_of(auctions, prices, choices))
    return _bill(
        choices.ads,
        np.where(raw_is_clicked, amounts, 0),
        np.ones(len(choices), np.int64),
        raw_is_clicked.astype(np.int64),
    )


def bill_counts(
    posted: PostedPrices, *, cells: IntArray, ads: IntArray, impressions: IntArray
) -> Bill:
    """Bills counts of impressions at posted prices; nobody needs to see a single choice.

    Args:
      posted: One price for each ad and cell.
      cells: [counts], cells as a shuffler may have added them up.
      ads: [counts], the ad of each.
      impressions: [counts], >= 0, how often the ad was chosen in the cell.

    Privacy:
      Unit: one decision. Post-processing of the counts with public prices: no event of its own.
    """
    _check_paid_event(posted.paid_event, PaidEvent.IMPRESSION, "post prices of impressions")
    if np.any(impressions < 0):
        raise DataError("impressions must be >= 0.")
    micros = posted.micros_of(cells, ads).tolist()
    # Whole numbers of Python: a product may not fit into 64 bits.
    lines = (
        BillLine(ad=ad, impressions=num, clicks=None, amount_micros=price * num)
        for ad, num, price in zip(ads.tolist(), impressions.tolist(), micros, strict=True)
    )
    return Bill(paid_event=PaidEvent.IMPRESSION, lines=_added_up(lines))


def merge_bills(bills: Iterable[Bill]) -> Bill:
    """One bill over several batches; it is the same however they were cut."""
    bills = list(bills)
    events = {bill.paid_event for bill in bills}
    if len(events) != 1:
        raise ConfigError(
            "bills to merge must be at least one, all for impressions or all for clicks."
        )
    return Bill(
        paid_event=events.pop(), lines=_added_up(line for bill in bills for line in bill.lines)
    )


def _prices_of(auctions: Auctions, prices: AdPrices, choices: Choices) -> FloatArray:
    if prices.amounts.shape != auctions.ads.shape:
        raise ConfigError("prices must be those of the same candidates.")
    return prices.amounts[choices.places(auctions)]


def _check_paid_event(paid_event: PaidEvent, wanted: PaidEvent, way_out: str) -> None:
    if paid_event is not wanted:
        raise ConfigError(
            f"these are prices of one {paid_event.value}, not of one {wanted.value}: use {way_out}."
        )


def _bill(ads: IntArray, micros: IntArray, shown: IntArray, clicked: IntArray | None) -> Bill:
    names, groups = np.unique(ads, return_inverse=True)
    sums = [sum_by_group(values, groups, len(names)) for values in (shown, micros)]
    clicks = None if clicked is None else sum_by_group(clicked, groups, len(names))
    return Bill(
        paid_event=PaidEvent.IMPRESSION if clicked is None else PaidEvent.CLICK,
        lines=tuple(
            BillLine(
                ad=ad,
                impressions=sums[0][row],
                clicks=None if clicks is None else clicks[row],
                amount_micros=sums[1][row],
            )
            for row, ad in enumerate(names.tolist())
        ),
    )


def _added_up(lines: Iterable[BillLine]) -> tuple[BillLine, ...]:
    totals: dict[int, BillLine] = {}
    for line in lines:
        other = totals.get(line.ad)
        totals[line.ad] = line if other is None else _sum(line, other)
    return tuple(totals[ad] for ad in sorted(totals))


def _sum(one: BillLine, other: BillLine) -> BillLine:
    clicks = None if one.clicks is None or other.clicks is None else one.clicks + other.clicks
    return BillLine(
        ad=one.ad,
        impressions=one.impressions + other.impressions,
        clicks=clicks,
        amount_micros=one.amount_micros + other.amount_micros,
    )
