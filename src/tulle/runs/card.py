"""The card of a release: what is promised to whom, on what it rests, how it was made.

card.json is built here; Markdown and HTML are made from it. A card holds
public information only. Its first line is a verdict that follows from the
other entries, so nobody can write a better one. On disk card.json and card.md
are each there as a whole or not at all.
"""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tulle.atomic_files import read_whole, reporting_disk_errors, stage_text, sync_folder
from tulle.errors import ConfigError, DataError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import check_fields, check_format, check_list, check_text, parse_json
from tulle.privacy.guarantee import guarantee_to_dict
from tulle.privacy.plan import PLAN_FORMAT, Plan, Status
from tulle.runs.card_entries import (
    AuditResult,
    CardAccounting,
    Provenance,
    UtilityFigure,
    compute_figures,
    compute_repeated,
)
from tulle.runs.card_text import (
    claim_sentence,
    render_card,
    trust_meaning,
    unprotected_facts,
    verdict_line,
)

_FORMAT = "tulle card 1"
_CARD_FIELDS = (
    *("verdict", "is_private", "reasons", "format", "claim", "columns", "mechanism"),
    *("accounting", "assumptions", "bounds", "trust", "randomness", "utility", "audit"),
    "provenance",
)


class DescribedNoise(Protocol):
    """What a card wants to know of a source of noise."""

    @property
    def is_secure(self) -> bool:
        """True if nobody can predict or repeat the noise."""

    @property
    def description(self) -> str:
        """The source in words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Randomness:
    """The source of the noise. Never its state."""

    description: str
    is_secure: bool

    def __post_init__(self) -> None:
        check_text("description of the noise", self.description)
        if not isinstance(self.is_secure, bool):
            raise ConfigError(f"is_secure={self.is_secure!r} must be True or False.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """Everything on a card. Made by `build_card`, which computes the figures."""

    plan: Plan
    accounting: CardAccounting
    randomness: Randomness
    provenance: Provenance
    utility: tuple[UtilityFigure, ...] = ()
    audit: AuditResult | None = None

    def __post_init__(self) -> None:
        if tuple(figure.claim for figure in self.accounting.figures) != self.plan.claims:
            raise ConfigError("accounting.figures must be those of the plan; use build_card().")
        if self.audit is not None:
            _check_audit(self.audit, self.plan)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why this is not a private release; empty if it is one."""
        reasons = []
        if not self.plan.is_private:
            reasons.append("The release has no protection: its epsilon is infinite")
        if not self.randomness.is_secure:
            reasons.append(f"The noise can be repeated: {self.randomness.description}")
        if self.accounting.reproduction_only:
            reasons.append(f"The accounting is for reproduction only: {self.accounting.note}")
        reasons += [
            f"An assumption is not enforced: {assumption.statement}"
            for assumption in self.plan.assumptions
            if assumption.status is Status.ASSUMED
        ]
        if self.audit is not None and self.audit.refutes_claim:
            reasons.append(
                f"An audit refutes the claim: epsilon is at least {self.audit.lower_bound:g}"
            )
        return tuple(reasons)

    @property
    def verdict(self) -> str:
        """The first line."""
        return verdict_line(self.plan.guarantee, self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Plain data in the order of reading; an infinite epsilon is null."""
        plan, reasons = self.plan, self.reasons
        measured_on = [figure.measured_on for figure in self.utility]
        provenance = self.provenance.to_dict() | {"plan_fingerprint": plan.fingerprint()}
        libraries = {"libraries": provenance.pop("libraries")}
        return {
            "verdict": self.verdict,
            "is_private": not reasons,
            "reasons": list(reasons),
            "format": _FORMAT,
            "claim": guarantee_to_dict(plan.guarantee)
            | {
                "sentence": claim_sentence(plan.guarantee, reasons),
                "not_protected": list(
                    unprotected_facts(plan, measured_on, has_audit=self.audit is not None)
                ),
            },
            "columns": plan.columns.to_dict(),
            "mechanism": {
                "name": plan.name,
                "sentence": plan.mechanism,
                "settings": dict(plan.settings),
            },
            "accounting": self.accounting.to_dict() | libraries,
            "assumptions": [plain_data(assumption) for assumption in plan.assumptions],
            "bounds": [plain_data(bound) for bound in plan.bounds],
            "trust": {"model": plan.trust.value, "meaning": trust_meaning(plan.trust)},
            "randomness": dataclasses.asdict(self.randomness),
            "utility": [plain_data(figure, every_field=True) for figure in self.utility],
            "audit": None if self.audit is None else self.audit.to_dict(),
            "provenance": provenance,
        }

    @classmethod
    def from_dict(cls, data: object) -> "Card":
        """Reads what `to_dict` wrote, and refuses a card whose entries contradict each other.

        Sentences are made anew from the entries; epsilon is not computed anew.
        """
        check_format("card", data, _FORMAT)
        fields = check_fields("card", data, _CARD_FIELDS)
        accounting_data, libraries = _split_off("accounting", fields, "libraries")
        accounting = CardAccounting.from_dict(accounting_data)
        provenance, fingerprint = _split_off("provenance", fields, "plan_fingerprint")
        card = cls(
            plan=_plan_of(fields, accounting),
            accounting=accounting,
            randomness=Randomness(
                **check_fields("randomness", fields["randomness"], ("description", "is_secure"))
            ),
            provenance=Provenance.from_dict(provenance | {"libraries": libraries}),
            utility=tuple(
                settings_from(UtilityFigure, figure, what="utility figure", every_field=True)
                for figure in check_list("utility", fields["utility"])
            ),
            audit=None if fields["audit"] is None else AuditResult.from_dict(fields["audit"]),
        )
        _check_consistent(card, fields, fingerprint)
        return card


def build_card(
    plan: Plan,
    *,
    randomness: DescribedNoise,
    provenance: Provenance,
    utility: Sequence[UtilityFigure] = (),
    audit: AuditResult | None = None,
    accounting_note: str = "",
    reproduction_only: bool = False,
) -> Card:
    """The card of a plan that was carried out.

    Args:
      plan: What was done. Every epsilon is computed again from its events.
      randomness: The source that the noise was really drawn from.
      provenance: Result of `collect_provenance()`.
      utility: Figures of quality, each with the data it was measured on.
      audit: What an attack found; None if nobody tried.
      accounting_note: Which other accountant the claims come from.
      reproduction_only: True if that accountant is not sound for the adjacency.

    Raises:
      ConfigError: The plan claims a smaller epsilon than its events give.
    """
    return Card(
        plan=plan,
        accounting=CardAccounting(
            figures=compute_figures(plan),
            note=accounting_note,
            reproduction_only=reproduction_only,
            repeated=compute_repeated(plan),
        ),
        randomness=Randomness(description=randomness.description, is_secure=randomness.is_secure),
        provenance=provenance,
        utility=tuple(utility),
        audit=audit,
    )


def write_card(folder: Path, card: Card, *, name: str = "card") -> None:
    """Writes card.json and card.md into a folder, replacing those that are there.

    A reader never sees half a file, nor an old card.md beside a new card.json.

    Args:
      folder: Folder that gets both files.
      card: Card to write.
      name: Name of both files, without its ending.
    """
    data = card.to_dict()
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    staged: list[tuple[Path, Path]] = []
    try:
        markdown = folder / f"{name}.md"
        for path, content in ((folder / f"{name}.json", text), (markdown, render_card(data))):
            staged.append((stage_text(path, content), path))
        markdown.unlink(missing_ok=True)
        for temporary, final in staged:
            os.replace(temporary, final)
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
    sync_folder(folder)


def read_card(path: Path) -> Card:
    """Reads a card.json, strictly.

    Raises:
      DataError: The file is not a card, or its entries contradict each other.
    """
    return read_whole(
        path,
        lambda text: Card.from_dict(parse_json("card", text)),
        what="a card",
        way_out="write it with write_card()",
    )


def stored_card(folder: Path, plan: Plan, make: Callable[[], Card], *, name: str = "card") -> Card:
    """The card of a release; made and written if it is not there.

    Args:
      folder: Folder of the card.
      plan: Plan of the release.
      make: Function that makes the card anew.
      name: Name of the card's files, without an ending.

    Raises:
      DataError: It is the card of another release, or cannot be read.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        card = make()
        with reporting_disk_errors(path):
            write_card(folder, card, name=name)
        return card
    card = read_card(path)
    if card.plan.fingerprint() != plan.fingerprint():
        raise DataError(
            f"{path.name} is the card of another release; delete it, and it is made anew."
        )
    return card


def _split_off(section: str, fields: dict[str, Any], key: str) -> tuple[dict[str, Any], Any]:
    """A section without one of its entries, and that entry."""
    data = fields[section]
    if not isinstance(data, dict) or key not in data:
        raise ConfigError(f"{section} needs the key {key!r}; add it.")
    return {name: value for name, value in data.items() if name != key}, data[key]


def _plan_of(fields: dict[str, Any], accounting: CardAccounting) -> Plan:
    """The plan, gathered from its places on the card."""
    names = ("epsilon", "delta", "unit", "adjacency", "scope")
    claim = check_fields("claim", fields["claim"], (*names, "sentence", "not_protected"))
    mechanism = check_fields("mechanism", fields["mechanism"], ("name", "sentence", "settings"))
    claims = [figure.claim.to_dict() for figure in accounting.figures]
    return Plan.from_dict(
        {
            "format": PLAN_FORMAT,
            "name": mechanism["name"],
            "mechanism": mechanism["sentence"],
            "settings": mechanism["settings"],
            "event": claims[0]["event"],
            "guarantee": {name: claim[name] for name in names},
            "variants": claims[1:],
            "trust": check_fields("trust", fields["trust"], ("model", "meaning"))["model"],
            "columns": fields["columns"],
            "bounds": fields["bounds"],
            "assumptions": fields["assumptions"],
        }
    )


def _check_consistent(card: Card, fields: dict[str, Any], fingerprint: object) -> None:
    found = {
        "plan_fingerprint": (fingerprint, card.plan.fingerprint()),
        "is_private": (fields["is_private"], not card.reasons),
        "verdict": (fields["verdict"], card.verdict),
    }
    for name, (written, follows) in found.items():
        if written != follows:
            raise ConfigError(
                f"card {name}={written!r} does not follow from its other entries, which give "
                f"{follows!r}; the card was changed by hand: make it anew with build_card()."
            )


def _check_audit(audit: AuditResult, plan: Plan) -> None:
    epsilons = [claim.guarantee.epsilon for claim in plan.claims]
    if not any(audit.claim == e or math.isclose(audit.claim, e, rel_tol=1e-6) for e in epsilons):
        raise ConfigError(
            f"audit claim={audit.claim:g} is not an epsilon of the plan "
            f"({', '.join(f'{e:g}' for e in epsilons)}); audit what is claimed."
        )
