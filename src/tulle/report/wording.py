"""What a guarantee says in plain words: verdict, promise and what stays open.

Written for readers who know no mathematics. Each sentence must be true word
for word: it names the scope and the adjacency, and numbers are rounded up.
"""

import math
from collections.abc import Sequence

from tulle.accounting.plan_check import TOLERANCE
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Plan
from tulle.privacy.rounding import round_up
from tulle.privacy.units import Adjacency, Owner, Scope, TrustModel, Unit

NOT_PRIVATE = "NOT A PRIVATE RELEASE"

_OWNER_NAMES = {
    Owner.EXAMPLE: "example",
    Owner.USER: "user",
    Owner.USER_ADVERTISER: "pair of user and advertiser",
    Owner.USER_PUBLISHER: "pair of user and publisher",
    Owner.IMPRESSION: "impression",
    Owner.CONVERSION: "conversion",
}
_MANY_OF_A_USER = {Owner.USER_ADVERTISER: "advertisers", Owner.USER_PUBLISHER: "publishers"}
_OTHER_ROWS = {Owner.IMPRESSION: "Conversions", Owner.CONVERSION: "Impressions"}
_TRUST_MEANINGS = {
    TrustModel.CENTRAL: "The party that runs tulle sees raw rows and adds the noise.",
    TrustModel.LOCAL: "Each device adds its own noise; nobody else sees a raw value.",
    TrustModel.SHUFFLE: "Each device adds its own noise, and a shuffler that is trusted not to "
    "link reports to devices mixes them.",
}


def verdict_line(guarantee: Guarantee, reasons: Sequence[str]) -> str:
    """The first line of a card."""
    if reasons:
        return NOT_PRIVATE
    whole = guarantee.scope is Scope.WHOLE_ROWS
    whom = unit_phrase(guarantee.unit) if whole else _protected(guarantee)
    return (
        f"Private release: epsilon={print_up(guarantee.epsilon)}, "
        f"delta={print_up(guarantee.delta)} for {whom} ({guarantee.adjacency.value})"
    )


def claim_sentence(guarantee: Guarantee, reasons: Sequence[str]) -> str:
    """The promise, or that there is none."""
    if not guarantee.is_private:
        return (
            f"There is no guarantee: the release may reveal everything about "
            f"{unit_phrase(guarantee.unit)}."
        )
    promise = f"{_change(guarantee)}, {_effect(guarantee)}"
    if not reasons:
        return promise
    return (
        "There is no guarantee, for the reasons given first. Without those reasons this would "
        f"hold: {promise[0].lower()}{promise[1:]}"
    )


def unprotected_facts(
    plan: Plan, measured_on: Sequence[str] = (), *, has_audit: bool = False
) -> tuple[str, ...]:
    """What the headline of a plan does not protect, one sentence each."""
    guarantee, columns = plan.guarantee, plan.columns
    facts = ["The settings and every other entry of this card: they are public."]
    if columns.public:
        facts.append(f"The public columns: {', '.join(columns.public)}.")
    if guarantee.scope is Scope.LABELS:
        facts.append("Which rows there are, and their order: rows chosen or sorted by labels tell.")
    if guarantee.scope is Scope.LABELS and columns.sensitive:
        facts.append(f"The sensitive columns: {', '.join(columns.sensitive)}.")
    if guarantee.scope is Scope.SENSITIVE_COLUMNS and columns.label is not None:
        facts.append(f"The label: {columns.label}.")
    if guarantee.adjacency is not Adjacency.ADD_OR_REMOVE:
        time = "" if columns.time is None else f", or when they happened ({columns.time})"
        facts.append(f"That a unit is in the data, how many rows it has{time}.")
    facts += _beyond_unit(guarantee)
    if guarantee.unit.window_seconds is not None:
        facts.append("Several time windows together: each is protected on its own.")
    facts += [
        f"The data behind the utility figures: {data}." for data in dict.fromkeys(measured_on)
    ]
    if has_audit:
        facts.append("The result of the audit: it was counted without noise.")
    facts.append("Facts about people in general, which would show without any one unit too.")
    return tuple(facts)


def unit_phrase(unit: Unit) -> str:
    """One unit, as in "one user within one window of 7 days"."""
    _, _, window = str(unit).partition(" per ")
    name = f"one {_OWNER_NAMES[unit.owner]}"
    if not window:
        return name
    return f"{name} within one window of {window if window[0].isdigit() else f'1 {window}'}"


def trust_meaning(trust: TrustModel) -> str:
    """Who sees raw data."""
    return _TRUST_MEANINGS[trust]


def _beyond_unit(guarantee: Guarantee) -> list[str]:
    """What of one person is outside of one unit."""
    owner = guarantee.unit.owner
    if not owner.is_one_row:
        facts = ["One person behind several ids: each id is protected on its own."]
        if owner in _MANY_OF_A_USER:
            facts.append(
                f"One user with several {_MANY_OF_A_USER[owner]} together: each pair is protected "
                "on its own."
            )
        return facts
    facts = ["All rows of one person together: each row is protected on its own."]
    if guarantee.scope is Scope.WHOLE_ROWS and owner in _OTHER_ROWS:
        facts.append(f"{_OTHER_ROWS[owner]}: they are not protected at all.")
    return facts


def _protected(guarantee: Guarantee) -> str:
    whole = guarantee.scope is Scope.WHOLE_ROWS
    what = "all rows" if whole else f"the {guarantee.scope.value}"
    return f"{what} of {unit_phrase(guarantee.unit)}"


def _change(guarantee: Guarantee) -> str:
    protected = _protected(guarantee)
    if guarantee.adjacency is Adjacency.ADD_OR_REMOVE:
        return f"If {protected} were added to the data or removed from it"
    if guarantee.adjacency is Adjacency.ZERO_OUT:
        return f"If {protected} counted for nothing while the rows kept their place"
    stays = "the number of rows"
    if guarantee.scope is not Scope.WHOLE_ROWS:
        stays = f"all other columns and {stays}"
    return f"If {protected} were replaced by any others while {stays} stayed the same"


def _effect(guarantee: Guarantee) -> str:
    epsilon = print_up(guarantee.epsilon)
    factor = (
        f"{print_up(math.exp(guarantee.epsilon))} (e to the power epsilon={epsilon})"
        if guarantee.epsilon < 20
        else f"e to the power epsilon={epsilon}"
    )
    extra = "" if guarantee.delta == 0 else f" plus {print_up(guarantee.delta)} (delta)"
    return (
        "the probability of anything that this release may show would change by at most a "
        f"factor of {factor}{extra}."
    )


def print_up(value: float) -> str:
    """Four digits, rounded up; the slack is that of a verified claim."""
    return f"{round_up(value, 4, slack=TOLERANCE):.4g}"
