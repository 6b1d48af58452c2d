"""The algorithm end to end: a server offers, devices choose, the server observes and bills.

Each object holds what its party knows. An `Offer` goes down and `Choices` go up; nothing else
crosses. Prices are fixed before an offer leaves, so no choice can move them.
(Laro et al. 2024, algorithm 2.)
"""

import dataclasses
from typing import Protocol

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource
from tulle.select.ad_prices import AdPrices, PaidEvent
from tulle.select.auctions import Auctions, BoolArray, DeviceClicks, IntArray
from tulle.select.billing.bill import Bill, bill_clicks, bill_impressions
from tulle.select.billing.choices import Choices
from tulle.select.billing.prices import PricingRule, price_candidates
from tulle.select.billing.reserve import above_reserve, check_reserve, keep_candidates
from tulle.select.floors.shortlist import AllCandidates, Shortlist
from tulle.select.mechanism import SelectionMechanism
from tulle.select.server_ranks import server_ranks


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Offer:
    """What devices receive: finalists with bids and server predictions. Public."""

    requests: IntArray
    """[offers], the number of each request; a request without an eligible ad gets no offer."""
    finalists: Auctions
    """One auction for each offer."""

    def answers(self, choices: Choices) -> Choices:
        """The same choices by number of the offer, from 0, instead of the request."""
        if not np.all(np.isin(choices.auctions, self.requests)):
            raise DataError(
                "a choice answers a request that got no offer; bill it with its own batch."
            )
        rows = np.searchsorted(self.requests, choices.auctions)
        return Choices(auctions=rows, ads=choices.ads)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OpenRequests:
    """What the server keeps until choices come back: the offer and its prices. Public."""

    offer: Offer
    prices: AdPrices
    """Of all finalists."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """Knows public data alone: context, candidates, bids and its own predictions."""

    rule: PricingRule
    reserve: float
    shortlist: Shortlist = dataclasses.field(default_factory=AllCandidates)
    """Who is offered at all. The law of a choice is that of a mechanism with this shortlist."""

    def __post_init__(self) -> None:
        check_reserve(self.reserve)

    def open_requests(self, auctions: Auctions) -> OpenRequests:
        """Drops what is below the reserve, prices what is left, and only then shortens it.

        Args:
          auctions: One for each request, with every candidate.
        """
        eligible = above_reserve(auctions, self.reserve)
        prices = price_candidates(eligible.auctions, self.rule, reserve=self.reserve)
        finalists = keep_candidates(
            eligible.auctions, _is_finalist(eligible.auctions, self.shortlist)
        )
        return OpenRequests(
            offer=Offer(requests=eligible.kept_auctions, finalists=finalists.auctions),
            prices=AdPrices(
                amounts=prices.amounts[finalists.kept_candidates], paid_event=prices.paid_event
            ),
        )

    def bill(
        self, opened: OpenRequests, choices: Choices, *, raw_is_clicked: BoolArray | None = None
    ) -> Bill:
        """What advertisers owe for observed choices, exactly.

        Args:
          opened: The requests that the choices answer.
          choices: By number of the request; requests without an answer cost nothing.
          raw_is_clicked: [choices], for prices of clicks alone: Type II data.

        Privacy:
          Post-processing of choices: no event of its own. Clicks are not protected.
        """
        answers = opened.offer.answers(choices)
        if opened.prices.paid_event is PaidEvent.IMPRESSION:
            if raw_is_clicked is not None:
                raise ConfigError("raw_is_clicked is not needed: impressions are paid. Leave it.")
            return bill_impressions(opened.offer.finalists, opened.prices, answers)
        if raw_is_clicked is None:
            raise ConfigError(f"rule={self.rule.value} charges for clicks: give raw_is_clicked.")
        return bill_clicks(
            opened.offer.finalists, opened.prices, answers, raw_is_clicked=raw_is_clicked
        )


class ClickModel(Protocol):
    """A model that runs on devices and reads their private data."""

    def click_probs(self, offer: Offer) -> DeviceClicks:
        """Of all finalists of the offer. Sensitive."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """One device for each request. Only what `choose` returns leaves them."""

    mechanism: SelectionMechanism
    click_model: ClickModel = dataclasses.field(repr=False)

    def choose(self, offer: Offer, *, has_consent: BoolArray, rng: NoiseSource) -> Choices:
        """The ad that each device shows, by number of the request.

        Without consent it is the server's winner, and the click model is not asked.

        Args:
          offer: What the server sent.
          has_consent: [offers], whether the user agreed to personalised ads. Public: a device
            without consent answers as the server would.
          rng: Source of the draws. Sensitive: never log or save its state.

        Privacy:
          Unit: one decision, whose private data are replaced by any others. Event: that of the
          mechanism for the fewest finalists. Relies on: finalists and consent that follow from
          no private data; nothing but the choice leaves the device.
        """
        if has_consent.shape != offer.requests.shape:
            raise ConfigError("has_consent must have one entry for each of the offers.")
        finalists = offer.finalists
        ads = finalists.ads[server_winners(finalists)]
        agreed = keep_candidates(finalists, np.repeat(has_consent, finalists.sizes))
        if len(agreed.auctions):
            part = Offer(requests=offer.requests[agreed.kept_auctions], finalists=agreed.auctions)
            raw_scores = self.click_model.click_probs(part).scores(agreed.auctions)
            places = self.mechanism.choose(agreed.auctions, raw_scores, rng=rng)
            ads[agreed.kept_auctions] = agreed.auctions.ads[places]
        return Choices(auctions=offer.requests, ads=ads)


def server_winners(auctions: Auctions) -> IntArray:
    """[auctions], the place of the best server score, the first among equals."""
    return np.flatnonzero(server_ranks(auctions) == 0)


def _is_finalist(auctions: Auctions, shortlist: Shortlist) -> BoolArray:
    num_finalists = shortlist.sizes(auctions)
    is_finalist: BoolArray = server_ranks(auctions) < np.repeat(num_finalists, auctions.sizes)
    return is_finalist
