"""A card as sections of a page, from the data of its card.json and nothing else."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tulle.report.html.charts import Bar, BarChart, Table
from tulle.report.html.page import Block, Bullets, Code, Figure, Page, Paragraph, Section
from tulle.runs.card import Card

_NUMBERS_OF_CLAIM = ("epsilon", "delta", "unit", "adjacency", "scope")


def card_page(
    card: Card,
    *,
    title: str,
    sections: Sequence[Section],
    facts: Sequence[tuple[str, str]] = (),
) -> Page:
    """A page that begins with the verdict of a card and ends with the rest of it.

    Args:
      card: Card of the release.
      title: Title above the verdict.
      sections: Sections between claim and conditions.
      facts: How useful the release is, in few numbers.
    """
    data = card.to_dict()
    return Page(
        title=title,
        verdict=data["verdict"],
        is_private=data["is_private"],
        reasons=tuple(data["reasons"]),
        sentence=data["claim"]["sentence"],
        facts=tuple(facts),
        sections=(_claim(data["claim"]), *sections, *_card_sections(data)),
    )


def _claim(claim: Mapping[str, Any]) -> Section:
    rows = tuple((name, claim[name]) for name in _NUMBERS_OF_CLAIM)
    return Section(
        "Claim",
        (
            Table(head=("entry", "value"), rows=rows),
            Paragraph("Not protected:"),
            Bullets(tuple(claim["not_protected"])),
        ),
    )


def _card_sections(data: Mapping[str, Any]) -> tuple[Section, ...]:
    return (
        _mechanism(data["mechanism"], data["bounds"]),
        _assumptions(data["assumptions"]),
        _accounting(data["accounting"]),
        _columns(data["columns"]),
        _trust(data["trust"], data["randomness"]),
        *_audit(data["audit"]),
        _provenance(data["provenance"]),
    )


def _mechanism(mechanism: Mapping[str, Any], bounds: Sequence[Mapping[str, Any]]) -> Section:
    settings = tuple(mechanism["settings"].items())
    limits = tuple((bound["what"], bound["limit"], bound["where"]) for bound in bounds)
    return Section(
        f"Mechanism: {mechanism['name']}",
        (
            Paragraph(mechanism["sentence"]),
            Table(head=("setting", "value"), rows=settings),
            Paragraph("Contribution bounds:"),
            Table(head=("what", "limit", "where"), rows=limits),
        ),
    )


def _assumptions(assumptions: Sequence[Mapping[str, Any]]) -> Section:
    rows = tuple((a["status"], a["statement"], a["evidence"] or None) for a in assumptions)
    return Section("Assumptions", (Table(head=("status", "statement", "evidence"), rows=rows),))


def _accounting(accounting: Mapping[str, Any]) -> Section:
    head = ("unit", "adjacency", "scope", "delta", "claimed epsilon", "epsilon", "not amplified")
    rows = tuple(
        (
            *(figure["guarantee"][name] for name in (*head[:4], "epsilon")),
            figure["epsilon"],
            figure["epsilon_without_amplification"],
        )
        for figure in accounting["figures"]
    )
    note = f" {accounting['note']}" if accounting["note"] else ""
    versions = ", ".join(f"{name} {value}" for name, value in accounting["libraries"].items())
    blocks: list[Block] = [
        Paragraph(f"Method: {accounting['method']}.{note} Versions: {versions}."),
        Table(head=head, rows=rows),
        Paragraph("Not amplified: worst case, without amplification by sampling or shuffling."),
    ]
    if repeated := accounting.get("repeated"):
        told = (
            "Whoever has one unit in each of several such trainings, if all of these have the "
            "noise of this one, at the delta above in all:"
        )
        names = ("trainings", "epsilon in all")
        blocks += [Paragraph(told), Table(head=names, rows=tuple(repeated.items()))]
    for figure in accounting["figures"]:
        guarantee = figure["guarantee"]
        about = ", ".join(guarantee[name] for name in ("unit", "adjacency", "scope"))
        text = json.dumps(figure["event"], indent=2, sort_keys=True, allow_nan=False)
        blocks.append(Code(f"Event ({about})", text))
    return Section("Accounting", tuple(blocks))


def _columns(columns: Mapping[str, Any]) -> Section:
    rows = tuple(
        (role, ", ".join(names) or None if isinstance(names, list) else names)
        for role, names in columns.items()
    )
    return Section("Columns", (Table(head=("role", "columns"), rows=rows),))


def _trust(trust: Mapping[str, Any], randomness: Mapping[str, Any]) -> Section:
    secure = "" if randomness["is_secure"] else " It can be repeated, so it hides nothing."
    return Section(
        "Trust and randomness",
        (
            Paragraph(f"Trust model: {trust['model']}. {trust['meaning']}"),
            Paragraph(f"Noise from: {randomness['description']}.{secure}"),
        ),
    )


def _audit(audit: Mapping[str, Any] | None) -> tuple[Section, ...]:
    if audit is None:
        return (Section("Audit", (Paragraph("Not audited."),)),)
    bars = [Bar(label="an attack proved at least", value=audit["lower_bound"])]
    if audit["claim"] is not None:
        bars.append(Bar(label="claimed at most", value=audit["claim"]))
    chart = BarChart(name="Audit against claim", value_name="epsilon", bars=tuple(bars))
    text = f"Method: {audit['method']}. Confidence: {audit['confidence']:g}."
    return (Section("Audit", (Paragraph(text), Figure(chart))),)


def _provenance(provenance: Mapping[str, Any]) -> Section:
    rows = [(name.replace("_", " "), provenance[name]) for name in provenance if name != "settings"]
    rows += [(f"setting {name}", value) for name, value in provenance["settings"].items()]
    return Section("Provenance", (Table(head=("entry", "value"), rows=tuple(rows)),))
