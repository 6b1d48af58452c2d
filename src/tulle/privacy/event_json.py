"""Stable JSON for events: the form in which plans, cards and ledgers keep them.

The text of an event never changes between versions: keys are sorted, every
field is written, and a reader refuses what it does not know by name.
"""

import dataclasses
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.fields import canonical_json, check_fields, did_you_mean, parse_json

_EVENT_CLASSES: dict[str, type[events.Event]] = {
    cls.__name__: cls
    for cls in (
        events.Gaussian,
        events.SwitchedGaussian,
        events.Laplace,
        events.DiscreteLaplace,
        events.DiscreteGaussian,
        events.RandomizedResponse,
        events.SubsetSelection,
        events.EpsilonDelta,
        events.KeySelection,
        events.PoissonSampled,
        events.TruncatedPoissonSampled,
        events.FixedSizeSampled,
        events.Shuffled,
        events.Repeated,
        events.Composed,
        events.Parallel,
        events.Grouped,
        events.NonPrivate,
    )
}


def event_to_dict(event: events.Event) -> dict[str, Any]:
    """The event as plain data, with its class under "kind"."""
    name = type(event).__name__
    if _EVENT_CLASSES.get(name) is not type(event):
        raise ConfigError(f"event={event!r} is of a class that has no JSON form.")
    fields = {f.name: _plain(getattr(event, f.name), f.type) for f in dataclasses.fields(event)}
    return {"kind": name} | fields


def event_from_dict(data: object) -> events.Event:
    """Reads what `event_to_dict` wrote. Unknown kinds and fields are errors."""
    if not isinstance(data, dict) or "kind" not in data:
        raise ConfigError(f"event={data!r} must be an object with the key 'kind'.")
    kind = data["kind"]
    cls = _EVENT_CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        known = sorted(_EVENT_CLASSES)
        raise ConfigError(
            f"event kind={kind!r} is unknown{did_you_mean(kind, known)}; "
            f"known are {', '.join(known)}."
        )
    fields = dataclasses.fields(cls)
    required = [f.name for f in fields if f.default is dataclasses.MISSING]
    optional = ["kind", *(f.name for f in fields if f.name not in required)]
    given = check_fields(f"event {kind}", data, required, optional)
    return cls(**{name: _event_value(v) for name, v in given.items() if name != "kind"})


def event_to_json(event: events.Event) -> str:
    """One line of JSON, the same for equal events in every version."""
    return canonical_json(event_to_dict(event))


def event_from_json(text: str) -> events.Event:
    """Reads what `event_to_json` wrote."""
    return event_from_dict(parse_json("event", text))


def _plain(value: object, declared_type: object) -> object:
    if isinstance(value, events.Event):
        return event_to_dict(value)
    if isinstance(value, tuple):
        return [event_to_dict(item) for item in value]
    # Equal events must have equal text: 1 is written as 1.0, and -0.0 as 0.0.
    if declared_type is float and isinstance(value, (int, float)):
        return float(value) + 0.0
    return value


def _event_value(value: object) -> object:
    if isinstance(value, dict):
        return event_from_dict(value)
    if isinstance(value, list):
        return tuple(_event_value(item) for item in value)
    return value
