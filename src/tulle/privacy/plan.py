"""What is fixed before any sensitive byte is read.

A plan says which mechanism will run with which public settings, what it will
cost whom, and on what that rests. Its JSON is stable, so its fingerprint ties
a run folder and a card to exactly this plan.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.claim import Claim, guarantee_from_dict, guarantee_to_dict
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.event_json import event_from_dict, event_to_dict
from tulle.privacy.events import Event
from tulle.privacy.fields import (
    canonical_json,
    check_choice,
    check_fields,
    check_format,
    check_list,
    check_text,
    parse_json,
)
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.settings import Scalar, Settings
from tulle.privacy.units import Adjacency, TrustModel

__all__ = ["Assumption", "Bound", "Claim", "Plan", "Status"]

PLAN_FORMAT = "tulle plan 1"


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
            "bounds": [bound.to_dict() for bound in self.bounds],
            "assumptions": [assumption.to_dict() for assumption in self.assumptions],
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
            variants=_read_all("variants", fields["variants"], Claim),
            trust=check_choice("trust", fields["trust"], TrustModel),
            columns=ColumnRoles.from_dict(fields["columns"]),
            bounds=_read_all("bounds", fields["bounds"], Bound),
            assumptions=_read_all("assumptions", fields["assumptions"], Assumption),
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


def _checked_items(name: str, items: object, cls: type) -> tuple[Any, ...]:
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, cls) for item in items):
        raise ConfigError(f"{name}={items!r} must be a list of {cls.__name__}.")
    return tuple(items)


def _read_all(name: str, items: object, cls: Any) -> tuple[Any, ...]:
    return tuple(cls.from_dict(item) for item in check_list(name, items))


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
    # Rows that come or go take their time with them; replaced rows keep it.
    if guarantee.adjacency is not Adjacency.REPLACE:
        columns = dataclasses.replace(columns, time=None)
    if not columns.scope.covers(guarantee.scope):
        raise ConfigError(
            f"scope='{guarantee.scope.value}' is more than the columns allow under "
            f"{guarantee.adjacency.value}: '{columns.scope.value}'; claim that, or make "
            "public columns sensitive."
        )
