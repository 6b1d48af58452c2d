"""Stable JSON for events: the form in which plans, cards and ledgers keep them.

The text of an event never changes between versions: keys are sorted, every
field is written, and a reader refuses what it does not know by name.
"""

import dataclasses
import json
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy import events

_EVENT_CLASSES: dict[str, type[events.Event]] = {
    cls.__name__: cls
    for cls in (
        events.Gaussian,
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
    cls = _EVENT_CLASSES.get(data["kind"]) if isinstance(data["kind"], str) else None
    if cls is None:
        known = ", ".join(sorted(_EVENT_CLASSES))
        raise ConfigError(f"event kind={data['kind']!r} is unknown; known are {known}.")
    known_fields = {f.name: f for f in dataclasses.fields(cls)}
    given = {name: _event_value(value) for name, value in data.items() if name != "kind"}
    if unknown := sorted(given.keys() - known_fields.keys()):
        raise ConfigError(
            f"{data['kind']} has no field {unknown[0]!r}; its fields are {', '.join(known_fields)}."
        )
    required = [n for n, f in known_fields.items() if f.default is dataclasses.MISSING]
    if missing := [name for name in required if name not in given]:
        raise ConfigError(f"{data['kind']} needs the field {missing[0]!r}; add it.")
    return cls(**given)


def event_to_json(event: events.Event) -> str:
    """One line of JSON, the same for equal events in every version."""
    return json.dumps(event_to_dict(event), sort_keys=True, separators=(",", ":"), allow_nan=False)


def event_from_json(text: str) -> events.Event:
    """Reads what `event_to_json` wrote."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"event is not JSON: {error.msg} at character {error.pos}.") from None
    return event_from_dict(data)


def _plain(value: object, declared_type: object) -> object:
    if isinstance(value, events.Event):
        return event_to_dict(value)
    if isinstance(value, tuple):
        return [event_to_dict(item) for item in value]
    # Equal events must have equal text, so 1 and 1.0 are written alike.
    return float(value) if declared_type is float and isinstance(value, int) else value


def _event_value(value: object) -> object:
    if isinstance(value, dict):
        return event_from_dict(value)
    if isinstance(value, list):
        return tuple(_event_value(item) for item in value)
    return value
