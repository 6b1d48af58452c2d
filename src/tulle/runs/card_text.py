"""What a guarantee says in plain words: verdict, promise and what stays open.

Written for readers who know no mathematics. Each sentence must be true word
for word: it names the scope and the adjacency, and numbers are rounded up.

Markdown of a card is made from the data of card.json and nothing else. Text that
people wrote is escaped: it can neither end a table row nor become a heading, a link
or a tag.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tulle.accounting.accountant import TOLERANCE, group_cost
from tulle.errors import DataError
from tulle.privacy.guarantee import Guarantee, round_up
from tulle.privacy.plan import Plan
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
_NUMBERS_OF_ROWS = (2, 5, 10)
"""Numbers of rows of one person of which a card says what they have together."""
_SPECIAL = re.compile(r"([\\`*\[\]<>|~&$#]|(?<![^\W_])_|_(?![^\W_]))")
_LINE_START = re.compile(r"^([+=-]|\d+(?=[.)](?:\s|$)))")
_PROVENANCE_ROWS = (
    ("tulle", "tulle_version"),
    ("Python", "python_version"),
    ("platform", "platform"),
    ("made at (UTC)", "created_at"),
    ("plan fingerprint (SHA-256)", "plan_fingerprint"),
    ("data fingerprint (keyed)", "data_fingerprint"),
)


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
    """What the headline of a plan does not protect, one sentence each.

    Args:
      plan: What was promised.
      measured_on: Data behind the utility figures.
      has_audit: Whether the card has an audit.
    """
    guarantee, columns = plan.guarantee, plan.columns
    facts = ["The settings and every other entry of this card: they are public."]
    if columns.public:
        facts.append(f"The public columns: {', '.join(columns.public)}.")
    if columns.weight is not None:
        facts.append(f"How much each row counts in training, which column {columns.weight} says.")
    if guarantee.scope is Scope.LABELS:
        facts.append(
            "Which rows are in the table and their order (do not select or sort by label)."
        )
    if guarantee.scope is Scope.LABELS and columns.sensitive:
        facts.append(f"The sensitive columns: {', '.join(columns.sensitive)}.")
    if guarantee.scope is Scope.SENSITIVE_COLUMNS and columns.label is not None:
        facts.append(f"The label: {columns.label}.")
    if guarantee.adjacency is not Adjacency.ADD_OR_REMOVE:
        time = "" if columns.time is None else f", or when they happened ({columns.time})"
        facts.append(f"The fact that a unit is in the data, how many rows it has{time}.")
    facts += _beyond_unit(plan)
    if guarantee.unit.windows is not None:
        facts.append("Several time windows together: each is protected on its own.")
    facts += [
        f"The data behind the utility figures: {data}." for data in dict.fromkeys(measured_on)
    ]
    if has_audit:
        facts.append("The result of the audit: it was counted without noise.")
    facts.append("Population-level facts that would show with or without any single person.")
    return tuple(facts)


def unit_phrase(unit: Unit) -> str:
    """One unit, as in "one user within one window of 7 days"."""
    _, _, window = str(unit).partition(" per ")
    name = f"one {_OWNER_NAMES[unit.owner]}"
    if not window:
        return name
    if unit.windows is not None and not unit.windows.is_plain and not window[0].isdigit():
        return f"{name} within one {window}"
    return f"{name} within one window of {window if window[0].isdigit() else f'1 {window}'}"


def trust_meaning(trust: TrustModel) -> str:
    """Who sees raw data."""
    return _TRUST_MEANINGS[trust]


def print_up(value: float) -> str:
    """Four digits, rounded up; the slack is that of a verified claim."""
    return f"{round_up(value, 4, slack=TOLERANCE):.4g}"


def render_card(card: Mapping[str, Any]) -> str:
    """Markdown of a card; its first line is the verdict.

    Raises:
      DataError: An entry is missing.
    """
    try:
        sections = (
            _head(card),
            _claim(card["claim"]),
            _columns(card["columns"]),
            _mechanism(card["mechanism"]),
            _accounting(card["accounting"]),
            _conditions(card["assumptions"], card["bounds"]),
            _trust(card["trust"], card["randomness"]),
            _utility(card["utility"]),
            _audit(card["audit"]),
            _provenance(card["provenance"]),
        )
    except KeyError as error:
        raise DataError(
            f"card has no entry {error.args[0]!r}; write it with write_card()."
        ) from None
    return "\n\n".join(sections) + "\n"


def escape(text: str) -> str:
    """Text that shows as it is written, on one line, in a paragraph, list or table cell."""
    line = " ".join(text.split())
    # Marks without a shape could turn around the order of what is read.
    visible = "".join(c if c.isprintable() else "\ufffd" for c in line)
    escaped = _SPECIAL.sub(r"\\\1", visible)
    return _LINE_START.sub(_escape_start, escaped)


def _beyond_unit(plan: Plan) -> list[str]:
    """What of one person is outside of one unit."""
    guarantee = plan.guarantee
    owner = guarantee.unit.owner
    if not owner.is_one_row:
        facts = ["One person behind several ids: each id is protected on its own."]
        if owner in _MANY_OF_A_USER:
            facts.append(
                f"One user with several {_MANY_OF_A_USER[owner]} together: each pair is protected "
                "on its own."
            )
        return facts
    facts = [
        "All rows of one person together: each row is protected on its own." + _of_several(plan)
    ]
    if guarantee.scope is Scope.WHOLE_ROWS and owner in _OTHER_ROWS:
        facts.append(f"{_OTHER_ROWS[owner]}: they are not protected at all.")
    return facts


def _of_several(plan: Plan) -> str:
    """What the rows of one person with several have together, as far as it is a guarantee."""
    found = [
        f"{number} rows have epsilon={print_up(epsilon)}, delta={print_up(delta)}"
        for number in _NUMBERS_OF_ROWS
        for epsilon, delta in [group_cost(plan.claims[0], number)]
        if delta < 1
    ]
    return f" Together {'; '.join(found)}." if plan.is_private and found else ""


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


def _escape_start(match: re.Match[str]) -> str:
    start = match.group(1)
    return f"{start}\\" if start.isdigit() else f"\\{start}"


def _head(card: Mapping[str, Any]) -> str:
    reasons = "" if card["is_private"] else f"\n\n{_bullets(card['reasons'])}"
    return f"# {escape(card['verdict'])}{reasons}\n\nFormat: {escape(card['format'])}"


def _claim(claim: Mapping[str, Any]) -> str:
    rows = [(name, claim[name]) for name in ("epsilon", "delta", "unit", "adjacency", "scope")]
    return "\n\n".join(
        (
            "## Claim",
            escape(claim["sentence"]),
            _table(("entry", "value"), rows),
            "Not protected:",
            _bullets(claim["not_protected"]),
        )
    )


def _columns(columns: Mapping[str, Any]) -> str:
    rows = [
        (role, ", ".join(names) or None if isinstance(names, list) else names)
        for role, names in columns.items()
    ]
    return f"## Columns\n\n{_table(('role', 'columns'), rows)}"


def _mechanism(mechanism: Mapping[str, Any]) -> str:
    title = f"## Mechanism: {escape(mechanism['name'])}\n\n{escape(mechanism['sentence'])}"
    return f"{title}\n\n{_table(('setting', 'value'), mechanism['settings'].items())}"


def _accounting(accounting: Mapping[str, Any]) -> str:
    lines = [f"## Accounting\n\nMethod: {escape(accounting['method'])}."]
    if accounting["note"]:
        lines.append(f"Note: {escape(accounting['note'])}")
    versions = ", ".join(f"{name} {value}" for name, value in accounting["libraries"].items())
    lines.append(f"Versions: {escape(versions)}.")
    is_valid = not accounting["reproduction_only"]
    lines.append(f"Accountant: {'valid for release' if is_valid else 'for reproduction only'}.")
    head = ("unit", "adjacency", "scope", "delta", "claimed epsilon", "epsilon", "not amplified")
    rows = [
        (
            *(figure["guarantee"][name] for name in (*head[:4], "epsilon")),
            figure["epsilon"],
            figure["epsilon_without_amplification"],
        )
        for figure in accounting["figures"]
    ]
    lines.append(_table(head, rows))
    if repeated := accounting.get("repeated"):
        delta = accounting["figures"][0]["guarantee"]["delta"]
        unit = accounting["figures"][0]["guarantee"]["unit"]
        lines.append(
            f"Whoever has one unit ({escape(unit)}) in each of several such trainings, if all of "
            f"these have the noise of this one, at delta={print_up(delta)} in all:"
        )
        lines.append(_table(("trainings", "epsilon in all"), repeated.items()))
    lines.append("*Not amplified*: worst case, without amplification by sampling or shuffling.")
    for figure in accounting["figures"]:
        guarantee = figure["guarantee"]
        about = ", ".join(guarantee[name] for name in ("unit", "adjacency", "scope"))
        lines.append(f"Event ({escape(about)}):\n\n{_json_block(figure['event'])}")
    return "\n\n".join(lines)


def _conditions(
    assumptions: Sequence[Mapping[str, Any]], bounds: Sequence[Mapping[str, Any]]
) -> str:
    assumption_rows = [(a["status"], a["statement"], a["evidence"] or None) for a in assumptions]
    bound_rows = [(b["what"], b["limit"], b["where"]) for b in bounds]
    return (
        f"## Assumptions\n\n{_table(('status', 'statement', 'evidence'), assumption_rows)}\n\n"
        f"## Contribution bounds\n\n{_table(('what', 'limit', 'where'), bound_rows)}"
    )


def _trust(trust: Mapping[str, Any], randomness: Mapping[str, Any]) -> str:
    return (
        f"## Trust and randomness\n\nTrust model: {escape(trust['model'])}. "
        f"{escape(trust['meaning'])}\n\nNoise from: {escape(randomness['description'])}. "
        f"Secure: {_value(randomness['is_secure'])}."
    )


def _utility(figures: Sequence[Mapping[str, Any]]) -> str:
    if not figures:
        return "## Utility\n\nNot measured."
    head = ("metric", "value", "interval", "baseline", "baseline is", "measured on")
    rows = [
        (
            figure["name"],
            figure["value"],
            _interval(figure["interval"]),
            figure["baseline"],
            figure["baseline_name"] or None,
            figure["measured_on"],
        )
        for figure in figures
    ]
    return f"## Utility\n\n{_table(head, rows)}"


def _audit(audit: Mapping[str, Any] | None) -> str:
    if audit is None:
        return "## Audit\n\nNot audited."
    head = ("method", "lower_bound", "claim", "confidence")
    names = ("method", "epsilon at least", "claimed epsilon", "confidence")
    return f"## Audit\n\n{_table(names, [tuple(audit[name] for name in head)])}"


def _provenance(provenance: Mapping[str, Any]) -> str:
    rows = [(label, provenance[name]) for label, name in _PROVENANCE_ROWS]
    rows += [(f"setting {name}", value) for name, value in provenance["settings"].items()]
    return f"## Provenance\n\n{_table(('entry', 'value'), rows)}"


def _interval(interval: Mapping[str, Any] | None) -> str | None:
    if interval is None:
        return None
    low, high, confidence = (_value(interval[name]) for name in ("low", "high", "confidence"))
    return f"low {low}, high {high} (confidence {confidence})"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(map(_value, row))} |" for row in rows]
    return "\n".join(lines) if len(lines) > 2 else "None."


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(value) if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _json_block(data: object) -> str:
    return f"```json\n{json.dumps(data, indent=2, sort_keys=True, allow_nan=False)}\n```"
