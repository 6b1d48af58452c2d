"""Accountants that are wrong on purpose, each in one way that was seen or nearly made."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import ExactCurve, PrivacyCurve
from tulle.accounting.event_rules import event_parts
from tulle.accounting.profiles import Profile
from tulle.privacy import events
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency


def count_of_responses_ignored(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """As the PLD accountant of dp-accounting 0.6.0 does."""

    def change(part: Event) -> Event:
        is_repeated = isinstance(part, events.Repeated)
        return part.event if is_repeated and _is_response(part.event) else part

    return privacy_curve(_rewritten(event, change), adjacency)


def removal_distance_under_replace(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """As the Renyi accountant of dp-accounting 0.6.0 does for Gaussian noise."""
    del adjacency
    return privacy_curve(event, Adjacency.ADD_OR_REMOVE)


def removal_pair_for_a_replaced_row(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """What the first papers on training did."""
    sampled = isinstance(event, events.PoissonSampled)
    return privacy_curve(event, Adjacency.ADD_OR_REMOVE if sampled else adjacency)


def fixed_batches_as_poisson(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """Shuffled batches of one size, accounted as if rows came independently."""

    def change(part: Event) -> Event:
        if not isinstance(part, events.FixedSizeSampled):
            return part
        return events.PoissonSampled(
            sampling_prob=part.batch_size / part.num_rows, event=part.event
        )

    return privacy_curve(_rewritten(event, change), adjacency)


def truncation_ignored(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """Batches are cut to size, and nobody told the accountant."""

    def change(part: Event) -> Event:
        if not isinstance(part, events.TruncatedPoissonSampled):
            return part
        return events.PoissonSampled(
            sampling_prob=part.sampling_prob,
            event=part.event,
            max_rows_per_unit=part.max_rows_per_unit,
        )

    return privacy_curve(_rewritten(event, change), adjacency)


def rows_of_a_unit_ignored(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """A claim for users from the accounting of rows."""

    def change(part: Event) -> Event:
        has_rows = hasattr(part, "max_rows_per_unit")
        return dataclasses.replace(part, max_rows_per_unit=1) if has_rows else part

    return privacy_curve(_rewritten(event, change), adjacency)


def switched_noise_over_twice_the_bound(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """Takes noise that was set for whole clipped gradients, which turn round, for switched ones.

    A gradient of norm C that turns round moves a sum by 2 C; the accountant hears of C.
    """

    def change(part: Event) -> Event:
        is_gaussian = isinstance(part, events.Gaussian)
        if not is_gaussian:
            return part
        return events.SwitchedGaussian(noise_multiplier=part.noise_multiplier)

    return privacy_curve(_rewritten(event, change), adjacency)


def rows_beside_a_switch_ignored(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """Batches are cut to size, and a label switches: truncation is still no Poisson batch."""
    return truncation_ignored(event, adjacency)


def several_labels_as_one_switch(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """The labels of a unit's rows may go on and off at once, and one is accounted."""
    return rows_of_a_unit_ignored(event, adjacency)


def group_epsilon_without_its_delta(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """k epsilon at the delta of one unit."""
    if isinstance(event, events.Composed):
        event = event.events[0]
    if not isinstance(event, events.Grouped):
        return privacy_curve(event, adjacency)
    return _Curve(privacy_curve(event.event, adjacency), group_size=event.group_size)


def infinite_loss_dropped(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """Only finite losses are composed."""

    def change(part: Event) -> Event:
        leaks = isinstance(part, events.EpsilonDelta)
        return dataclasses.replace(part, delta=0.0) if leaks else part

    return privacy_curve(_rewritten(event, change), adjacency)


def private_parts_as_public(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """Parallel composition where units can move between parts."""

    def change(part: Event) -> Event:
        is_parallel = isinstance(part, events.Parallel)
        return dataclasses.replace(part, parts_are_public=True) if is_parallel else part

    return privacy_curve(_rewritten(event, change), adjacency)


def one_order_only(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """The pair of an added row alone."""
    ((profile, _),) = event_parts(event, adjacency)
    return ExactCurve(Profile(profile.swapped().forward))


def rounding_taken_for_privacy(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """Below the rounding of a Fourier transform every delta is met by one epsilon."""
    return _Curve(privacy_curve(event, adjacency), least_delta=1e-11)


def largest_loss_wrapped_around(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """The window of a Fourier transform ends one point before the largest sum of losses."""
    curve = privacy_curve(event, adjacency)
    if not (isinstance(event, events.Repeated) and _is_response(event.event)):
        return curve
    return _Curve(curve, largest=(event.count, event.event.epsilon))


@dataclasses.dataclass
class _Curve:
    right: PrivacyCurve
    least_delta: float = 0.0
    largest: tuple[int, float] = (0, 0.0)
    group_size: int = 1

    def epsilon(self, delta: float) -> float:
        return self.right.epsilon(max(delta, self.least_delta))

    def delta(self, epsilon: float) -> float:
        count, local = self.largest
        if count == 0:
            return self.right.delta(epsilon / self.group_size)
        lost = (1 + math.exp(-local)) ** -count * -np.expm1(min(0.0, epsilon - count * local))
        return max(0.0, self.right.delta(epsilon) - float(lost))


def _is_response(event: Event) -> bool:
    return isinstance(event, events.RandomizedResponse)


def _rewritten(event: Event, change: Callable[[Event], Event]) -> Event:
    inner: dict[str, object] = {}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Event):
            inner[field.name] = _rewritten(value, change)
        elif isinstance(value, tuple):
            inner[field.name] = tuple(_rewritten(part, change) for part in value)
    return change(dataclasses.replace(event, **inner))
