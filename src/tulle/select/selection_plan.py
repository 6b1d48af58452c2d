"""What a selection promises, made before a private score is read, and what a server observes of it.

Type I data are what a choice follows from: a user's features and history. Type II data are what
a user does with the chosen ad. (Laro et al. 2024, sections 2.1 and 2.2.)
"""

import dataclasses
import enum

from tulle.accounting.accountant import privacy_curve
from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar
from tulle.privacy.guarantee import Claim, Guarantee
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.runs.charging import ReleaseTerms, release_plan
from tulle.select.billing.prices import PaidEvent, PricingRule
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.selection_config import Consent, SelectionConfig
from tulle.select.settings import mechanism_table


def make_selection_plan(
    config: SelectionConfig, columns: AuctionColumns, terms: ReleaseTerms | None = None
) -> Plan:
    """The plan of one selection. Reads nothing.

    Args:
      config: The selection.
      columns: Names of the auctions' columns.
      terms: Whether a ledger will know the selection, and where the draws will come from.
    """
    accounting = config.accounting
    is_user = config.privacy.is_by_user
    event = accounting.user_event() if is_user else accounting.decision_event()
    decision = _claim(accounting.decision_event(), Unit.impression(), config.privacy.delta)
    draft = Plan(
        name=config.name,
        mechanism=_sentence(config),
        settings=_settings(config),
        event=event,
        guarantee=_claim(event, config.privacy.unit, config.privacy.delta).guarantee,
        variants=(decision,) if is_user else (),
        trust=TrustModel.CENTRAL,
        columns=ColumnRoles(
            label=None,
            public=(columns.auction, columns.ad, columns.bid, columns.server_prob),
            sensitive=(columns.device_prob,),
            unit=columns.user if is_user else None,
        ),
        bounds=_bounds(config),
        assumptions=_assumptions(config),
    )
    return release_plan(draft, terms or ReleaseTerms(), what="selection", noise_word="draws")


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
    """Whether the selection itself protects it."""
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


def _claim(event: Event, unit: Unit, delta: float) -> Claim:
    guarantee = Guarantee(
        epsilon=privacy_curve(event, Adjacency.REPLACE).epsilon(delta),
        delta=delta,
        unit=unit,
        adjacency=Adjacency.REPLACE,
        scope=Scope.SENSITIVE_COLUMNS,
    )
    return Claim(guarantee=guarantee, event=event)


def _sentence(config: SelectionConfig) -> str:
    if config.mechanism.epsilon == 0:
        return "Each auction shows the server's winners; no private score is used."
    what = (
        "The ads of each auction are"
        if config.mechanism.num_slots > 1
        else "The ad of each auction is"
    )
    out = (
        "counts of each cell of equal finalists leave"
        if config.privacy.shuffle is not None
        else "the choice leaves as it is, and is counted and billed exactly"
    )
    return f"{what} drawn by {config.mechanism.name} from private scores; {out}."


def _settings(config: SelectionConfig) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {
        f"mechanism {name}": value for name, value in mechanism_table(config.mechanism).items()
    }
    settings |= {
        "pricing": config.pricing.name,
        "reserve": config.pricing.reserve,
        "fewest finalists": config.privacy.least_finalists,
        "consent": (
            "by column; without it the server's winner"
            if config.privacy.consent is Consent.COLUMN
            else "of everyone in the data, as the operator says"
        ),
        "ties": "by the order of the candidates",
        "drawn": "here, from a file of predictions; on devices nobody else sees these",
        "kept": "the auction and its ad, or counts; no score and no propensity",
    }
    if config.privacy.min_cell_size is not None:
        settings["smallest cell"] = config.privacy.min_cell_size
    for seen in what_the_server_observes(
        config.pricing.price_rule,
        TrustModel.LOCAL if config.privacy.shuffle is None else TrustModel.SHUFFLE,
        is_posted=config.pricing.is_posted,
    ):
        kind = "" if seen.user_data is UserData.NONE else f"{seen.user_data.value} data; "
        settings[f"server sees {seen.what}"] = f"{kind}{seen.protection}"
    return settings


def _bounds(config: SelectionConfig) -> tuple[Bound, ...]:
    if config.privacy.max_decisions_per_user is None:
        return (Bound(what="choices per decision", limit=1, where="one draw a decision"),)
    return (
        Bound(
            what="personalised decisions per user",
            limit=config.privacy.max_decisions_per_user,
            where="the first ones in the order of the file; the others get the server's winner",
        ),
    )


def _assumptions(config: SelectionConfig) -> tuple[Assumption, ...]:
    made = [
        Assumption(
            statement="Every candidate has a private score, so no device drops an ad.",
            status=Status.CHECKED,
            evidence="All scores are looked at before anything is spent.",
        ),
        Assumption(
            statement="Choices have exactly the stated law.",
            status=Status.ENFORCED,
            evidence="Whole numbers of 64-bit words, rounded so that no ratio exceeds e^epsilon.",
        ),
        Assumption(
            statement="Prices do not follow from private scores.",
            status=Status.ENFORCED,
            evidence="They are computed without reading them.",
        ),
        Assumption(
            statement="No choice leaves together with its propensity.",
            status=Status.ENFORCED,
            evidence="The writer refuses such columns.",
        ),
    ]
    if config.privacy.shuffle is not None:
        made.append(
            Assumption(
                statement="Personalised reports hide among enough others with the same finalists.",
                status=Status.ENFORCED,
                evidence="Smaller cells get the server's winner; only counts of cells are written.",
            )
        )
    if config.privacy.planned_on_devices:
        made.append(
            Assumption(
                statement="The panel whose predictions chose the mechanism has nobody in it who "
                "is decided on here.",
                status=Status.ASSUMED,
            )
        )
    return tuple(made)


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
