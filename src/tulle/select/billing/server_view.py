"""What a server observes of a private selection, and what protects each part of it.

Type I data are what a choice follows from: a user's features and history. Type II data are what
a user does with the chosen ad. (Laro et al. 2024, sections 2.1 and 2.2.)
"""

import dataclasses
import enum

from tulle.errors import ConfigError
from tulle.privacy.units import TrustModel
from tulle.select.ad_prices import PaidEvent
from tulle.select.billing.prices import PricingRule


class UserData(enum.Enum):
    """Which data of a user something may reveal."""

    TYPE_I = "Type I"
    TYPE_II = "Type II"
    BOTH = "Type I and Type II"
    NONE = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """One thing that a server sees."""

    what: str
    user_data: UserData
    is_protected: bool
    """By the selection itself."""
    protection: str


def what_the_server_observes(
    rule: PricingRule, trust_model: TrustModel, *, is_posted: bool
) -> tuple[Observation, ...]:
    """All that reaches the server, in the order of Laro et al. 2024, section 2.2.

    Args:
      rule: How prices follow from public data.
      trust_model: LOCAL if the server sees each choice, SHUFFLE if it sees counts of each cell.
      is_posted: True for one price for each ad and cell.
    """
    if trust_model is TrustModel.CENTRAL:
        raise ConfigError(
            "trust_model=central: a device chooses here and no server sees private data; "
            "use local or shuffle."
        )
    if trust_model is TrustModel.SHUFFLE and not is_posted:
        raise ConfigError(
            "trust_model=shuffle needs posted prices: a price that differs between auctions of a "
            "cell tells which of them an ad has won. Use post_prices()."
        )
    return (
        _MODEL,
        _choice(trust_model),
        _payment(is_posted),
        _engagement(rule.paid_event),
        _CONSENT,
    )


_MODEL = Observation(
    what="parameters of the click models",
    user_data=UserData.BOTH,
    is_protected=False,
    protection="not by the selection: train with differential privacy, under a budget of its own",
)
_CONSENT = Observation(
    what="whether the user agreed to personalised ads",
    user_data=UserData.NONE,
    is_protected=False,
    protection="none: without consent the server's winner is shown and no private data are read",
)


def _choice(trust_model: TrustModel) -> Observation:
    if trust_model is TrustModel.SHUFFLE:
        what = "how often each ad was chosen in each cell of auctions with the same candidates"
        protection = "epsilon of the mechanism, amplified by the other choices of the cell"
    else:
        what = "the chosen ad of every request"
        protection = "epsilon of the mechanism, on the device, before the choice leaves it"
    return Observation(
        what=what, user_data=UserData.TYPE_I, is_protected=True, protection=protection
    )


def _payment(is_posted: bool) -> Observation:
    source = "the posted price of the ad in its cell" if is_posted else "public bids and scores"
    return Observation(
        what="the amount to pay",
        user_data=UserData.TYPE_I,
        is_protected=True,
        protection=f"follows from the choice and {source}: no more is revealed than by the choice",
    )


def _engagement(paid_event: PaidEvent) -> Observation:
    is_needed = paid_event is PaidEvent.CLICK
    what = "clicks, exactly, to bill them" if is_needed else "clicks and what follows, if reported"
    return Observation(
        what=what,
        user_data=UserData.TYPE_II,
        is_protected=False,
        protection="none by the selection"
        + (": every paid click is known" if is_needed else "; billing does not need them"),
    )
