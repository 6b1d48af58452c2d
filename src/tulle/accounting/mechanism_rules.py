"""What the accountant knows of each mechanism: one class for each event that contains no other.

A class of rules says which pair of distributions is the worst under each adjacency, what the event
costs without a delta, what it is in Renyi accounting, and which of its settings rules the noise.
What is not said is refused by name: guessing would under-report. A new mechanism is one class here
and one line in `MECHANISMS`; events that are made of others have their rules in event_rules.py.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from tulle.accounting.profiles import (
    Profile,
    discrete_gaussian_profile,
    discrete_laplace_profile,
    epsilon_delta_profile,
    gaussian_profile,
    laplace_profile,
    three_point_profile,
)
from tulle.errors import UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency

EventType = TypeVar("EventType", bound=Event)
Parts = list[tuple[Profile, int]]
"""Profiles with how often each is composed."""

LEAST_NOISE, MOST_NOISE = 1e-6, 1e7
"""Gaussian noise. Below the least, losses leave the range of every grid: nothing is protected.
More than the most is accounted as the most: it costs next to nothing either way, and with more the
two terms of a delta agree in so many digits that their difference would be rounding. So it never
costs nothing at all, which without a delta would be wrong."""
UNPROTECTED = Profile(np.ones_like, largest_loss=0.0, infinite_prob=1.0)
"""The profile of a release that tells everything."""
_LARGEST_DISCRETE_GAUSSIAN = 2.0**17
"""Largest scale that is accounted point by point, in some millions of points."""
_LEAST_RENYI_NOISE, _MOST_RENYI_NOISE = 1e-100, 1e100
"""Gaussian noise whose square is still a float."""


class EventRules(Generic[EventType]):
    """Rules of an event of which nothing is known: each question is refused by name."""

    noise_setting: ClassVar[str] = ""
    """The setting that rules the noise; empty if there is none. More epsilon is less noise, more
    of any other setting is more noise."""
    is_bound_to_units: ClassVar[bool] = False
    """True if the event holds only while its units stay. Where a sensitive column decides the part
    of a unit, replacing it removes the unit from one part and adds it to another, and a number of
    reports, rows or units that the event takes for public would tell."""
    is_local: ClassVar[bool] = False
    """True if a device can run it on its own data, so that a shuffler can mix its reports."""
    is_additive: ClassVar[bool] = False
    """True for noise on a sum of whole contributions, which sampling is known to amplify."""

    def parts(self, event: EventType, adjacency: Adjacency) -> Parts:
        """The profiles of the worst pairs, with their counts."""
        raise UnsupportedEventError(
            f"no accounting is known for {type(event).__name__} under {adjacency.value}; "
            "known events are in tulle.privacy.events."
        )

    def pure_epsilon(self, event: EventType, adjacency: Adjacency) -> Fraction | None:
        """An epsilon that holds with delta=0, exactly; None where none is known."""
        del event, adjacency
        return None

    def renyi_event(self, event: EventType) -> object:
        """The event of dp_accounting that Renyi accounting composes."""
        raise UnsupportedEventError(
            f"RDP has no accounting for {type(event).__name__} here; use the PLD accountant."
        )

    def renyi_epsilon(self, event: EventType) -> float | None:
        """What is added to a Renyi epsilon in place of composing the event; None if nothing is."""
        del event
        return None

    def with_noise_scaled(self, event: EventType, factor: float) -> Event:
        """The event with its noise times `factor`."""
        if not self.noise_setting:
            raise UnsupportedEventError(
                f"event {type(event).__name__} has no rule that scales its noise; "
                "rebuild it with the noise that you want."
            )
        value = getattr(event, self.noise_setting)
        scaled = value / factor if self.noise_setting == "epsilon" else value * factor
        return dataclasses.replace(event, **{self.noise_setting: scaled})

    def without_amplification(self, event: EventType) -> Event:
        """The event if every row entered every batch and nothing were shuffled."""
        return event

    def for_rows(self, event: EventType, num_rows: int) -> Event:
        """The event for a unit that contributes `num_rows` times as much, to the same noise."""
        raise UnsupportedEventError(
            f"{type(event).__name__} of max_rows_per_unit={num_rows} rows has no known form "
            "without sampling; use additive noise on a sum, or one row a unit."
        )

    def num_switched_labels(self, event: EventType) -> int:
        """How many labels the event may switch on or off; see `SwitchedGaussian`."""
        del event
        return 0


class _GaussianRules(EventRules[events.Gaussian]):
    noise_setting = "noise_multiplier"
    is_local = is_additive = True

    def parts(self, event: events.Gaussian, adjacency: Adjacency) -> Parts:
        return _gaussian_parts(event, adjacency)

    def renyi_event(self, event: events.Gaussian) -> object:
        # dp_accounting takes over half a second to import.
        from dp_accounting import GaussianDpEvent

        if not _LEAST_RENYI_NOISE <= event.noise_multiplier <= _MOST_RENYI_NOISE:
            raise UnsupportedEventError(
                f"RDP with noise_multiplier={event.noise_multiplier:g} is refused: its square "
                f"leaves the range of a float. Use noise in [{_LEAST_RENYI_NOISE:g}, "
                f"{_MOST_RENYI_NOISE:g}], or the PLD accountant."
            )
        return GaussianDpEvent(event.noise_multiplier)

    def for_rows(self, event: events.Gaussian, num_rows: int) -> Event:
        return dataclasses.replace(event, noise_multiplier=event.noise_multiplier / num_rows)


class _SwitchedGaussianRules(EventRules[events.SwitchedGaussian]):
    noise_setting = "noise_multiplier"

    def parts(self, event: events.SwitchedGaussian, adjacency: Adjacency) -> Parts:
        return _gaussian_parts(event, adjacency)

    def for_rows(self, event: events.SwitchedGaussian, num_rows: int) -> Event:
        # Labels of several rows move the sum by one contribution each, whichever way they go.
        noise_multiplier = event.noise_multiplier / num_rows
        return events.Gaussian(noise_multiplier=noise_multiplier, replace_factor=1.0)

    def num_switched_labels(self, event: events.SwitchedGaussian) -> int:
        del event
        return 1


class _LaplaceRules(EventRules[events.Laplace]):
    noise_setting = "noise_multiplier"
    is_local = is_additive = True

    def parts(self, event: events.Laplace, adjacency: Adjacency) -> Parts:
        distance = _distance(event.replace_factor, adjacency) / event.noise_multiplier
        return [(laplace_profile(distance) if math.isfinite(distance) else UNPROTECTED, 1)]

    def pure_epsilon(self, event: events.Laplace, adjacency: Adjacency) -> Fraction:
        return _exact_distance(event.replace_factor, adjacency) / Fraction(event.noise_multiplier)

    def renyi_event(self, event: events.Laplace) -> object:
        from dp_accounting import LaplaceDpEvent

        return LaplaceDpEvent(event.noise_multiplier)

    def for_rows(self, event: events.Laplace, num_rows: int) -> Event:
        return dataclasses.replace(event, noise_multiplier=event.noise_multiplier / num_rows)


class _DiscreteLaplaceRules(EventRules[events.DiscreteLaplace]):
    noise_setting = "scale"
    is_local = is_additive = True

    def parts(self, event: events.DiscreteLaplace, adjacency: Adjacency) -> Parts:
        steps = _integer_distance(event, adjacency)
        if not math.isfinite(steps / event.scale):
            return [(UNPROTECTED, 1)]
        return [(discrete_laplace_profile(event.scale, steps), 1)]

    def pure_epsilon(self, event: events.DiscreteLaplace, adjacency: Adjacency) -> Fraction:
        distance = event.max_contribution * _exact_distance(event.replace_factor, adjacency)
        return distance / Fraction(event.scale)

    def for_rows(self, event: events.DiscreteLaplace, num_rows: int) -> Event:
        return dataclasses.replace(event, max_contribution=event.max_contribution * num_rows)


class _DiscreteGaussianRules(EventRules[events.DiscreteGaussian]):
    noise_setting = "scale"
    is_local = is_additive = True

    def parts(self, event: events.DiscreteGaussian, adjacency: Adjacency) -> Parts:
        if event.scale > _LARGEST_DISCRETE_GAUSSIAN:
            raise UnsupportedEventError(
                f"DiscreteGaussian scale={event.scale:g} must be <= "
                f"{_LARGEST_DISCRETE_GAUSSIAN:g} to be accounted point by point; use Gaussian "
                "noise rounded to a lattice."
            )
        if event.scale < LEAST_NOISE:
            return [(UNPROTECTED, 1)]
        steps = _integer_distance(event, adjacency)
        # The table of the profile has as many points as the noise and the shift together.
        if steps > 64 * _LARGEST_DISCRETE_GAUSSIAN:
            raise UnsupportedEventError(
                f"DiscreteGaussian max_contribution={event.max_contribution} is too large to be "
                "accounted point by point; count in larger steps, or use Gaussian noise."
            )
        return [(discrete_gaussian_profile(event.scale, steps), 1)]

    def for_rows(self, event: events.DiscreteGaussian, num_rows: int) -> Event:
        return dataclasses.replace(event, max_contribution=event.max_contribution * num_rows)


class _RandomizedResponseRules(EventRules[events.RandomizedResponse]):
    # Under add-or-remove and zero-out an absent unit still reports, from some mixture of rows of
    # the channel (number of reports public); no such mixture is worse than a row.
    noise_setting = "epsilon"
    is_bound_to_units = is_local = True

    def parts(self, event: events.RandomizedResponse, adjacency: Adjacency) -> Parts:
        del adjacency
        # Two values differ in two outputs alone, by a ratio of e^epsilon and its inverse.
        truth_prob = 1 / (1 + (event.num_values - 1) * math.exp(-event.epsilon))
        return [(three_point_profile(event.epsilon, truth_prob), 1)]

    def pure_epsilon(self, event: events.RandomizedResponse, adjacency: Adjacency) -> Fraction:
        del adjacency
        return Fraction(event.epsilon)

    def renyi_epsilon(self, event: events.RandomizedResponse) -> float:
        return event.epsilon


class _SubsetSelectionRules(EventRules[events.SubsetSelection]):
    # Absent units as for randomized response.
    noise_setting = "epsilon"
    is_bound_to_units = is_local = True

    def parts(self, event: events.SubsetSelection, adjacency: Adjacency) -> Parts:
        del adjacency
        # A subset tells two values apart only if it holds one of them and not the other.
        others = event.num_values - event.subset_size
        with_truth_prob = 1 / (1 + others / event.subset_size * math.exp(-event.epsilon))
        telling_prob = with_truth_prob * others / (event.num_values - 1)
        return [(three_point_profile(event.epsilon, telling_prob), 1)]

    def pure_epsilon(self, event: events.SubsetSelection, adjacency: Adjacency) -> Fraction:
        del adjacency
        return Fraction(event.epsilon)

    def renyi_epsilon(self, event: events.SubsetSelection) -> float:
        return event.epsilon


class _EpsilonDeltaRules(EventRules[events.EpsilonDelta]):
    # By its definition the event holds under the adjacency in use.
    noise_setting = "epsilon"
    is_bound_to_units = is_local = True

    def parts(self, event: events.EpsilonDelta, adjacency: Adjacency) -> Parts:
        del adjacency
        return [(epsilon_delta_profile(event.epsilon, event.delta), 1)]

    def pure_epsilon(self, event: events.EpsilonDelta, adjacency: Adjacency) -> Fraction | None:
        del adjacency
        return Fraction(event.epsilon) if event.delta == 0 else None


class _KeySelectionRules(EventRules[events.KeySelection]):
    noise_setting = "epsilon"

    def parts(self, event: events.KeySelection, adjacency: Adjacency) -> Parts:
        touched = self._num_touched(event, adjacency)
        return [(epsilon_delta_profile(event.epsilon, event.delta), touched)]

    def pure_epsilon(self, event: events.KeySelection, adjacency: Adjacency) -> Fraction | None:
        if event.delta != 0:
            return None
        return self._num_touched(event, adjacency) * Fraction(event.epsilon)

    def _num_touched(self, event: events.KeySelection, adjacency: Adjacency) -> int:
        # A replaced unit leaves its keys and enters as many others.
        return event.max_keys_per_unit * (2 if adjacency is Adjacency.REPLACE else 1)


class _NonPrivateRules(EventRules[events.NonPrivate]):
    def with_noise_scaled(self, event: events.NonPrivate, factor: float) -> Event:
        del factor
        return event

    def for_rows(self, event: events.NonPrivate, num_rows: int) -> Event:
        del num_rows
        return event


MECHANISMS: dict[type[Event], EventRules[Any]] = {
    events.Gaussian: _GaussianRules(),
    events.SwitchedGaussian: _SwitchedGaussianRules(),
    events.Laplace: _LaplaceRules(),
    events.DiscreteLaplace: _DiscreteLaplaceRules(),
    events.DiscreteGaussian: _DiscreteGaussianRules(),
    events.RandomizedResponse: _RandomizedResponseRules(),
    events.SubsetSelection: _SubsetSelectionRules(),
    events.EpsilonDelta: _EpsilonDeltaRules(),
    events.KeySelection: _KeySelectionRules(),
    events.NonPrivate: _NonPrivateRules(),
}
"""Rules of every event that contains no other."""


def gaussian_distance(
    event: events.Gaussian | events.SwitchedGaussian, adjacency: Adjacency
) -> float:
    """How far a unit moves the sum, in standard deviations of the noise."""
    factor = 1.0 if isinstance(event, events.SwitchedGaussian) else event.replace_factor
    return _distance(factor, adjacency) / event.noise_multiplier


def _gaussian_parts(
    event: events.Gaussian | events.SwitchedGaussian, adjacency: Adjacency
) -> Parts:
    if event.noise_multiplier < LEAST_NOISE:
        return [(UNPROTECTED, 1)]
    distance = max(gaussian_distance(event, adjacency), 1 / MOST_NOISE)
    return [(gaussian_profile(distance), 1)]


def _distance(replace_factor: float, adjacency: Adjacency) -> float:
    return replace_factor if adjacency is Adjacency.REPLACE else 1.0


def _exact_distance(replace_factor: float, adjacency: Adjacency) -> Fraction:
    return Fraction(_distance(replace_factor, adjacency))


def _integer_distance(
    event: events.DiscreteLaplace | events.DiscreteGaussian, adjacency: Adjacency
) -> int:
    # Contributions are whole numbers, so a distance of at most 2.8 is at most 2. The slack lets
    # a product such as 3 * sqrt(2) / sqrt(2), which rounding put below 3, be 3.
    distance = event.max_contribution * _distance(event.replace_factor, adjacency)
    return math.floor(distance * (1 + 1e-12))
