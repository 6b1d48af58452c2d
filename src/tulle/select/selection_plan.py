"""What a selection promises, made before a private score is read."""

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.plan_check import verify_plan
from tulle.data.auction_files import AuctionColumns
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.events import Event
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Claim, Plan
from tulle.privacy.settings import Scalar
from tulle.privacy.units import Adjacency, Owner, Scope, TrustModel, Unit
from tulle.runs.release_books import paid_once
from tulle.select.baselines.greedy import NonPersonalised
from tulle.select.billing.server_view import UserData, what_the_server_observes
from tulle.select.mechanism_table import mechanism_table
from tulle.select.selection_config import Consent, SelectionConfig
from tulle.select.slots import SlotMechanism


def make_selection_plan(
    config: SelectionConfig,
    columns: AuctionColumns,
    *,
    has_ledger: bool = False,
    noise_source: str = "operating-system entropy",
) -> Plan:
    """The plan of one selection. Reads nothing.

    Args:
      config: The selection.
      columns: Names of the auctions' columns.
      has_ledger: Whether a ledger will know the selection.
      noise_source: Where the draws will come from, in words.
    """
    accounting = config.accounting
    is_user = config.unit.owner is Owner.USER
    event = accounting.user_event() if is_user else accounting.decision_event()
    decision = _claim(accounting.decision_event(), Unit.impression(), config.delta)
    plan = Plan(
        name=config.name,
        mechanism=_sentence(config),
        settings=_settings(config, has_ledger=has_ledger, noise_source=noise_source),
        event=event,
        guarantee=_claim(event, config.unit, config.delta).guarantee,
        variants=(decision,) if is_user else (),
        trust=TrustModel.CENTRAL,
        columns=ColumnRoles(
            label=None,
            public=(columns.auction, columns.ad, columns.bid, columns.server_prob),
            sensitive=(columns.device_prob,),
            unit=columns.user if is_user else None,
        ),
        bounds=_bounds(config),
        assumptions=_assumptions(config, has_ledger),
    )
    verify_plan(plan)
    return plan


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
    if isinstance(config.mechanism, NonPersonalised):
        return "Each auction shows the server's winners; no private score is used."
    what = "The ads of each auction are" if _num_slots(config) > 1 else "The ad of each auction is"
    out = (
        "counts of each cell of equal finalists leave"
        if config.shuffle is not None
        else "the choice leaves as it is, and is counted and billed exactly"
    )
    return f"{what} drawn by {config.mechanism.name} from private scores; {out}."


def _num_slots(config: SelectionConfig) -> int:
    return config.mechanism.num_slots if isinstance(config.mechanism, SlotMechanism) else 1


def _settings(config: SelectionConfig, *, has_ledger: bool, noise_source: str) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {
        f"mechanism {name}": value for name, value in mechanism_table(config.mechanism).items()
    }
    settings |= {
        "pricing": config.pricing.name,
        "reserve": config.pricing.reserve,
        "fewest finalists": config.least_finalists,
        "consent": (
            "by column; without it the server's winner"
            if config.consent is Consent.COLUMN
            else "of everyone in the data, as the operator says"
        ),
        "charged to a ledger": has_ledger,
        "draws from": noise_source,
        "ties": "by the order of the candidates",
        "drawn": "here, from a file of predictions; on devices nobody else sees these",
        "kept": "the auction and its ad, or counts; no score and no propensity",
    }
    if config.shuffle is not None:
        settings["smallest cell"] = config.shuffle.min_cell_size
    for seen in what_the_server_observes(
        config.pricing.rule,
        TrustModel.LOCAL if config.shuffle is None else TrustModel.SHUFFLE,
        is_posted=config.pricing.is_posted,
    ):
        kind = "" if seen.user_data is UserData.NONE else f"{seen.user_data.value} data; "
        settings[f"server sees {seen.what}"] = f"{kind}{seen.protection}"
    return settings


def _bounds(config: SelectionConfig) -> tuple[Bound, ...]:
    if config.max_decisions_per_user is None:
        return (Bound(what="choices per decision", limit=1, where="one draw a decision"),)
    return (
        Bound(
            what="personalised decisions per user",
            limit=config.max_decisions_per_user,
            where="the first ones in the order of the file; the others get the server's winner",
        ),
    )


def _assumptions(config: SelectionConfig, has_ledger: bool) -> tuple[Assumption, ...]:
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
    if config.shuffle is not None:
        made.append(
            Assumption(
                statement="Personalised reports hide among enough others with the same finalists.",
                status=Status.ENFORCED,
                evidence="Smaller cells get the server's winner; only counts of cells are written.",
            )
        )
    if config.is_planned_on_devices:
        made.append(
            Assumption(
                statement="The panel whose predictions chose the mechanism has nobody in it who "
                "is decided on here.",
                status=Status.ASSUMED,
            )
        )
    if has_ledger:
        made.append(paid_once("selection"))
    return tuple(made)
