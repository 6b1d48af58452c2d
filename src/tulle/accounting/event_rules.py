"""What an event costs, from the rules of what it is made of.

Here are the rules of events that contain others (compositions, samples, shuffles, groups) and the
questions that the accountant asks of any event. The rules of single mechanisms are in
mechanism_rules.py; `_RULES` holds both, one entry an event.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from tulle.accounting import sampling
from tulle.accounting.curve import curve_of_parts
from tulle.accounting.gaussian_pairs import sampled_switch_profile
from tulle.accounting.mechanism_rules import (
    LEAST_NOISE,
    MECHANISMS,
    MOST_NOISE,
    UNPROTECTED,
    EventRules,
    Parts,
    gaussian_distance,
)
from tulle.accounting.profiles import Profile, gaussian_profile, in_both_orders
from tulle.accounting.shuffling import shuffled_profile
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event, inner_events
from tulle.privacy.units import Adjacency

_GAUSSIANS = (events.Gaussian, events.SwitchedGaussian)
_MOST_RELEASES = 10**30
"""No count is larger, so only counts of counts can be; their products would overflow."""

_Inner = TypeVar(
    "_Inner",
    events.PoissonSampled,
    events.TruncatedPoissonSampled,
    events.FixedSizeSampled,
    events.Shuffled,
    events.Repeated,
    events.Grouped,
)
_Several = TypeVar("_Several", events.Composed, events.Parallel)


def event_parts(event: Event, adjacency: Adjacency) -> Parts:
    """The profiles of everything an event is composed of, with their counts.

    Equal events are merged, and Gaussian releases of the same units become one:
    their squared distances add up.
    """
    counts: dict[Event, int] = {}
    _count_atoms(event, 1, counts)
    _open_whole_batches(counts, adjacency)
    if any(count > _MOST_RELEASES for count in counts.values()):
        raise UnsupportedEventError(
            f"a composition of over {_MOST_RELEASES:.0e} releases cannot be resolved; account for "
            "fewer at a time."
        )
    squared_distance, has_gaussians = 0.0, False
    parts: Parts = []
    for atom, count in counts.items():
        if isinstance(atom, _GAUSSIANS) and atom.noise_multiplier >= LEAST_NOISE:
            squared_distance += count * gaussian_distance(atom, adjacency) ** 2
            has_gaussians = True
        else:
            found = rules_of(atom).parts(atom, adjacency)
            parts += [(profile, count * n) for profile, n in found]
    if has_gaussians:
        # More noise than MOST_NOISE is accounted as MOST_NOISE; see there.
        distance = max(math.sqrt(squared_distance), 1 / MOST_NOISE)
        parts.append((gaussian_profile(distance), 1))
    # Two labels may be replaced together, one on and one off: then parts meet opposite orders.
    if adjacency is Adjacency.REPLACE and num_switched_labels(event) > 1:
        return [(in_both_orders(profile), count) for profile, count in parts]
    return parts


def pure_epsilon(event: Event, adjacency: Adjacency) -> Fraction | None:
    """An epsilon that the event satisfies with delta=0; None where we know none.

    By basic composition, in fractions: ten spends of 0.1 are ten times the number nearest to 0.1,
    whatever the order, and no rounding piles up. Sampled and shuffled events are left to the
    accountant.
    """
    return rules_of(event).pure_epsilon(event, adjacency)


def as_float(epsilon: Fraction) -> float:
    """The epsilon as a number; math.inf where it is beyond all of them."""
    try:
        return float(epsilon)
    except OverflowError:
        return math.inf


def with_noise_scaled(event: Event, factor: float) -> Event:
    """The event with all its noise times `factor`.

    Noise that is set by an epsilon gets epsilon / factor; a delta stays as it is.
    """
    if not 0 < factor < math.inf:
        raise ConfigError(f"factor={factor} must be > 0 and finite; 1 leaves the noise as it is.")
    return rules_of(event).with_noise_scaled(event, factor)


def noise_setting(event: Event) -> tuple[str, float] | None:
    """Name and value of the one setting that rules the noise; None if there are several."""
    if name := rules_of(event).noise_setting:
        return name, getattr(event, name)
    parts = inner_events(event)
    return noise_setting(parts[0]) if len(set(parts)) == 1 else None


def without_amplification(event: Event) -> Event:
    """The event in which every row enters every batch and nothing is shuffled.

    A card shows epsilon with and without amplification, because amplification rests on the
    batches (or the order of reports) staying hidden. All rows of a unit then meet the same noise,
    so with k rows a unit the noise relative to what the unit contributes is k times smaller.
    """
    return rules_of(event).without_amplification(event)


def bound_to_its_units(event: Event) -> Event | None:
    """A part of the event that holds only while its units stay; None if there is none."""
    if isinstance(event, events.Composed | events.Repeated):
        found = (bound_to_its_units(part) for part in inner_events(event))
        return next((part for part in found if part is not None), None)
    return event if rules_of(event).is_bound_to_units else None


def num_switched_labels(event: Event) -> int:
    """How many labels an event may switch: one for each place where it says so.

    `Repeated` right around such an event is one place; around anything else it is many.
    """
    return rules_of(event).num_switched_labels(event)


def rules_of(event: Event) -> EventRules[Any]:
    """The rules of an event; those of one that nobody listed refuse every question by name."""
    return _RULES.get(type(event), _NO_RULES)


class _InnerRules(EventRules[_Inner]):
    """Rules of an event around another one: its noise is that of the inner event."""

    def with_noise_scaled(self, event: _Inner, factor: float) -> Event:
        return dataclasses.replace(event, event=with_noise_scaled(event.event, factor))

    def without_amplification(self, event: _Inner) -> Event:
        return dataclasses.replace(event, event=without_amplification(event.event))

    def num_switched_labels(self, event: _Inner) -> int:
        return num_switched_labels(event.event)


class _SeveralRules(EventRules[_Several]):
    """Rules of an event of several parts."""

    def with_noise_scaled(self, event: _Several, factor: float) -> Event:
        parts = tuple(with_noise_scaled(part, factor) for part in event.events)
        return dataclasses.replace(event, events=parts)

    def without_amplification(self, event: _Several) -> Event:
        return dataclasses.replace(event, events=tuple(map(without_amplification, event.events)))

    def num_switched_labels(self, event: _Several) -> int:
        return sum(num_switched_labels(part) for part in event.events)

    def _pure_epsilons(self, event: _Several, adjacency: Adjacency) -> list[Fraction] | None:
        costs = [pure_epsilon(part, adjacency) for part in event.events]
        known = [cost for cost in costs if cost is not None]
        return known if len(known) == len(costs) else None


class _PoissonRules(_InnerRules[events.PoissonSampled]):
    def parts(self, event: events.PoissonSampled, adjacency: Adjacency) -> Parts:
        noise = _gaussian_noise(event.event)
        if noise == 0:
            return [(UNPROTECTED, 1)]
        if noise is not None:
            return [(_poisson_gaussian(event, noise, adjacency), 1)]
        if event.max_rows_per_unit > 1:
            raise UnsupportedEventError(
                f"PoissonSampled({type(event.event).__name__}) with max_rows_per_unit="
                f"{event.max_rows_per_unit} has no known pair; use Gaussian noise or one row a "
                "unit."
            )
        removed = _sampled_base(event, Adjacency.ADD_OR_REMOVE)
        if adjacency is not Adjacency.REPLACE:
            return [(sampling.poisson_remove_profile(removed, event.sampling_prob), 1)]
        replaced = _sampled_base(event, Adjacency.REPLACE)
        return [(sampling.poisson_replace_profile(removed, replaced, event.sampling_prob), 1)]

    def renyi_event(self, event: events.PoissonSampled) -> object:
        from dp_accounting import PoissonSampledDpEvent

        if event.max_rows_per_unit > 1 or not isinstance(event.event, events.Gaussian):
            raise UnsupportedEventError(
                "RDP here covers Poisson-sampled Gaussian noise with one row a unit; "
                "use the PLD accountant for anything else."
            )
        return PoissonSampledDpEvent(
            event.sampling_prob, rules_of(event.event).renyi_event(event.event)
        )

    def without_amplification(self, event: events.PoissonSampled) -> Event:
        return _for_rows(without_amplification(event.event), event.max_rows_per_unit)


class _TruncatedPoissonRules(_InnerRules[events.TruncatedPoissonSampled]):
    is_bound_to_units = True

    def parts(self, event: events.TruncatedPoissonSampled, adjacency: Adjacency) -> Parts:
        noise = _gaussian_noise(event.event)
        if noise is None:
            raise UnsupportedEventError(
                f"TruncatedPoissonSampled({type(event.event).__name__}) has no known pair; "
                "use Gaussian noise, or PoissonSampled without truncation."
            )
        if noise == 0:
            return [(UNPROTECTED, 1)]
        whole = _poisson_gaussian(event, noise, adjacency)
        # In a cut batch the row takes the place of another one, whose label may be on: the sums
        # are up to 2 apart, also where a label switches.
        cut_prob, cut = sampling.truncation_profile(
            num_rows=event.num_rows,
            sampling_prob=event.sampling_prob,
            max_batch_size=event.max_batch_size,
            noise_multiplier=noise,
            max_rows=event.max_rows_per_unit,
        )
        return [(whole if cut_prob == 0 else sampling.mixed_profile(whole, cut, cut_prob), 1)]

    def without_amplification(self, event: events.TruncatedPoissonSampled) -> Event:
        return _for_rows(without_amplification(event.event), event.max_rows_per_unit)


class _FixedSizeRules(_InnerRules[events.FixedSizeSampled]):
    is_bound_to_units = True

    def parts(self, event: events.FixedSizeSampled, adjacency: Adjacency) -> Parts:
        if adjacency is not Adjacency.REPLACE:
            raise UnsupportedEventError(
                f"FixedSizeSampled under {adjacency.value} is refused: a batch of fixed size has "
                "no room for an added row; use replace, or Poisson sampling."
            )
        replaced = _sampled_base(event, Adjacency.REPLACE)
        share = event.batch_size / event.num_rows
        return [(sampling.fixed_size_replace_profile(replaced, share), 1)]

    def without_amplification(self, event: events.FixedSizeSampled) -> Event:
        return without_amplification(event.event)

    def num_switched_labels(self, event: events.FixedSizeSampled) -> int:
        del event
        return 0  # no pair of a switched label is known for such batches, and `parts` refuses it


class _ShuffledRules(_InnerRules[events.Shuffled]):
    is_bound_to_units = True

    def parts(self, event: events.Shuffled, adjacency: Adjacency) -> Parts:
        if adjacency is not Adjacency.REPLACE:
            raise UnsupportedEventError(
                f"Shuffled under {adjacency.value} is refused: amplification is proven for a "
                "replaced report, and the number of reports is public; use replace."
            )
        local, num_values = event.event, None
        if isinstance(local, events.RandomizedResponse):
            num_values = local.num_values
        return [(shuffled_profile(_local_epsilon(local), event.num_reports, num_values), 1)]

    def without_amplification(self, event: events.Shuffled) -> Event:
        return without_amplification(event.event)

    def num_switched_labels(self, event: events.Shuffled) -> int:
        del event
        return 0  # a sum with a switched label is no report of a device, and `parts` refuses it


class _RepeatedRules(_InnerRules[events.Repeated]):
    def pure_epsilon(self, event: events.Repeated, adjacency: Adjacency) -> Fraction | None:
        once = pure_epsilon(event.event, adjacency)
        return None if once is None else event.count * once

    def for_rows(self, event: events.Repeated, num_rows: int) -> Event:
        return dataclasses.replace(event, event=_for_rows(event.event, num_rows))

    def num_switched_labels(self, event: events.Repeated) -> int:
        # Right around a release it uses one label each time; around several it is many labels.
        inner = num_switched_labels(event.event)
        is_one_release = not isinstance(event.event, events.Repeated | events.Composed)
        return inner if is_one_release else event.count * inner


class _ComposedRules(_SeveralRules[events.Composed]):
    def pure_epsilon(self, event: events.Composed, adjacency: Adjacency) -> Fraction | None:
        costs = self._pure_epsilons(event, adjacency)
        return None if costs is None else sum(costs, start=Fraction(0))

    def for_rows(self, event: events.Composed, num_rows: int) -> Event:
        return events.Composed(tuple(_for_rows(part, num_rows) for part in event.events))


class _ParallelRules(_SeveralRules[events.Parallel]):
    is_bound_to_units = True

    def parts(self, event: events.Parallel, adjacency: Adjacency) -> Parts:
        moves = _moves(event, adjacency)
        bound = bound_to_its_units(events.Composed(event.events))
        if moves and len(event.events) > 1 and bound is not None:
            raise UnsupportedEventError(
                f"{type(bound).__name__} in private parts is refused under replace: it holds while "
                "the units of a part stay, not when one leaves or enters; make the parts public."
            )
        touched = _touched_together(event, moves=moves)
        alternatives = [event_parts(events.Composed(group), adjacency) for group in touched]
        if len(alternatives) == 1:
            return alternatives[0]
        return [(_worst_of(alternatives), 1)]

    def pure_epsilon(self, event: events.Parallel, adjacency: Adjacency) -> Fraction | None:
        costs = self._pure_epsilons(event, adjacency)
        moves = _moves(event, adjacency)
        bound = bound_to_its_units(events.Composed(event.events))
        if costs is None or (moves and len(event.events) > 1 and bound is not None):
            return None
        # A unit that moves leaves one part and enters another; else it touches one.
        return sum(sorted(costs, reverse=True)[: 2 if moves else 1], start=Fraction(0))


_NO_RULES = EventRules[Event]()
_RULES: dict[type[Event], EventRules[Any]] = MECHANISMS | {
    events.PoissonSampled: _PoissonRules(),
    events.TruncatedPoissonSampled: _TruncatedPoissonRules(),
    events.FixedSizeSampled: _FixedSizeRules(),
    events.Shuffled: _ShuffledRules(),
    events.Repeated: _RepeatedRules(),
    events.Composed: _ComposedRules(),
    events.Parallel: _ParallelRules(),
    events.Grouped: _InnerRules[events.Grouped](),
}


def _count_atoms(event: Event, times: int, counts: dict[Event, int]) -> None:
    if isinstance(event, events.Composed):
        for part in event.events:
            _count_atoms(part, times, counts)
    elif isinstance(event, events.Repeated):
        _count_atoms(event.event, times * event.count, counts)
    else:
        counts[event] = counts.get(event, 0) + times


def _open_whole_batches(counts: dict[Event, int], adjacency: Adjacency) -> None:
    """Opens batches of fixed size that hold every row: under replace they are no samples."""
    if adjacency is not Adjacency.REPLACE:
        return
    for atom in list(counts):
        if isinstance(atom, events.FixedSizeSampled) and atom.batch_size == atom.num_rows:
            _count_atoms(atom.event, counts.pop(atom), counts)


def _for_rows(event: Event, num_rows: int) -> Event:
    return event if num_rows == 1 else rules_of(event).for_rows(event, num_rows)


def _gaussian_noise(event: Event) -> float | None:
    """The joint noise multiplier if an event is Gaussian releases of one batch, else None.

    0 if it is too little to protect anything. None also where labels switch parts of some
    releases and more than that of others.
    """
    counts: dict[Event, int] = {}
    _count_atoms(event, 1, counts)
    if len({type(atom) for atom in counts}) > 1:
        return None
    inverse_square = 0.0
    for atom, count in counts.items():
        if not isinstance(atom, _GAUSSIANS):
            return None
        if atom.noise_multiplier < LEAST_NOISE:
            return 0.0
        # Gaussian releases of one batch are one release: their squared distances add up.
        inverse_square += count / min(atom.noise_multiplier, MOST_NOISE) ** 2
    return 1 / math.sqrt(inverse_square) if inverse_square > 0 else None


def _poisson_gaussian(
    event: events.PoissonSampled | events.TruncatedPoissonSampled,
    noise: float,
    adjacency: Adjacency,
) -> Profile:
    """Gaussian noise on a Poisson batch that holds all rows that come."""
    prob, max_rows = event.sampling_prob, event.max_rows_per_unit
    replace = adjacency is Adjacency.REPLACE
    if replace and max_rows == 1 and num_switched_labels(event.event) == 1:
        return sampled_switch_profile(prob, noise)
    return sampling.poisson_gaussian_profile(prob, noise, max_rows, replace=replace)


def _sampled_base(
    event: events.PoissonSampled | events.FixedSizeSampled, adjacency: Adjacency
) -> Profile:
    """The profile of what is run on a batch, where sampling is known to amplify it."""
    counts: dict[Event, int] = {}
    _count_atoms(event.event, 1, counts)
    is_known = all(rules_of(atom).is_additive for atom in counts)
    parts = event_parts(event.event, adjacency) if is_known else []
    if len(parts) != 1 or parts[0][1] != 1:
        raise UnsupportedEventError(
            f"{type(event).__name__}({type(event.event).__name__}) under {adjacency.value} is "
            "refused: amplification is known here only for additive noise on a sum."
        )
    return parts[0][0]


def _local_epsilon(event: Event) -> float:
    counts: dict[Event, int] = {}
    _count_atoms(event, 1, counts)
    for atom in counts:
        if not rules_of(atom).is_local:
            raise UnsupportedEventError(
                f"Shuffled({type(atom).__name__}) is refused: a device runs a local randomizer "
                "on its own data, not this."
            )
    # All parts of one report are replaced together, so their pure epsilons add up.
    parts = event_parts(event, Adjacency.REPLACE)
    epsilon = math.fsum(profile.pure_epsilon * count for profile, count in parts)
    if not math.isfinite(epsilon):
        raise UnsupportedEventError(
            f"Shuffled({type(event).__name__}) is refused: amplification needs a local "
            "randomizer with delta = 0."
        )
    return epsilon


def _moves(event: events.Parallel, adjacency: Adjacency) -> bool:
    """Whether replacing a unit's data can carry it from one part to another."""
    return adjacency is Adjacency.REPLACE and not event.parts_are_public


def _touched_together(event: events.Parallel, *, moves: bool) -> list[tuple[Event, ...]]:
    """The sets of parts that one unit can touch."""
    counts = collections.Counter(event.events)
    if not moves or len(event.events) == 1:
        return [(part,) for part in counts]
    twice = [(part, part) for part, count in counts.items() if count > 1]
    return [*twice, *itertools.combinations(counts, 2)]


def _worst_of(alternatives: Sequence[Parts]) -> Profile:
    # Which parts a unit touches is up to the data, so each epsilon gets the worst alternative. The
    # probability is kept just below 1, because log1p(-1) is infinite.
    curves = [curve_of_parts(parts) for parts in alternatives]
    infinite_probs = [
        -math.expm1(math.fsum(n * math.log1p(-min(p.infinite_prob, 1 - 1e-16)) for p, n in parts))
        for parts in alternatives
    ]
    return Profile(
        lambda epsilon: np.maximum.reduce([curve.deltas(epsilon) for curve in curves]),
        largest_loss=max(math.fsum(p.largest_loss * n for p, n in parts) for parts in alternatives),
        infinite_prob=max(infinite_probs),
    )
