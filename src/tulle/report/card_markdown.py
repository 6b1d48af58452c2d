"""A card as Markdown, from the data of its card.json and nothing else.

Text that people wrote is escaped: it can neither end a table row nor become a
heading, a link or a tag.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tulle.errors import DataError

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
    lines.append(f"For reproduction only: {_value(accounting['reproduction_only'])}.")
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
    lines.append("*Not amplified*: epsilon if batches and the order of reports were known.")
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
    head = ("figure", "value", "interval", "baseline", "baseline is", "measured on")
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
    return f"{low} to {high} (confidence {confidence})"


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
