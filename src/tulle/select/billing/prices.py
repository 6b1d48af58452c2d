"""What each candidate of an auction would pay, by the order of the server's scores.

Nothing private enters: a price is a function of the winner and of public data, so that knowing
it says no more than knowing the winner. Prices come before any shortlist: the last finalist pays
the score of the first ad that was left out, and not the reserve.
(Laro et al. 2024, section 4.1 and appendix A.)
"""

import enum

import numpy as np

from tulle.errors import DataError
from tulle.select.ad_prices import AdPrices, PaidEvent
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.billing.reserve import check_reserve


class PricingRule(enum.Enum):
    """How a price follows from bids and the server's predictions."""

    SECOND_PRICE = "second-price"
    """An impression costs the next server score below, the last one the reserve."""
    SECOND_PRICE_PER_CLICK = "second-price-per-click"
    """The same as a price of a click: divided by the ad's own server click chance."""
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
    for group in auctions.size_groups():
        order = np.argsort(-scores[group.places], axis=1, kind="stable")
        ranked_places = np.take_along_axis(group.places, order, axis=1)
        next_scores[ranked_places[:, :-1]] = scores[ranked_places[:, 1:]]
        next_scores[ranked_places[:, -1]] = reserve
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
