"""What a mechanism did, as data: the input of the accountant and the ledger.

An event is frozen, compares by value, nests, and has stable JSON. It says what
one privacy unit can change and how much noise hides it; it does not say what
that costs, because the cost depends on the adjacency.

Sizes are relative to the largest contribution of one row (or of one unit where
rows are not sampled): its L2 norm for Gaussian noise, its L1 norm for Laplace.
Under add-or-remove and zero-out a unit moves the sum by at most that. Under
replace it moves it by `replace_factor` times that: 2 in general, sqrt(2) in L2
for vectors without negative entries, 1 for one number in [0, bound].

Plans, cards and ledgers keep events as JSON, whose text never changes between
versions: keys are sorted, every field is written, and a reader refuses by name
what it does not know.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.fields import (
    canonical_json,
    check_fields,
    check_finite,
    check_size,
    did_you_mean,
    parse_json,
)


@dataclasses.dataclass(frozen=True)
class Event:
    """Any event. Instances are of one of the classes below."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian(Event):
    """Gaussian noise on a real or lattice valued sum."""

    noise_multiplier: float
    """Noise standard deviation over the largest L2 contribution."""
    replace_factor: float = 2.0

    def __post_init__(self) -> None:
        _check_positive("noise_multiplier", self.noise_multiplier)
        _check_replace_factor(self.replace_factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwitchedGaussian(Event):
    """Gaussian noise on a sum in which a binary label switches one bounded vector on or off.

    The vector and the batch follow from public columns alone. Replacing the label of one row
    then moves the sum by one contribution, not by two, and in a sampled batch one of both
    sums stays where it is. Labels of several rows may go on and off at once: a unit that owns
    them is accounted as for `Gaussian`.

    `Repeated` around it, sampled or not, says that one label is used each time. Releases of
    different labels are events of their own in a `Composed`.
    """

    noise_multiplier: float
    """Noise standard deviation over the largest L2 norm of what a label switches."""

    def __post_init__(self) -> None:
        _check_positive("noise_multiplier", self.noise_multiplier)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Laplace(Event):
    """Laplace noise on a real or lattice valued sum."""

    noise_multiplier: float
    """Noise scale (not its standard deviation) over the largest L1 contribution."""
    replace_factor: float = 2.0

    def __post_init__(self) -> None:
        _check_positive("noise_multiplier", self.noise_multiplier)
        _check_replace_factor(self.replace_factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteLaplace(Event):
    """Integer noise with probabilities proportional to exp(-|i| / scale)."""

    scale: float
    max_contribution: int = 1
    """Largest L1 contribution, a whole number."""
    replace_factor: float = 2.0

    def __post_init__(self) -> None:
        _check_positive("scale", self.scale)
        check_size("max_contribution", self.max_contribution)
        _check_replace_factor(self.replace_factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(Event):
    """Integer noise with probabilities proportional to exp(-i^2 / (2 scale^2)).

    For one released number. A unit that changes several numbers costs
    `Repeated` events: the discrete Gaussian has no rotation symmetry, so an L2
    bound over many numbers is not one event.
    """

    scale: float
    max_contribution: int = 1
    """Most that one unit changes the number by."""
    replace_factor: float = 2.0

    def __post_init__(self) -> None:
        _check_positive("scale", self.scale)
        check_size("max_contribution", self.max_contribution)
        _check_replace_factor(self.replace_factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomizedResponse(Event):
    """K-ary randomized response: the truth has e^epsilon times the probability of any other."""

    epsilon: float
    num_values: int = 2

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)
        check_size("num_values", self.num_values, least=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubsetSelection(Event):
    """A random subset of fixed size; those with the truth are e^epsilon times likelier."""

    epsilon: float
    num_values: int
    subset_size: int

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)
        check_size("num_values", self.num_values, least=2)
        check_size("subset_size", self.subset_size)
        if self.subset_size >= self.num_values:
            raise ConfigError(
                f"subset_size={self.subset_size} must be < num_values={self.num_values}; "
                "a subset of everything says nothing."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonDelta(Event):
    """A mechanism known only by its (epsilon, delta) under the adjacency in use."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative("epsilon", self.epsilon)
        _check_chance("delta", self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeySelection(Event):
    """A private choice of which keys to publish, (epsilon, delta) for each key.

    Under replace a unit may leave `max_keys_per_unit` keys and enter as many
    others, so twice as many keys are touched as under add-or-remove.
    """

    epsilon: float
    delta: float
    max_keys_per_unit: int = 1

    def __post_init__(self) -> None:
        _check_not_negative("epsilon", self.epsilon)
        _check_chance("delta", self.delta)
        check_size("max_keys_per_unit", self.max_keys_per_unit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoissonSampled(Event):
    """An event on a batch that each row enters independently with one probability."""

    sampling_prob: float
    event: Event
    max_rows_per_unit: int = 1

    def __post_init__(self) -> None:
        _check_sampling_prob(self.sampling_prob)
        _check_event("event", self.event)
        check_size("max_rows_per_unit", self.max_rows_per_unit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedPoissonSampled(Event):
    """Poisson sampling, then a uniform subset of `max_batch_size` rows if more came."""

    sampling_prob: float
    num_rows: int
    """Rows of the data; of the larger data set under add-or-remove."""
    max_batch_size: int
    event: Event
    max_rows_per_unit: int = 1

    def __post_init__(self) -> None:
        _check_sampling_prob(self.sampling_prob)
        _check_event("event", self.event)
        for name in ("num_rows", "max_batch_size", "max_rows_per_unit"):
            check_size(name, getattr(self, name))
        for name in ("max_batch_size", "max_rows_per_unit"):
            if getattr(self, name) > self.num_rows:
                raise ConfigError(
                    f"{name}={getattr(self, name)} must be <= num_rows={self.num_rows}; "
                    "lower it or give the right number of rows."
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedSizeSampled(Event):
    """An event on a uniform batch of exactly `batch_size` of `num_rows` rows."""

    batch_size: int
    num_rows: int
    event: Event

    def __post_init__(self) -> None:
        check_size("batch_size", self.batch_size)
        check_size("num_rows", self.num_rows)
        _check_event("event", self.event)
        if self.batch_size > self.num_rows:
            raise ConfigError(
                f"batch_size={self.batch_size} must be <= num_rows={self.num_rows}; "
                "lower it or give the right number of rows."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuffled(Event):
    """A local event whose reports are mixed with those of `num_reports` units."""

    event: Event
    num_reports: int
    """Reports in the smallest cell of equal candidate sets, this unit's included."""

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        check_size("num_reports", self.num_reports)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeated(Event):
    """The same event `count` times on the same units, adaptively."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        check_size("count", self.count)


@dataclasses.dataclass(frozen=True)
class Composed(Event):
    """Several events on the same units, adaptively. Without any: no release."""

    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", _checked_events(self.events))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parallel(Event):
    """Events on disjoint parts of the units.

    Under replace, a unit whose part follows from a sensitive column can move
    from one part to another and then touches two of them.
    """

    events: tuple[Event, ...]
    parts_are_public: bool
    """True if public columns alone decide the part of a unit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", _checked_events(self.events))
        if not isinstance(self.parts_are_public, bool):
            raise ConfigError(f"parts_are_public={self.parts_are_public!r} must be True or False.")
        if not self.events:
            raise ConfigError(
                "events=() must name at least one part; use Composed() for no release."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouped(Event):
    """What an event costs whoever owns up to `group_size` of its units, by group privacy.

    It is the outermost event: a bound at each epsilon, which nothing samples or repeats.
    """

    event: Event
    """Event of one unit of the group, at the cost of that unit."""
    group_size: int

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        check_size("group_size", self.group_size)


@dataclasses.dataclass(frozen=True)
class NonPrivate(Event):
    """A release without protection. Its cost is infinite."""


def inner_events(event: Event) -> tuple[Event, ...]:
    """The events that an event is directly made of; none for a mechanism."""
    inner = getattr(event, "event", None)
    parts: tuple[Event, ...] = getattr(event, "events", ())
    return parts if inner is None else (inner,)


def all_events(event: Event) -> Iterator[Event]:
    """The event itself and every event inside it."""
    yield event
    for part in inner_events(event):
        yield from all_events(part)


def contains(event: Event, kind: type[Event]) -> bool:
    """True if the event, or any part of it, is of this kind."""
    return any(isinstance(part, kind) for part in all_events(event))


_EVENT_CLASSES = {cls.__name__: cls for cls in Event.__subclasses__()}
"""Every class above by its name, which is its kind in JSON."""


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as plain data, with its class under "kind"."""
    name = type(event).__name__
    # A class of somebody else with one of our names would be read back as ours, at our price.
    if _EVENT_CLASSES.get(name) is not type(event):
        raise ConfigError(f"event={event!r} is of a class that has no JSON form.")
    fields = {f.name: _plain(getattr(event, f.name), f.type) for f in dataclasses.fields(event)}
    return {"kind": name} | fields


def event_from_dict(data: object) -> Event:
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
    # Unknown fields are refused: one of a newer version could be what makes the event cost more.
    given = check_fields(f"event {kind}", data, required, optional)
    return cls(**{name: _event_value(v) for name, v in given.items() if name != "kind"})


def event_to_json(event: Event) -> str:
    """One line of JSON, the same for equal events in every version."""
    return canonical_json(event_to_dict(event))


def event_from_json(text: str) -> Event:
    """Reads what `event_to_json` wrote."""
    return event_from_dict(parse_json("event", text))


def _checked_events(events: object) -> tuple[Event, ...]:
    checked = tuple(events) if isinstance(events, (tuple, list)) else (events,)
    for index, event in enumerate(checked):
        _check_event(f"events[{index}]", event)
    return checked


def _check_event(name: str, event: object) -> None:
    if not isinstance(event, Event):
        raise ConfigError(f"{name}={event!r} must be an event of tulle.privacy.events.")


def _check_positive(name: str, value: object) -> None:
    if check_finite(name, value) <= 0:
        raise ConfigError(
            f"{name}={value} must be > 0; for a release without privacy use NonPrivate()."
        )


def _check_not_negative(name: str, value: object) -> None:
    if check_finite(name, value) < 0:
        raise ConfigError(f"{name}={value} must be >= 0.")


def _check_chance(name: str, value: object) -> None:
    if not 0 <= check_finite(name, value) < 1:
        raise ConfigError(f"{name}={value} must be in [0, 1); choose e.g. 1e-7.")


def _check_sampling_prob(value: object) -> None:
    if not 0 < check_finite("sampling_prob", value) <= 1:
        raise ConfigError(f"sampling_prob={value} must be in (0, 1]; use 1 for no sampling.")


def _check_replace_factor(value: object) -> None:
    if not 1 <= check_finite("replace_factor", value) <= 2:
        raise ConfigError(
            f"replace_factor={value} must be in [1, 2]: 2 for any contributions, sqrt(2) in L2 "
            "without negative entries, 1 for one number in [0, bound]."
        )


def _plain(value: object, declared_type: object) -> object:
    if isinstance(value, Event):
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
