"""What papers and talks have published: figures and claims, each with its source.

The numbers are in `published_figures.toml` and nowhere else. A claim is a relation between
figures, so that the same rule judges the published numbers and ours.
"""

import dataclasses
import enum
import functools
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

_FILE = "published_figures.toml"

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
