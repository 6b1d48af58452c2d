"""What a selection promises, made before a private score is read, and what a server observes of it.

Type I data are what a choice follows from: a user's features and history. Type II data are what
a user does with the chosen ad. (Laro et al. 2024, sections 2.1 and 2.2.)
"""

from tulle.accounting.accountant import privacy_curve
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar
from tulle.privacy.guarantee import Claim, Guarantee
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.runs.charging import ReleaseTerms, release_plan
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
    return settings | {f"server sees {what}": how for what, how in _seen(config).items()}


def _seen(config: SelectionConfig) -> dict[str, str]:
    """All that reaches the server and what protects it (Laro et al. 2024, section 2.2)."""
    choice = "the chosen ad of every request"
    protection = "epsilon of the mechanism, on the device, before the choice leaves it"
    if config.privacy.shuffle is not None:
        choice = "how often each ad was chosen in each cell of auctions with the same candidates"
        protection = "epsilon of the mechanism, amplified by the other choices of the cell"
    price = "public bids and scores"
    if config.pricing.is_posted:
        price = "the posted price of the ad in its cell"
    clicks, known = "clicks and what follows, if reported", "; billing does not need them"
    if config.pricing.is_paid_by_click:
        clicks, known = "clicks, exactly, to bill them", ": every paid click is known"
    return {
        "parameters of the click models": "Type I and Type II data; not by the selection: train "
        "with differential privacy, under a budget of its own",
        choice: f"Type I data; {protection}",
        "the amount to pay": f"Type I data; follows from the choice and {price}: no more is "
        "revealed than by the choice",
        clicks: f"Type II data; none by the selection{known}",
        "whether the user agreed to personalised ads": "none: without consent the server's winner "
        "is shown and no private data are read",
    }


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
