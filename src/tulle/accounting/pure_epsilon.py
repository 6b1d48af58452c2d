"""The exact cost of events that need no delta, by basic composition.

Sums of pure costs are kept as fractions: ten spends of 0.1 are ten times the
number nearest to 0.1, whatever the order, and no rounding piles up.
"""

import functools
import math
from fractions import Fraction

from tulle.accounting.private_parts import bound_to_its_units
from tulle.privacy import events
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency


def pure_epsilon(event: Event, adjacency: Adjacency) -> Fraction | None:
    """An epsilon that the event satisfies with delta=0; None where we know none.

    Sampled and shuffled events are left to the accountant.
    """
    return _pure_epsilon(event, adjacency)


def as_float(epsilon: Fraction) -> float:
    """The epsilon as a number; math.inf where it is beyond all of them."""
    try:
        return float(epsilon)
    except OverflowError:
        return math.inf


@functools.singledispatch
def _pure_epsilon(event: Event, adjacency: Adjacency) -> Fraction | None:  # noqa: ARG001
    return None


@_pure_epsilon.register
def _(event: events.Laplace, adjacency: Adjacency) -> Fraction | None:
    return _move(event.replace_factor, adjacency) / Fraction(event.noise_multiplier)


@_pure_epsilon.register
def _(event: events.DiscreteLaplace, adjacency: Adjacency) -> Fraction | None:
    distance = event.max_contribution * _move(event.replace_factor, adjacency)
    return distance / Fraction(event.scale)


@_pure_epsilon.register(events.RandomizedResponse)
@_pure_epsilon.register(events.SubsetSelection)
def _(
    event: events.RandomizedResponse | events.SubsetSelection,
    adjacency: Adjacency,  # noqa: ARG001
) -> Fraction | None:
    # The number of reports is public; a report from nobody is a mixture of reports.
    return Fraction(event.epsilon)


@_pure_epsilon.register
def _(event: events.EpsilonDelta, adjacency: Adjacency) -> Fraction | None:  # noqa: ARG001
    return Fraction(event.epsilon) if event.delta == 0 else None


@_pure_epsilon.register
def _(event: events.KeySelection, adjacency: Adjacency) -> Fraction | None:
    if event.delta != 0:
        return None
    num_keys = event.max_keys_per_unit * (2 if adjacency is Adjacency.REPLACE else 1)
    return num_keys * Fraction(event.epsilon)


@_pure_epsilon.register
def _(event: events.Repeated, adjacency: Adjacency) -> Fraction | None:
    once = pure_epsilon(event.event, adjacency)
    return None if once is None else event.count * once


@_pure_epsilon.register
def _(event: events.Composed, adjacency: Adjacency) -> Fraction | None:
    parts = _parts(event.events, adjacency)
    return None if parts is None else sum(parts, start=Fraction(0))


@_pure_epsilon.register
def _(event: events.Parallel, adjacency: Adjacency) -> Fraction | None:
    parts = _parts(event.events, adjacency)
    if parts is None:
        return None
    can_move = adjacency is Adjacency.REPLACE and not event.parts_are_public
    if can_move and len(event.events) > 1 and bound_to_its_units(events.Composed(event.events)):
        return None
    return sum(sorted(parts, reverse=True)[: 2 if can_move else 1], start=Fraction(0))


def _parts(parts: tuple[Event, ...], adjacency: Adjacency) -> list[Fraction] | None:
    costs = [pure_epsilon(part, adjacency) for part in parts]
    known = [cost for cost in costs if cost is not None]
    return known if len(known) == len(costs) else None


def _move(replace_factor: float, adjacency: Adjacency) -> Fraction:
    return Fraction(replace_factor) if adjacency is Adjacency.REPLACE else Fraction(1)
