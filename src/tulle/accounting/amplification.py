"""The same event if randomness of sampling and shuffling protected nobody.

A card shows epsilon with and without amplification, because amplification
rests on the batches (or the order of reports) staying hidden.
"""

import dataclasses
import functools

from tulle.errors import UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event


def without_amplification(event: Event) -> Event:
    """The event in which every row enters every batch and nothing is shuffled.

    All rows of a unit then meet the same noise, so with k rows a unit the noise
    relative to what the unit contributes is k times smaller.
    """
    match event:
        case events.PoissonSampled() | events.TruncatedPoissonSampled():
            return _for_rows(without_amplification(event.event), event.max_rows_per_unit)
        case events.FixedSizeSampled() | events.Shuffled():
            return without_amplification(event.event)
        case events.Repeated() | events.Grouped():
            return dataclasses.replace(event, event=without_amplification(event.event))
        case events.Composed() | events.Parallel():
            parts = tuple(without_amplification(part) for part in event.events)
            return dataclasses.replace(event, events=parts)
    return event


def _for_rows(event: Event, num_rows: int) -> Event:
    return event if num_rows == 1 else _times_contribution(event, num_rows)


@functools.singledispatch
def _times_contribution(event: Event, factor: int) -> Event:
    raise UnsupportedEventError(
        f"{type(event).__name__} of max_rows_per_unit={factor} rows has no known form without "
        "sampling; use additive noise on a sum, or one row a unit."
    )


@_times_contribution.register
def _(event: events.Gaussian | events.Laplace, factor: int) -> Event:
    return dataclasses.replace(event, noise_multiplier=event.noise_multiplier / factor)


@_times_contribution.register
def _(event: events.SwitchedGaussian, factor: int) -> Event:
    # Labels of several rows move the sum by one contribution each, whichever way they go.
    noise_multiplier = event.noise_multiplier / factor
    return events.Gaussian(noise_multiplier=noise_multiplier, replace_factor=1.0)


@_times_contribution.register
def _(event: events.DiscreteLaplace | events.DiscreteGaussian, factor: int) -> Event:
    return dataclasses.replace(event, max_contribution=event.max_contribution * factor)


@_times_contribution.register
def _(event: events.Repeated, factor: int) -> Event:
    return dataclasses.replace(event, event=_times_contribution(event.event, factor))


@_times_contribution.register
def _(event: events.Composed, factor: int) -> Event:
    return events.Composed(tuple(_times_contribution(part, factor) for part in event.events))


@_times_contribution.register
def _(event: events.NonPrivate, factor: int) -> Event:
    del factor
    return event
