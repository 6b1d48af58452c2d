"""Which events speak about a fixed set of units, and so not about one that moves.

Where a sensitive column decides the part of a unit, replacing it removes the
unit from one part and adds it to another. A number of reports, rows or units
that the event takes for public would then tell.
"""

from tulle.privacy import events

_FIXED_UNITS = (
    events.EpsilonDelta,
    events.RandomizedResponse,
    events.SubsetSelection,
    events.Shuffled,
    events.TruncatedPoissonSampled,
    events.FixedSizeSampled,
    events.Parallel,
)


def bound_to_its_units(event: events.Event) -> events.Event | None:
    """A part of the event that holds only while its units stay; None if there is none."""
    if isinstance(event, events.Composed):
        found = (bound_to_its_units(part) for part in event.events)
        return next((part for part in found if part is not None), None)
    if isinstance(event, events.Repeated):
        return bound_to_its_units(event.event)
    return event if isinstance(event, _FIXED_UNITS) else None
