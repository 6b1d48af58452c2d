"""What each candidate would pay, before any choice is made, and what prices bring on average.

Nothing private enters: a price is a function of the winner and of public data, so that knowing
it says no more than knowing the winner. Prices come before any shortlist: the last finalist pays
the score of the first ad that was left out, and not the reserve. (Laro et al. 2024, section 4.1
and appendix A.)

Posted prices are one for each ad and cell, where a cell is a set of auctions with the same
candidates: the mean of what the ad would pay in them. Where a shuffler hides who chose what, a
price that differs from auction to auction undoes it: few sets of auctions add up to an exact total
of spend, and with prices to the millionth usually one alone. The totals then name the winner of
every auction. A price that is the same in all auctions of a cell leaves nothing in a total but the
number of impressions.

A price is rounded down to a millionth ("micro") once, before anything is added up. From then on
there are whole numbers alone, so totals do not depend on the order of lines.

What prices bring is an exact expectation over the draws of a mechanism, with the device's
prediction taken as the true probability of a click ("direct method").
"""

import dataclasses
import enum

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray, IntArray, check_reserve

MICROS_PER_UNIT = 1_000_000
"""Millionths of the currency, in which all amounts are whole numbers."""
MAX_PRICE = 100_000_000
"""Largest price, in units of the currency. Up to here a float knows it to a tenth of a micro."""
_ROUNDING_NOISE = 2.0**-50  # a few roundings of float64, each of 2^-53 at most
_LOW_BITS = 32
"""Bits of the lower half of a number: sums of halves do not overflow 64 bits."""


class PaidEvent(enum.Enum):
    """What an advertiser pays for."""

    IMPRESSION = "impression"
    CLICK = "click"
    """Type II data: the selection mechanism does not protect them."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AdPrices:
    """One price for each candidate of some auctions. Public."""

    amounts: FloatArray
    """[candidates], >= 0, in the currency of the bids."""
    paid_event: PaidEvent

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.amounts)) or np.any(self.amounts < 0):
            raise DataError("prices must be finite and >= 0.")


class PricingRule(enum.Enum):
    """How a price follows from bids and the server's predictions."""

    SECOND_PRICE = "second-price"
    """An impression costs the next server score below, the last one the reserve."""
    SECOND_PRICE_PER_CLICK = "second-price-per-click"
    """The same as a price of a click: divided by the ad's own server click probability."""
    FIRST_PRICE = "first-price"
    """An impression costs the ad's own server score."""
    FIRST_PRICE_PER_CLICK = "first-price-per-click"
    """A click costs the bid."""

    @property
    def paid_event(self) -> PaidEvent:
        """What is paid for."""
        is_per_click = self in (self.SECOND_PRICE_PER_CLICK, self.FIRST_PRICE_PER_CLICK)
        return PaidEvent.CLICK if is_per_click else PaidEvent.IMPRESSION


def price_candidates(auctions: Auctions, rule: PricingRule, *, reserve: float) -> AdPrices:
    """One price for each candidate.

    Args:
      auctions: All eligible candidates of each auction, before any shortlist.
      rule: How they pay.
      reserve: What the last of an auction pays for an impression by second price.
    """
    reserve = check_reserve(reserve)
    if np.any(auctions.server_scores < reserve):
        raise DataError(
            f"a candidate has a server score below reserve={reserve}; "
            "keep those that may take part with above_reserve()."
        )
    return AdPrices(amounts=_amounts(auctions, rule, reserve), paid_event=rule.paid_event)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PostedPrices:
    """A price list. Public."""

    paid_event: PaidEvent
    cells: IntArray
    """[rows], rising."""
    ads: IntArray
    """[rows], rising within a cell, none twice."""
    micros: IntArray
    """[rows], the price of the ad in the cell."""

    def __post_init__(self) -> None:
        if not self.cells.shape == self.ads.shape == self.micros.shape:
            raise DataError("a price list needs one cell, one ad and one price each.")
        is_same_cell = np.diff(self.cells) == 0
        if np.any(np.diff(self.cells) < 0) or np.any(np.diff(self.ads)[is_same_cell] <= 0):
            raise DataError("a price list must be sorted by cell and ad, without a pair twice.")
        if np.any(self.micros < 0):
            raise DataError("posted prices must be >= 0.")

    def micros_of(self, cells: IntArray, ads: IntArray) -> IntArray:
        """[rows], the price of each ad in its cell."""
        listed, groups = _numbered_pairs(
            np.concatenate([self.cells, cells]), np.concatenate([self.ads, ads])
        )
        if len(listed) > len(self.cells):
            raise DataError(
                "an ad has no posted price in its cell; post prices from the same batch."
            )
        # The list has every pair once and in the order of the numbers.
        return self.micros[groups[len(self.cells) :]]

    def prices(self, auctions: Auctions, cells: IntArray) -> AdPrices:
        """The posted price of every candidate.

        Args:
          auctions: The public side.
          cells: [auctions], the cell of each.
        """
        micros = self.micros_of(_cell_of_candidates(auctions, cells), auctions.ads)
        return AdPrices(amounts=from_micros(micros), paid_event=self.paid_event)


def post_prices(auctions: Auctions, prices: AdPrices, cells: IntArray) -> PostedPrices:
    """The mean price of each ad over the auctions of a cell, rounded down to a micro.

    A mean may be above the ad's server score in a single auction, but not above its mean score.

    Args:
      auctions: What devices choose from, so after the shortlist.
      prices: Prices of those candidates, computed before the shortlist.
      cells: [auctions], the cell of each. Auctions of one cell must have the same ads.
    """
    if prices.amounts.shape != auctions.ads.shape:
        raise ConfigError("prices must be those of the same candidates.")
    candidate_cells = _cell_of_candidates(auctions, cells)
    pairs, groups = _numbered_pairs(candidate_cells, auctions.ads)
    num_auctions = np.bincount(groups, minlength=len(pairs))
    _check_same_ads(pairs[:, 0], num_auctions, cells)
    sums = sum_by_group(to_micros(prices.amounts), groups, len(pairs))
    means = [total // num for total, num in zip(sums, num_auctions.tolist(), strict=True)]
    return PostedPrices(
        paid_event=prices.paid_event,
        cells=pairs[:, 0],
        ads=pairs[:, 1],
        micros=np.array(means, np.int64),
    )


def to_micros(amounts: FloatArray) -> IntArray:
    """Prices in micros, rounded down.

    What differs from a whole micro by no more than the rounding of float64 is that micro: 8.2 is
    8,200,000 micros, although the nearest float64 is a little less. A lower price is never more.
    """
    if not np.all((amounts >= 0) & (amounts <= MAX_PRICE)):
        raise DataError(
            f"prices must be in [0, {MAX_PRICE:,}] units of the currency; use a larger unit."
        )
    micros = amounts * MICROS_PER_UNIT
    nearest = np.rint(micros)
    is_whole = np.abs(micros - nearest) <= nearest * _ROUNDING_NOISE
    return np.where(is_whole, nearest, np.floor(micros)).astype(np.int64)


def from_micros(micros: IntArray) -> FloatArray:
    """The nearest float64 prices; `to_micros` gives the same micros back."""
    return micros / MICROS_PER_UNIT


def sum_by_group(micros: IntArray, groups: IntArray, num_groups: int) -> list[int]:
    """Exact sums, without a limit on their size.

    Args:
      micros: [rows], each of one price.
      groups: [rows], from 0 to `num_groups` - 1.
      num_groups: How many sums there are.
    """
    # Two halves of each price, because the sum of whole prices may not fit into 64 bits.
    halves = (micros >> _LOW_BITS, micros & ((1 << _LOW_BITS) - 1))
    high_sums, low_sums = (np.zeros(num_groups, np.int64) for _ in halves)
    np.add.at(high_sums, groups, halves[0])
    np.add.at(low_sums, groups, halves[1])
    return [
        (high << _LOW_BITS) + low
        for high, low in zip(high_sums.tolist(), low_sums.tolist(), strict=True)
    ]


def money_text(micros: int) -> str:
    """All digits, e.g. "12.345678"."""
    units, rest = divmod(micros, MICROS_PER_UNIT)
    return f"{units}.{rest:06d}"


def _amounts(auctions: Auctions, rule: PricingRule, reserve: float) -> FloatArray:
    if rule is PricingRule.FIRST_PRICE:
        return auctions.server_scores
    if rule is PricingRule.FIRST_PRICE_PER_CLICK:
        return auctions.bids
    next_scores = _next_scores(auctions, reserve)
    if rule is PricingRule.SECOND_PRICE:
        return next_scores
    return _per_click(auctions, next_scores)


def _next_scores(auctions: Auctions, reserve: float) -> FloatArray:
    scores = auctions.server_scores
    next_scores = np.empty_like(scores)
    for group in auctions.ranked_groups(scores):
        next_scores[group.places[:, :-1]] = scores[group.places[:, 1:]]
        next_scores[group.places[:, -1]] = reserve
    return next_scores


def _per_click(auctions: Auctions, next_scores: FloatArray) -> FloatArray:
    # An ad that is never clicked has score 0, so have all below it: its clicks are free.
    click_probs = auctions.server_click_probs
    can_be_clicked = click_probs > 0
    amounts = np.divide(
        next_scores, click_probs, out=np.zeros_like(next_scores), where=can_be_clicked
    )
    # The quotient is at most the bid but for its rounding.
    return np.minimum(amounts, auctions.bids)


def _cell_of_candidates(auctions: Auctions, cells: IntArray) -> IntArray:
    if cells.shape != (len(auctions),):
        raise ConfigError("cells must have one entry for each of the auctions.")
    return np.repeat(cells, auctions.sizes)


def _numbered_pairs(cells: IntArray, ads: IntArray) -> tuple[IntArray, IntArray]:
    """All (cell, ad) in their order, and the number of the one in each row."""
    pairs = np.stack([cells, ads], axis=1)
    order = np.lexsort((ads, cells))
    is_new = np.ones(len(pairs), np.bool_)
    is_new[1:] = np.any(np.diff(pairs[order], axis=0) != 0, axis=1)
    groups = np.empty(len(pairs), np.int64)
    groups[order] = np.cumsum(is_new) - 1
    return pairs[order[is_new]], groups


def _check_same_ads(pair_cells: IntArray, num_auctions: IntArray, cells: IntArray) -> None:
    names, sizes = np.unique(cells, return_counts=True)
    # Ads are distinct within an auction: in every one of the cell is in as many as it has.
    if np.any(num_auctions != sizes[np.searchsorted(names, pair_cells)]):
        raise DataError(
            "auctions of one cell have different candidates; a report hides only among auctions "
            "that could have given it. Make one cell for each set of candidates."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarketMetrics:
    """Means over auctions. Computed from private data: as sensitive as they are."""

    click_rate: float
    """Clicks an impression."""
    revenue: float
    """What advertisers pay an impression."""
    welfare: float
    """Value of the clicks to advertisers: surplus and revenue together."""

    @property
    def surplus(self) -> float:
        """What advertisers keep of the value."""
        return self.welfare - self.revenue

    def to_dict(self) -> dict[str, float]:
        """All four numbers by name."""
        return {
            "click_rate": self.click_rate,
            "revenue": self.revenue,
            "surplus": self.surplus,
            "welfare": self.welfare,
        }


def expected_metrics(
    auctions: Auctions, device: DeviceClicks, selection_probs: FloatArray, prices: AdPrices
) -> MarketMetrics:
    """Exact means for given probabilities of selection.

    Args:
      auctions: The public side.
      device: Predictions that are taken as the truth.
      selection_probs: [candidates], adding up to 1 in each auction.
      prices: Prices of all candidates.
    """
    if selection_probs.shape != auctions.bids.shape or prices.amounts.shape != auctions.bids.shape:
        raise ConfigError("probabilities and prices must be those of the same candidates.")
    # Sums of products, not dot products: those start threads that cost more than they save.
    clicks = selection_probs * device.click_probs
    paid = clicks if prices.paid_event is PaidEvent.CLICK else selection_probs
    return MarketMetrics(
        click_rate=float(clicks.sum()) / len(auctions),
        revenue=float((paid * prices.amounts).sum()) / len(auctions),
        welfare=float((clicks * auctions.bids).sum()) / len(auctions),
    )


def captured_share(metrics: float, *, baseline: float, ideal: float) -> float:
    """Share of the gain of personalisation that is kept.

    Args:
      metrics: What a mechanism is worth.
      baseline: What it is worth not to personalise.
      ideal: What greedy selection is worth, without privacy.
    """
    if not ideal > baseline:
        raise ConfigError(
            "there is no gain to share: devices prefer what the server does. Give predictions of "
            "devices that know more than the server."
        )
    return (metrics - baseline) / (ideal - baseline)
