"""What is fixed before any sensitive byte is read.

A plan says which mechanism will run with which public settings, what it will
cost whom, and on what that rests: assumptions, each enforced, checked or merely
assumed, and bounds on what one unit contributes. Its JSON is stable, so its
fingerprint ties a run folder and a card to exactly this plan.

The role of each column says what is protected and what is public, and the adjacency
follows: one unit's label and sensitive columns are replaced, its public columns stay. A
column without a role is not used.
"""

import dataclasses
import enum
import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self

from tulle.errors import ConfigError, DataError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.events import Event, event_from_dict, event_to_dict
from tulle.privacy.fields import (
    Scalar,
    Settings,
    canonical_json,
    check_choice,
    check_fields,
    check_finite,
    check_format,
    check_list,
    check_text,
    did_you_mean,
    parse_json,
)
from tulle.privacy.guarantee import Claim, Guarantee, guarantee_from_dict, guarantee_to_dict
from tulle.privacy.units import Adjacency, Scope, TrustModel

PLAN_FORMAT = "tulle plan 1"
"""Format of a plan in JSON; a plan of another format is refused before its keys are read."""
_LISTED_ROLES = ("public", "sensitive", "ignored")
_MOST_NAMES_SHOWN = 10
"""Columns that a message lists; more would hide the one that is missing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnRoles:
    """The role of every column that is used. Names of columns are public information."""

    label: str | None
    """Column that is predicted or measured, protected; None if there is no such column."""
    public: tuple[str, ...] = ()
    """Columns that everybody knows for every row; they are not protected."""
    sensitive: tuple[str, ...] = ()
    """Columns that are protected, besides the label."""
    unit: str | None = None
    """Column that says which rows belong to one unit; None if each row is its own."""
    time: str | None = None
    """Column with the time of a row, for units with a window."""
    weight: str | None = None
    """Public column that says how much a row counts in training; None if all count alike."""
    ignored: tuple[str, ...] = ()
    """Columns that are in the data and never read."""

    def __post_init__(self) -> None:
        for role in _LISTED_ROLES:
            object.__setattr__(self, role, _checked_names(role, getattr(self, role)))
        seen: dict[str, str] = {}
        for role, column in self.items():
            check_text(f"the column of role {role}", column)
            if seen.get(column) == role:
                raise ConfigError(f"column {column!r} is in {role} twice; name it once.")
            if column in seen:
                raise ConfigError(
                    f"column {column!r} has the roles {seen[column]} and {role}; every column "
                    f"has exactly one: take it out of {role} or of {seen[column]}."
                )
            seen[column] = role
        if self.label is None and not self.sensitive:
            raise ConfigError(
                "label=None and sensitive=() leave nothing to protect; "
                "name the label or the sensitive columns."
            )

    @property
    def scope(self) -> Scope:
        """What the replace adjacency protects; public columns, time and weight stay as they are."""
        if not self.sensitive:
            return Scope.LABELS
        if not self.public and self.time is None and self.weight is None:
            return Scope.WHOLE_ROWS
        return Scope.SENSITIVE_COLUMNS if self.label is None else Scope.LABELS_AND_SENSITIVE_COLUMNS

    def items(self) -> Iterator[tuple[str, str]]:
        """Role and column, one pair a column, in a fixed order."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _LISTED_ROLES:
                yield from ((field.name, column) for column in value)
            elif value is not None:
                yield field.name, value

    def check_against(self, columns_present: Collection[str]) -> None:
        """Refuses data that lack a column with a role. Only names are looked at."""
        for role, column in self.items():
            if column not in columns_present:
                names = sorted(columns_present)
                more = "" if len(names) <= _MOST_NAMES_SHOWN else ", …"
                raise DataError(
                    f"column {column!r} of role {role} is not in the data"
                    f"{did_you_mean(column, names)}; present are "
                    f"{', '.join(names[:_MOST_NAMES_SHOWN])}{more}."
                )

    def to_dict(self) -> dict[str, object]:
        """Plain data with every role, used or not, but the weight, which few data have."""
        data: dict[str, object] = plain_data(self, every_field=True)
        # Plans of rows that count alike are the same, to the byte, as before there were weights.
        return data if self.weight is not None else {k: v for k, v in data.items() if k != "weight"}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Reads what `to_dict` wrote. Only the label must be there."""
        read: Self = settings_from(cls, data, what="columns")
        return read


class Status(enum.Enum):
    """How sure it is that an assumption holds."""

    ENFORCED = "enforced"
    """The code makes it true, whatever the data are."""
    CHECKED = "checked"
    """The code has looked, and stops where it does not hold."""
    ASSUMED = "assumed"
    """Somebody says so. A release that rests on it is not certified as private."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumption:
    """One thing that must be true for the guarantee to hold."""

    statement: str
    status: Status
    evidence: str = ""
    """What enforces or checks it; may be empty only if it is assumed."""

    def __post_init__(self) -> None:
        check_text("statement", self.statement)
        if not isinstance(self.status, Status):
            raise ConfigError(f"status={self.status!r} must be a Status, e.g. Status.CHECKED.")
        if self.evidence != "" or self.status is not Status.ASSUMED:
            check_text(f"evidence of the {self.status.value} assumption", self.evidence)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """The most that one unit can contribute, and what makes sure of it."""

    what: str
    """What is bounded, for example "rows per user"."""
    limit: int | float
    where: str
    """What enforces it, for example "first rows by time, before sampling"."""

    def __post_init__(self) -> None:
        check_text("what", self.what)
        check_text("where", self.where)
        if check_finite("limit", self.limit) <= 0:
            raise ConfigError(
                f"limit={self.limit} of {self.what!r} must be > 0; drop what nobody contributes to."
            )
        if self.limit == int(self.limit):
            # Equal bounds must have equal text, so 3.0 is kept as 3.
            object.__setattr__(self, "limit", int(self.limit))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A mechanism, its cost and its conditions. Every field is public information."""

    name: str
    mechanism: str
    """What will run, as one plain sentence."""
    settings: Mapping[str, Scalar]
    """Sampler, clip, noise, steps: single values by name, kept sorted."""
    event: Event
    guarantee: Guarantee
    """The headline: what the event promises to the unit that matters most."""
    variants: tuple[Claim, ...] = ()
    """The same run for other units, scopes or adjacencies, each with its own event."""
    trust: TrustModel
    columns: ColumnRoles
    bounds: tuple[Bound, ...] = ()
    assumptions: tuple[Assumption, ...] = ()

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_text("mechanism", self.mechanism)
        object.__setattr__(self, "settings", Settings(self.settings))
        for name, cls in (("variants", Claim), ("bounds", Bound), ("assumptions", Assumption)):
            object.__setattr__(self, name, _checked_items(name, getattr(self, name), cls))
        if not isinstance(self.trust, TrustModel):
            raise ConfigError(f"trust={self.trust!r} must be a TrustModel.")
        if not isinstance(self.columns, ColumnRoles):
            raise ConfigError(f"columns={self.columns!r} must be ColumnRoles.")
        # Last, when every field has its type: claims are judged together with the columns.
        _check_claims(self.claims, self.columns)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The headline and then its variants."""
        return (Claim(guarantee=self.guarantee, event=self.event), *self.variants)

    @property
    def is_private(self) -> bool:
        """False if the headline promises nothing or its event is unprotected."""
        return self.claims[0].is_private

    def to_dict(self) -> dict[str, Any]:
        """Plain data with every field."""
        return {
            "format": PLAN_FORMAT,
            "name": self.name,
            "mechanism": self.mechanism,
            "settings": dict(self.settings),
            "event": event_to_dict(self.event),
            "guarantee": guarantee_to_dict(self.guarantee),
            "variants": [claim.to_dict() for claim in self.variants],
            "trust": self.trust.value,
            "columns": self.columns.to_dict(),
            "bounds": [plain_data(bound) for bound in self.bounds],
            "assumptions": [plain_data(assumption) for assumption in self.assumptions],
        }

    @classmethod
    def from_dict(cls, data: object) -> "Plan":
        """Reads what `to_dict` wrote. Every key must be there and none besides."""
        names = [field.name for field in dataclasses.fields(cls)]
        check_format("plan", data, PLAN_FORMAT)
        fields = check_fields("plan", data, ("format", *names))
        return cls(
            name=fields["name"],
            mechanism=fields["mechanism"],
            settings=fields["settings"],
            event=event_from_dict(fields["event"]),
            guarantee=guarantee_from_dict(fields["guarantee"]),
            variants=tuple(map(Claim.from_dict, check_list("variants", fields["variants"]))),
            trust=check_choice("trust", fields["trust"], TrustModel),
            columns=ColumnRoles.from_dict(fields["columns"]),
            bounds=_read_all("bound", fields["bounds"], Bound),
            assumptions=_read_all("assumption", fields["assumptions"], Assumption),
        )

    def to_json(self) -> str:
        """One line of JSON, the same for equal plans in every version."""
        return canonical_json(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Reads what `to_json` wrote."""
        return cls.from_dict(parse_json("plan", text))

    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _checked_names(role: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, (list, tuple)):
        raise ConfigError(f"{role}={names!r} must be a list of columns; write {role}=[{names!r}].")
    return tuple(names)


def _checked_items(name: str, items: object, cls: type) -> tuple[Any, ...]:
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, cls) for item in items):
        raise ConfigError(f"{name}={items!r} must be a list of {cls.__name__}.")
    return tuple(items)


def _read_all(what: str, items: object, cls: type) -> tuple[Any, ...]:
    return tuple(
        settings_from(cls, item, what=what, every_field=True)
        for item in check_list(f"{what}s", items)
    )


def _check_claims(claims: tuple[Claim, ...], columns: ColumnRoles) -> None:
    seen = set()
    for claim in claims:
        guarantee = claim.guarantee
        about = (guarantee.unit, guarantee.adjacency, guarantee.scope)
        if about in seen:
            raise ConfigError(
                f"two claims are about the same unit, adjacency and scope ({guarantee}); keep one."
            )
        seen.add(about)
        _check_scope(guarantee, columns)
        if not guarantee.unit.owner.is_one_row and columns.unit is None:
            raise ConfigError(
                f"unit='{guarantee.unit}' is claimed, but columns.unit=None does not say which "
                "rows belong together; name that column, or claim for one example."
            )


def _check_scope(guarantee: Guarantee, columns: ColumnRoles) -> None:
    # Rows that come or go take their time and weight with them; replaced rows keep them.
    if guarantee.adjacency is not Adjacency.REPLACE:
        columns = dataclasses.replace(columns, time=None, weight=None)
    if not columns.scope.covers(guarantee.scope):
        raise ConfigError(
            f"scope='{guarantee.scope.value}' is more than the columns allow under "
            f"{guarantee.adjacency.value}: '{columns.scope.value}'; claim that, or make "
            "public columns sensitive."
        )
