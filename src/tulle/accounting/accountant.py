"""Events to guarantees: what a mechanism costs under one adjacency.

The default and only certificate is by privacy loss distributions. Renyi
accounting (rdp.py) exists to reproduce papers.
"""

from tulle.accounting.curve import NoPrivacyCurve, PrivacyCurve, curve_of_parts
from tulle.accounting.event_profiles import event_parts
from tulle.accounting.group_privacy import GroupCurve, ShiftedCurve, contains_group, split_group
from tulle.accounting.pure_epsilon import as_float
from tulle.errors import ConfigError
from tulle.privacy.events import Composed, Event, NonPrivate, Parallel
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.units import Adjacency, Scope, Unit


def privacy_curve(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """What an event costs at every epsilon and delta, never too little.

    Raises:
      UnsupportedEventError: No sound accounting is known for this combination.
    """
    if not isinstance(adjacency, Adjacency):
        raise ConfigError(f"adjacency={adjacency!r} must be an Adjacency, e.g. Adjacency.REPLACE.")
    if contains_non_private(event):
        return NoPrivacyCurve()
    if contains_group(event):
        group, pure_epsilon = split_group(event, adjacency)
        of_one = curve_of_parts(event_parts(group.event, adjacency))
        return ShiftedCurve(GroupCurve(of_one, group.group_size), as_float(pure_epsilon))
    return curve_of_parts(event_parts(event, adjacency))


def pld_epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The least epsilon that an event costs at `delta`; inf if there is none."""
    return privacy_curve(event, adjacency).epsilon(delta)


def guarantee(
    event: Event,
    *,
    delta: float,
    unit: Unit,
    adjacency: Adjacency,
    scope: Scope = Scope.LABELS_AND_SENSITIVE_COLUMNS,
) -> Guarantee:
    """The guarantee that an event gives at `delta`."""
    epsilon = pld_epsilon(event, delta, adjacency)
    return Guarantee(epsilon=epsilon, delta=delta, unit=unit, adjacency=adjacency, scope=scope)


def contains_non_private(event: Event) -> bool:
    """True if any part of an event is released without protection."""
    if isinstance(event, (Composed, Parallel)):
        return any(contains_non_private(part) for part in event.events)
    inner = getattr(event, "event", None)
    return isinstance(event, NonPrivate) or (inner is not None and contains_non_private(inner))
