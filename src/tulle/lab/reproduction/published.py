"""What papers and talks have published, each with its source, and whether it holds for a run.

The numbers are in `published_figures.toml` and nowhere else. A claim is a relation between
figures, so that the same rule judges the published numbers and ours. It holds if it does for every
pair of figures that it compares. Where two figures of a run are closer than their errors, the run
is too small to say, and a figure that a run cannot have makes the claims about it not comparable:
neither counts for or against a paper.
"""

import dataclasses
import enum
import functools
import math
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from tulle.errors import ConfigError, DataError
from tulle.lab.markets.claims import Verdict, verdict_of
from tulle.privacy.fields import did_you_mean

_FILE = "published_figures.toml"
_STANDARD_ERRORS = 2.0
"""Standard errors that two figures must be apart to decide a claim: a level of about 95%."""
_MOST_REASONS = 3
"""A verdict stays one line to read; how many more reasons there are is said."""
_FIRST_TO_LAST = (Verdict.DOES_NOT_HOLD, Verdict.NOT_COMPARABLE, Verdict.HOLDS)
# Sums of steps such as 0.05 do not all come out exactly.
_ROUNDING = 1e-9

Operand = str | float
"""The name of a figure, or a number."""


class Relation(enum.Enum):
    """What a claim says of its two sides, pair by pair."""

    BELOW = "below"
    """Left is less than right; a difference within the error of a run decides nothing."""
    AT_MOST = "at most"
    """Left is no more than right."""
    NEAR = "near"
    """Left and right differ by no more than the tolerance."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """One number of a document."""

    name: str
    value: float
    error: float | None
    """Standard deviation over runs as printed, or how well a plot can be read."""
    unit: str
    source: str
    """Table, figure or section."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedClaim:
    """A statement of a document, in our words, as a relation between figures."""

    text: str
    source: str
    relation: Relation
    left: tuple[Operand, ...]
    right: tuple[Operand, ...]
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if not self.left or len(self.left) != len(self.right):
            raise ConfigError(
                f"claim {self.text!r} compares {len(self.left)} figures with {len(self.right)}; "
                "give as many on both sides, and at least one."
            )

    @property
    def pairs(self) -> Iterator[tuple[Operand, Operand]]:
        """What is compared with what."""
        return zip(self.left, self.right, strict=True)

    @property
    def names(self) -> frozenset[str]:
        """Names of the figures that it needs."""
        return frozenset(side for side in (*self.left, *self.right) if isinstance(side, str))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedTarget:
    """One table or figure of a document that can be run again."""

    name: str
    title: str
    document: str
    note: str
    """What to know before numbers are compared."""
    figures: tuple[PublishedFigure, ...]
    claims: tuple[PublishedClaim, ...]

    def values(self) -> dict[str, float]:
        """The published numbers by name."""
        return {figure.name: figure.value for figure in self.figures}


@functools.cache
def published_targets() -> tuple[PublishedTarget, ...]:
    """All targets, in the order of the file."""
    text = (resources.files(__package__) / _FILE).read_text(encoding="utf-8")
    return targets_from_toml(text)


def published_target(name: str) -> PublishedTarget:
    """The target of a name."""
    by_name = {target.name: target for target in published_targets()}
    if name not in by_name:
        raise ConfigError(
            f"target {name!r} is unknown{did_you_mean(name, by_name)}; `tulle reproduce` without "
            "a name lists all."
        )
    return by_name[name]


def targets_from_toml(text: str) -> tuple[PublishedTarget, ...]:
    """Reads the form of the file; every figure and claim must say where it is from."""
    data = tomllib.loads(text)
    documents = data["documents"]
    return tuple(
        PublishedTarget(
            name=entry["name"],
            title=entry["title"],
            document=documents[entry["document"]],
            note=entry.get("note", ""),
            figures=tuple(_figures(entry)),
            claims=tuple(_claim(claim) for claim in entry["claims"]),
        )
        for entry in data["targets"]
    )


def _figures(entry: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    for figure in entry.get("figures", ()):
        yield PublishedFigure(
            name=figure["name"],
            value=float(figure["value"]),
            error=figure.get("error"),
            unit=figure["unit"],
            source=figure["source"],
        )
    for table in entry.get("tables", ()):
        yield from _cells(table)


def _cells(table: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    """One figure a cell, named by its column and row."""
    columns = table["columns"]
    for row, values in table["rows"].items():
        errors = table.get("errors", {}).get(row, [table.get("error")] * len(columns))
        for column, value, error in zip(columns, values, errors, strict=True):
            yield PublishedFigure(
                name=f"{column}, {table['row_name']} {row}",
                value=float(value),
                error=error,
                unit=table["unit"],
                source=table["source"],
            )


def _claim(data: Mapping[str, Any]) -> PublishedClaim:
    return PublishedClaim(
        text=data["text"],
        source=data["source"],
        relation=Relation(data["relation"]),
        left=tuple(data["left"]),
        right=tuple(data["right"]),
        tolerance=float(data.get("tolerance", 0.0)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFigure:
    """One number of a run of ours. As sensitive as the data of the run."""

    value: float
    """Infinite for 'never', where a figure is the epsilon from which on something holds."""
    error: float | None = None
    """Standard error; None for an exact expectation."""

    def __post_init__(self) -> None:
        if math.isnan(self.value):
            raise DataError("a figure of the run is not a number; give it more rows.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """What a run has found, and what it could not find."""

    figures: Mapping[str, OwnFigure]
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Reason why a figure is not there, or must not be compared, by its name."""
    setting: str = ""
    """Data that it ran on, in one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """A claim with its verdict and the reason."""

    claim: PublishedClaim
    verdict: Verdict
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "claim": self.claim.text,
            "source": self.claim.source,
            "verdict": self.verdict.value,
            "reason": self.reason,
        }


def judge(claim: PublishedClaim, findings: Findings) -> Judgement:
    """The verdict on one claim.

    Privacy:
      Post-processing of the figures: the verdict is as sensitive as they are.
    """
    known = findings.figures.keys() - findings.missing.keys()
    if unknown := sorted(claim.names - known):
        reasons = dict.fromkeys(
            findings.missing.get(name, f"this run has no figure for {name}") for name in unknown
        )
        return Judgement(claim=claim, verdict=Verdict.NOT_COMPARABLE, reason=_joined(list(reasons)))
    outcomes = [_pair(claim, left, right, findings) for left, right in claim.pairs]
    verdict = min((found for found, _ in outcomes), key=_FIRST_TO_LAST.index)
    reasons = dict.fromkeys(reason for found, reason in outcomes if found is verdict)
    return Judgement(claim=claim, verdict=verdict, reason=_joined(list(reasons)))


def clear_least(figures: Mapping[float, OwnFigure]) -> float | None:
    """The setting with the least figure; None if another one is within the errors.

    Args:
      figures: Figures by setting, two or more.
    """
    least, *others = sorted(figures, key=lambda setting: figures[setting].value)
    best = figures[least]
    is_clear = all(_decides(best, figures[other]) for other in others)
    return least if is_clear else None


def tied_text(name: str, figures: Mapping[float, OwnFigure]) -> str:
    """Reason why there is no clearly least figure: which settings share that place.

    Args:
      name: Name of the figure that is missing for it.
      figures: Figures by setting, as for `clear_least`.
    """
    best = min(figures.values(), key=lambda figure: figure.value)
    tied = [
        f"{setting:g} ({figure_text(figure.value, figure.error)})"
        for setting, figure in figures.items()
        if not _decides(best, figure)
    ]
    return f"{name}: too close for a run of this size are {' and '.join(tied)}"


def figure_text(value: float, error: float | None = None) -> str:
    """A number for people, with its error if it has one."""
    if math.isinf(value):
        return "never"
    return f"{value:.4g}" if not error else f"{value:.4g} ± {error:.2g}"


def _joined(reasons: list[str]) -> str:
    rest = len(reasons) - _MOST_REASONS
    return "; ".join(reasons[:_MOST_REASONS]) + (f"; and {rest} more." if rest > 0 else ".")


def _decides(one: OwnFigure, other: OwnFigure) -> bool:
    """Whether two figures differ by more than their errors allow for."""
    error = math.hypot(one.error or 0.0, other.error or 0.0)
    return error == 0 or abs(one.value - other.value) > _STANDARD_ERRORS * error


def _pair(
    claim: PublishedClaim, left: Operand, right: Operand, findings: Findings
) -> tuple[Verdict, str]:
    one, other = (_figure(operand, findings) for operand in (left, right))
    shown = f"{_shown(left, one)} against {_shown(right, other)}"
    difference = _difference(one.value, other.value)
    if claim.relation is Relation.NEAR:
        is_true = abs(difference) <= claim.tolerance + _ROUNDING
        return verdict_of(is_true), f"{shown}, near is within {claim.tolerance:g}"
    if claim.relation is Relation.AT_MOST:
        return verdict_of(difference <= claim.tolerance + _ROUNDING), shown
    if not _decides(one, other):
        return Verdict.NOT_COMPARABLE, f"too close for a run of this size: {shown}"
    return verdict_of(difference < 0), shown


def _difference(one: float, other: float) -> float:
    """Two that are never are equal."""
    return 0.0 if one == other else one - other


def _figure(operand: Operand, findings: Findings) -> OwnFigure:
    if isinstance(operand, str):
        return findings.figures[operand]
    return OwnFigure(value=float(operand))


def _shown(operand: Operand, figure: OwnFigure) -> str:
    value = figure_text(figure.value, figure.error)
    return f"{operand} {value}" if isinstance(operand, str) else value
