"""Selection in production: a server offers, devices choose, the server observes and bills.

`tulle.select.decide` stands in for devices and sees what they predict. Here each device decides for
itself, and each object holds what its party knows. An `Offer` goes down and `Choices` go up;
nothing else crosses. Prices are fixed before an offer leaves, so no choice can move them.
(Laro et al. 2024, algorithm 2.)
"""

import dataclasses
from typing import Protocol

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.select.auctions import (
    Auctions,
    BoolArray,
    DeviceClicks,
    IntArray,
    above_reserve,
    check_reserve,
    keep_candidates,
)
from tulle.select.billing.bill import Bill, Choices, bill_clicks, bill_impressions
from tulle.select.billing.prices import AdPrices, PaidEvent, PricingRule, price_candidates
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism, favourites
from tulle.select.mechanisms.noisy_max import NoisyMax
from tulle.select.mechanisms.shortlists import AllCandidates, FinalistAuctions, Shortlist
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.recommending import Selection, selection_of
from tulle.select.selection_config import SelectionConfig


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
    """Prices of all finalists."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """A server, which knows public data alone: context, candidates, bids and its predictions."""

    rule: PricingRule
    """How prices follow from bids and predictions."""
    reserve: float
    """Least server score that takes part."""
    shortlist: Shortlist = dataclasses.field(default_factory=AllCandidates)
    """Who is offered at all. The law of a choice is that of a mechanism with this shortlist."""

    def __post_init__(self) -> None:
        check_reserve(self.reserve)

    @classmethod
    def of(cls, selection: Selection) -> "Server":
        """The server of a selection.

        Args:
          selection: What `plan` gave, a config, a settings file, or its tables.

        Raises:
          ConfigError: The selection is one that single devices cannot carry out.
        """
        config, mechanism = _served(selection)
        return cls(
            rule=config.pricing.price_rule,
            reserve=config.pricing.reserve,
            shortlist=mechanism.shortlist or AllCandidates(),
        )

    def open_requests(self, auctions: Auctions) -> OpenRequests:
        """Drops what is below the reserve, prices what is left, and only then shortens it.

        Args:
          auctions: One for each request, with every candidate.
        """
        eligible = above_reserve(auctions, self.reserve)
        # Priced among all that are eligible and before a device is asked, so that whoever pays
        # learns nothing from a price but public data.
        prices = price_candidates(eligible.auctions, self.rule, reserve=self.reserve)
        finalists = FinalistAuctions.of_shortlist(eligible.auctions, self.shortlist)
        return OpenRequests(
            offer=Offer(requests=eligible.kept_auctions, finalists=finalists.auctions),
            prices=AdPrices(amounts=prices.amounts[finalists.places], paid_event=prices.paid_event),
        )

    def bill(
        self, opened: OpenRequests, choices: Choices, *, raw_is_clicked: BoolArray | None = None
    ) -> Bill:
        """What advertisers owe for observed choices, exactly.

        Args:
          opened: The requests that the choices answer.
          choices: Choices by number of the request; requests without an answer cost nothing.
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
        """Predictions for all finalists of the offer. Sensitive."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """One device for each request. Only what `choose` returns leaves them."""

    mechanism: SelectionMechanism
    """How an ad is drawn from the finalists of an offer."""
    click_model: ClickModel = dataclasses.field(repr=False)
    """Model that predicts clicks from private data."""
    least_finalists: int = 1
    """Fewest finalists of a personalised decision; with fewer the server's winner is shown."""

    @classmethod
    def of(cls, selection: Selection, click_model: ClickModel) -> "Devices":
        """The devices of a selection.

        Args:
          selection: What `plan` gave, a config, a settings file, or its tables.
          click_model: Model that predicts clicks from private data.

        Raises:
          ConfigError: The selection is one that single devices cannot carry out.
        """
        config, mechanism = _served(selection)
        # The server has shortened the list: all that a device is offered are finalists.
        if isinstance(mechanism, FloorMechanism | NoisyMax):
            mechanism = dataclasses.replace(mechanism, shortlist=AllCandidates())
        return cls(
            mechanism=mechanism,
            click_model=click_model,
            least_finalists=config.privacy.least_finalists,
        )

    def choose(
        self, offer: Offer, *, has_consent: BoolArray, rng: NoiseSource | None = None
    ) -> Choices:
        """The ad that each device shows, by number of the request.

        Without consent it is the server's winner, and the click model is not asked.

        Args:
          offer: What the server sent.
          has_consent: [offers], whether the user agreed to personalised ads. Public: a device
            without consent answers as the server would.
          rng: Source of the draws; None: the operating system. Sensitive: never log or save its
            state.

        Privacy:
          Unit: one decision, whose private data are replaced by any others. Event: that of the
          mechanism for `least_finalists`. Relies on: finalists and consent that follow from
          no private data; nothing but the choice leaves the device.
        """
        rng = rng or release_rng()
        if has_consent.shape != offer.requests.shape:
            raise ConfigError("has_consent must have one entry for each of the offers.")
        finalists = offer.finalists
        ads = finalists.ads[favourites(finalists, finalists.server_scores)]
        # Fewer finalists cost more than the event says, so they are decided without private data.
        is_asked = has_consent & (finalists.sizes >= self.least_finalists)
        agreed = keep_candidates(finalists, np.repeat(is_asked, finalists.sizes))
        if len(agreed.auctions):
            part = Offer(requests=offer.requests[agreed.kept_auctions], finalists=agreed.auctions)
            raw_scores = self.click_model.click_probs(part).scores(agreed.auctions)
            places = self.mechanism.choose(agreed.auctions, raw_scores, rng=rng)
            ads[agreed.kept_auctions] = agreed.auctions.ads[places]
        return Choices(auctions=offer.requests, ads=ads)


def _served(selection: Selection) -> tuple[SelectionConfig, SelectionMechanism]:
    """A selection that devices carry out one by one, and its mechanism."""
    config = selection_of(selection)
    if config.privacy.is_by_user:
        raise ConfigError(
            "unit='user' limits the decisions of a user, which each device must count for itself; "
            "serve with unit='impression', and stop after as many decisions."
        )
    if config.pricing.is_posted:
        raise ConfigError(
            "posted prices are means over a batch; decide and bill whole batches with decide() "
            "and bill()."
        )
    if isinstance(config.mechanism, SlotMechanism):
        raise ConfigError("several slots are decided in batches, with decide(); serve one slot.")
    return config, config.mechanism
