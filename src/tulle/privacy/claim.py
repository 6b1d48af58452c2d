"""A guarantee together with the event that must give it.

privacy/ cannot compute what an event costs; tulle.accounting.plan_check
compares both and refuses a claim that is stronger than its event.
"""

import dataclasses

from tulle.errors import ConfigError
from tulle.privacy.event_json import event_from_dict, event_to_dict
from tulle.privacy.events import Event, NonPrivate
from tulle.privacy.fields import (
    check_choice,
    check_fields,
    check_finite,
    check_text,
    infinite_if_null,
    null_if_infinite,
)
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.units import Adjacency, Scope, Unit

_GUARANTEE_FIELDS = ("epsilon", "delta", "unit", "adjacency", "scope")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """What is promised, and by which event."""

    guarantee: Guarantee
    event: Event

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            raise ConfigError(f"guarantee={self.guarantee!r} must be a Guarantee.")
        if not isinstance(self.event, Event):
            raise ConfigError(f"event={self.event!r} must be an event of tulle.privacy.events.")

    @property
    def is_private(self) -> bool:
        """False if the guarantee is empty or any part of the event is unprotected."""
        return self.guarantee.is_private and not _is_open(self.event)

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite epsilon is null."""
        return {
            "guarantee": guarantee_to_dict(self.guarantee),
            "event": event_to_dict(self.event),
        }

    @classmethod
    def from_dict(cls, data: object) -> "Claim":
        """Reads what `to_dict` wrote."""
        fields = check_fields("claim", data, ("guarantee", "event"))
        return cls(
            guarantee=guarantee_from_dict(fields["guarantee"]),
            event=event_from_dict(fields["event"]),
        )


def guarantee_to_dict(guarantee: Guarantee) -> dict[str, object]:
    """Plain data; an infinite epsilon is null."""
    return {
        "epsilon": null_if_infinite(float(guarantee.epsilon)),
        "delta": float(guarantee.delta),
        "unit": str(guarantee.unit),
        "adjacency": guarantee.adjacency.value,
        "scope": guarantee.scope.value,
    }


def guarantee_from_dict(data: object) -> Guarantee:
    """Reads what `guarantee_to_dict` wrote."""
    fields = check_fields("guarantee", data, _GUARANTEE_FIELDS)
    return Guarantee(
        epsilon=infinite_if_null("epsilon", fields["epsilon"]),
        delta=check_finite("delta", fields["delta"]),
        unit=Unit.parse(check_text("unit", fields["unit"])),
        adjacency=check_choice("adjacency", fields["adjacency"], Adjacency),
        scope=check_choice("scope", fields["scope"], Scope),
    )


def _is_open(event: Event) -> bool:
    parts: tuple[Event, ...] = getattr(event, "events", ())
    if hasattr(event, "event"):
        parts = (event.event,)
    return isinstance(event, NonPrivate) or any(_is_open(part) for part in parts)
