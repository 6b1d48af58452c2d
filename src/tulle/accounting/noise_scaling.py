"""The same event with more noise: what a refused spend can do instead."""

import dataclasses
import math
from collections.abc import Callable

from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event

MAX_NOISE_FACTOR = 4096.0
"""More noise than that is not looked for: nothing would be left to see."""
_BRACKET = 16.0
_PRECISION = 1e-3

_NOISE_SETTINGS: dict[type[Event], str] = {
    events.Gaussian: "noise_multiplier",
    events.SwitchedGaussian: "noise_multiplier",
    events.Laplace: "noise_multiplier",
    events.DiscreteLaplace: "scale",
    events.DiscreteGaussian: "scale",
    events.RandomizedResponse: "epsilon",
    events.SubsetSelection: "epsilon",
    events.EpsilonDelta: "epsilon",
    events.KeySelection: "epsilon",
}


def with_noise_scaled(event: Event, factor: float) -> Event:
    """The event with all its noise times `factor`.

    Noise that is set by an epsilon gets epsilon / factor; a delta stays as it is.
    """
    if not 0 < factor < math.inf:
        raise ConfigError(f"factor={factor} must be > 0 and finite; 1 leaves the noise as it is.")
    match event:
        case _ if name := _NOISE_SETTINGS.get(type(event)):
            value = getattr(event, name)
            scaled = value / factor if name == "epsilon" else value * factor
            return dataclasses.replace(event, **{name: scaled})
        case (
            events.PoissonSampled()
            | events.TruncatedPoissonSampled()
            | events.FixedSizeSampled()
            | events.Shuffled()
            | events.Repeated()
            | events.Grouped()
        ):
            return dataclasses.replace(event, event=with_noise_scaled(event.event, factor))
        case events.Composed() | events.Parallel():
            parts = tuple(with_noise_scaled(part, factor) for part in event.events)
            return dataclasses.replace(event, events=parts)
        case events.NonPrivate():
            return event
    raise UnsupportedEventError(
        f"event {type(event).__name__} has no rule that scales its noise; "
        "rebuild it with the noise that you want."
    )


def least_noise_factor(event: Event, fits: Callable[[Event], bool]) -> float | None:
    """The least factor on the noise of `event` with which it fits, to one part in a thousand.

    Rounded to the side that fits; None if not even MAX_NOISE_FACTOR fits. What
    fits must also fit with more noise.
    """
    if fits(event):
        return 1.0
    low, high = 1.0, _BRACKET
    while not fits(with_noise_scaled(event, high)):
        if high >= MAX_NOISE_FACTOR:
            return None
        low, high = high, min(_BRACKET * high, MAX_NOISE_FACTOR)
    while high > low * (1 + _PRECISION):
        middle = math.sqrt(low * high)
        if fits(with_noise_scaled(event, middle)):
            high = middle
        else:
            low = middle
    return high


def noise_setting(event: Event) -> tuple[str, float] | None:
    """Name and value of the one setting that rules the noise; None if there are several."""
    if name := _NOISE_SETTINGS.get(type(event)):
        return name, getattr(event, name)
    parts: tuple[Event, ...] = getattr(event, "events", ())
    if hasattr(event, "event"):
        parts = (event.event,)
    return noise_setting(parts[0]) if len(set(parts)) == 1 else None
