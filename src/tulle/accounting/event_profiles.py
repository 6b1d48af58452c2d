"""Which pair of distributions is the worst for each event under each adjacency.

One handler an event. A combination for which no sound pair is known is refused
by name: guessing would under-report.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from tulle.accounting import sampling
from tulle.accounting.curve import curve_of_parts
from tulle.accounting.gaussian_pairs import gaussian_profile
from tulle.accounting.private_parts import bound_to_its_units
from tulle.accounting.profiles import (
    Profile,
    discrete_gaussian_profile,
    discrete_laplace_profile,
    epsilon_delta_profile,
    interpolated_profile,
    laplace_profile,
    three_point_profile,
)
from tulle.accounting.shuffle_blanket import blanket_delta, blanket_epsilon
from tulle.accounting.shuffle_clones import clones_delta, clones_epsilon
from tulle.accounting.switched_pairs import (
    in_both_orders,
    num_switched_labels,
    sampled_switch_profile,
)
from tulle.errors import UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.units import Adjacency

_LARGEST_DISCRETE_GAUSSIAN = 2.0**17
_LEAST_SHUFFLED_DELTA, _SHUFFLED_POINTS = 1e-20, 513
_LARGEST_SHUFFLED_EPSILON = 1e6
"""Beyond it no shuffle hides a report, and a grid up to there would be empty."""
_LOCAL_EVENTS = (
    events.RandomizedResponse,
    events.SubsetSelection,
    events.EpsilonDelta,
    events.Laplace,
    events.DiscreteLaplace,
    events.Gaussian,
    events.DiscreteGaussian,
)
_GAUSSIANS = (events.Gaussian, events.SwitchedGaussian)
_LEAST_NOISE, _MOST_NOISE = 1e-6, 1e7
"""Gaussian noise. Below the least, losses leave the range of every grid: nothing is protected.
More than the most is accounted as the most: it costs next to nothing either way, and with more the
two terms of a delta agree in so many digits that their difference would be rounding. So it never
costs nothing at all, which without a delta would be wrong."""
_MOST_RELEASES = 10**30
"""No count is larger, so only counts of counts can be; their products would overflow."""
_UNPROTECTED = Profile(np.ones_like, largest_loss=0.0, infinite_prob=1.0)

Parts = list[tuple[Profile, int]]


def event_parts(event: events.Event, adjacency: Adjacency) -> Parts:
    """The profiles of everything an event is composed of, with their counts.

    Equal events are merged, and Gaussian releases of the same units become one:
    their squared distances add up.
    """
    counts: dict[events.Event, int] = {}
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
        if isinstance(atom, _GAUSSIANS) and atom.noise_multiplier >= _LEAST_NOISE:
            squared_distance += count * _gaussian_distance(atom, adjacency) ** 2
            has_gaussians = True
        else:
            parts += [(profile, count * n) for profile, n in atom_parts(atom, adjacency)]
    if has_gaussians:
        distance = max(math.sqrt(squared_distance), 1 / _MOST_NOISE)
        parts.append((gaussian_profile(distance), 1))
    if adjacency is Adjacency.REPLACE and num_switched_labels(event) > 1:
        return [(in_both_orders(profile), count) for profile, count in parts]
    return parts


@functools.singledispatch
def atom_parts(event: events.Event, adjacency: Adjacency) -> Parts:
    """The profiles of one event that is not itself a composition."""
    raise UnsupportedEventError(
        f"no accounting is known for {type(event).__name__} under {adjacency.value}; "
        "known events are in tulle.privacy.events."
    )


@atom_parts.register
def _(event: events.Gaussian | events.SwitchedGaussian, adjacency: Adjacency) -> Parts:
    if event.noise_multiplier < _LEAST_NOISE:
        return [(_UNPROTECTED, 1)]
    distance = max(_gaussian_distance(event, adjacency), 1 / _MOST_NOISE)
    return [(gaussian_profile(distance), 1)]


@atom_parts.register
def _(event: events.Laplace, adjacency: Adjacency) -> Parts:
    distance = _distance(event.replace_factor, adjacency) / event.noise_multiplier
    return [(laplace_profile(distance) if math.isfinite(distance) else _UNPROTECTED, 1)]


@atom_parts.register
def _(event: events.DiscreteLaplace, adjacency: Adjacency) -> Parts:
    steps = _integer_distance(event.max_contribution, event.replace_factor, adjacency)
    if not math.isfinite(steps / event.scale):
        return [(_UNPROTECTED, 1)]
    return [(discrete_laplace_profile(event.scale, steps), 1)]


@atom_parts.register
def _(event: events.DiscreteGaussian, adjacency: Adjacency) -> Parts:
    if event.scale > _LARGEST_DISCRETE_GAUSSIAN:
        raise UnsupportedEventError(
            f"DiscreteGaussian scale={event.scale:g} must be <= {_LARGEST_DISCRETE_GAUSSIAN:g} "
            "to be accounted point by point; use Gaussian noise rounded to a lattice."
        )
    if event.scale < _LEAST_NOISE:
        return [(_UNPROTECTED, 1)]
    steps = _integer_distance(event.max_contribution, event.replace_factor, adjacency)
    if steps > 64 * _LARGEST_DISCRETE_GAUSSIAN:
        raise UnsupportedEventError(
            f"DiscreteGaussian max_contribution={event.max_contribution} is too large to be "
            "accounted point by point; count in larger steps, or use Gaussian noise."
        )
    return [(discrete_gaussian_profile(event.scale, steps), 1)]


@atom_parts.register
def _(event: events.RandomizedResponse, adjacency: Adjacency) -> Parts:
    # Under add-or-remove and zero-out an absent unit still reports, from some mixture of
    # rows of the channel (number of reports public); no such mixture is worse than a row.
    del adjacency
    truth_prob = 1 / (1 + (event.num_values - 1) * math.exp(-event.epsilon))
    return [(three_point_profile(event.epsilon, truth_prob), 1)]


@atom_parts.register
def _(event: events.SubsetSelection, adjacency: Adjacency) -> Parts:
    del adjacency  # As for randomized response.
    others = event.num_values - event.subset_size
    with_truth_prob = 1 / (1 + others / event.subset_size * math.exp(-event.epsilon))
    telling_prob = with_truth_prob * others / (event.num_values - 1)
    return [(three_point_profile(event.epsilon, telling_prob), 1)]


@atom_parts.register
def _(event: events.EpsilonDelta, adjacency: Adjacency) -> Parts:
    del adjacency  # By its definition the event holds under the adjacency in use.
    return [(epsilon_delta_profile(event.epsilon, event.delta), 1)]


@atom_parts.register
def _(event: events.KeySelection, adjacency: Adjacency) -> Parts:
    touched = event.max_keys_per_unit * (2 if adjacency is Adjacency.REPLACE else 1)
    return [(epsilon_delta_profile(event.epsilon, event.delta), touched)]


@atom_parts.register
def _(event: events.PoissonSampled, adjacency: Adjacency) -> Parts:
    replace = adjacency is Adjacency.REPLACE
    noise = _gaussian_noise(event.event)
    if noise == 0:
        return [(_UNPROTECTED, 1)]
    if noise is not None:
        return [(_poisson_gaussian(event, noise, adjacency), 1)]
    if event.max_rows_per_unit > 1:
        raise UnsupportedEventError(
            f"PoissonSampled({type(event.event).__name__}) with max_rows_per_unit="
            f"{event.max_rows_per_unit} has no known pair; use Gaussian noise or one row a unit."
        )
    removed = _sampled_base(event, Adjacency.ADD_OR_REMOVE)
    if not replace:
        return [(sampling.poisson_remove_profile(removed, event.sampling_prob), 1)]
    replaced = _sampled_base(event, Adjacency.REPLACE)
    return [(sampling.poisson_replace_profile(removed, replaced, event.sampling_prob), 1)]


@atom_parts.register
def _(event: events.TruncatedPoissonSampled, adjacency: Adjacency) -> Parts:
    noise = _gaussian_noise(event.event)
    if noise is None:
        raise UnsupportedEventError(
            f"TruncatedPoissonSampled({type(event.event).__name__}) has no known pair; "
            "use Gaussian noise, or PoissonSampled without truncation."
        )
    if noise == 0:
        return [(_UNPROTECTED, 1)]
    whole = _poisson_gaussian(event, noise, adjacency)
    # In a cut batch the row takes the place of another one, whose label may be on: the sums are
    # up to 2 apart, also where a label switches.
    cut_prob, cut = sampling.truncation_profile(
        num_rows=event.num_rows,
        sampling_prob=event.sampling_prob,
        max_batch_size=event.max_batch_size,
        noise_multiplier=noise,
        max_rows=event.max_rows_per_unit,
    )
    return [(whole if cut_prob == 0 else sampling.mixed_profile(whole, cut, cut_prob), 1)]


@atom_parts.register
def _(event: events.FixedSizeSampled, adjacency: Adjacency) -> Parts:
    if adjacency is not Adjacency.REPLACE:
        raise UnsupportedEventError(
            f"FixedSizeSampled under {adjacency.value} is refused: a batch of fixed size has no "
            "room for an added row; use replace, or Poisson sampling."
        )
    replaced = _sampled_base(event, Adjacency.REPLACE)
    return [(sampling.fixed_size_replace_profile(replaced, event.batch_size / event.num_rows), 1)]


@atom_parts.register
def _(event: events.Shuffled, adjacency: Adjacency) -> Parts:
    if adjacency is not Adjacency.REPLACE:
        raise UnsupportedEventError(
            f"Shuffled under {adjacency.value} is refused: amplification is proven for a "
            "replaced report, and the number of reports is public; use replace."
        )
    return [(_shuffled_profile(event), 1)]


@atom_parts.register
def _(event: events.Parallel, adjacency: Adjacency) -> Parts:
    moves = adjacency is Adjacency.REPLACE and not event.parts_are_public
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


def _count_atoms(event: events.Event, times: int, counts: dict[events.Event, int]) -> None:
    if isinstance(event, events.Composed):
        for part in event.events:
            _count_atoms(part, times, counts)
    elif isinstance(event, events.Repeated):
        _count_atoms(event.event, times * event.count, counts)
    else:
        counts[event] = counts.get(event, 0) + times


def _open_whole_batches(counts: dict[events.Event, int], adjacency: Adjacency) -> None:
    """Under replace a batch of fixed size that holds every row is no sample."""
    if adjacency is not Adjacency.REPLACE:
        return
    for atom in list(counts):
        if isinstance(atom, events.FixedSizeSampled) and atom.batch_size == atom.num_rows:
            _count_atoms(atom.event, counts.pop(atom), counts)


def _distance(replace_factor: float, adjacency: Adjacency) -> float:
    return replace_factor if adjacency is Adjacency.REPLACE else 1.0


def _gaussian_distance(
    event: events.Gaussian | events.SwitchedGaussian, adjacency: Adjacency
) -> float:
    factor = 1.0 if isinstance(event, events.SwitchedGaussian) else event.replace_factor
    return _distance(factor, adjacency) / event.noise_multiplier


def _integer_distance(max_contribution: int, replace_factor: float, adjacency: Adjacency) -> int:
    # Contributions are whole numbers, so a distance of at most 2.8 is at most 2.
    return math.floor(max_contribution * _distance(replace_factor, adjacency) * (1 + 1e-12))


def _gaussian_noise(event: events.Event) -> float | None:
    """The joint noise multiplier if an event is Gaussian releases of one batch, else None.

    0 if it is too little to protect anything. None also where labels switch parts of some
    releases and more than that of others.
    """
    counts: dict[events.Event, int] = {}
    _count_atoms(event, 1, counts)
    if len({type(atom) for atom in counts}) > 1:
        return None
    inverse_square = 0.0
    for atom, count in counts.items():
        if not isinstance(atom, _GAUSSIANS):
            return None
        if atom.noise_multiplier < _LEAST_NOISE:
            return 0.0
        inverse_square += count / min(atom.noise_multiplier, _MOST_NOISE) ** 2
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
    allowed = (events.Gaussian, events.Laplace, events.DiscreteLaplace, events.DiscreteGaussian)
    counts: dict[events.Event, int] = {}
    _count_atoms(event.event, 1, counts)
    parts = (
        event_parts(event.event, adjacency) if all(isinstance(a, allowed) for a in counts) else []
    )
    if len(parts) != 1 or parts[0][1] != 1:
        raise UnsupportedEventError(
            f"{type(event).__name__}({type(event.event).__name__}) under {adjacency.value} is "
            "refused: amplification is known here only for additive noise on a sum."
        )
    return parts[0][0]


def _local_epsilon(event: events.Event) -> float:
    counts: dict[events.Event, int] = {}
    _count_atoms(event, 1, counts)
    for atom in counts:
        if not isinstance(atom, _LOCAL_EVENTS):
            raise UnsupportedEventError(
                f"Shuffled({type(atom).__name__}) is refused: a device runs a local randomizer "
                "on its own data, not this."
            )
    parts = event_parts(event, Adjacency.REPLACE)
    epsilon = math.fsum(profile.pure_epsilon * count for profile, count in parts)
    if not math.isfinite(epsilon):
        raise UnsupportedEventError(
            f"Shuffled({type(event).__name__}) is refused: amplification needs a local "
            "randomizer with delta = 0."
        )
    return epsilon


def _shuffled_profile(event: events.Shuffled) -> Profile:
    """The blanket bound for randomized response, the clones bound for everything else."""
    local_epsilon = _local_epsilon(event.event)
    if local_epsilon > _LARGEST_SHUFFLED_EPSILON:
        return epsilon_delta_profile(local_epsilon, 0.0)
    if isinstance(event.event, events.RandomizedResponse):
        settings = {"num_values": event.event.num_values, "num_reports": event.num_reports}
        reach = blanket_epsilon(_LEAST_SHUFFLED_DELTA, local_epsilon=local_epsilon, **settings)
        grid = np.linspace(0.0, reach, _SHUFFLED_POINTS)
        deltas = blanket_delta(grid, local_epsilon=local_epsilon, **settings)
    else:
        reports = event.num_reports
        reach = clones_epsilon(
            _LEAST_SHUFFLED_DELTA, local_epsilon=local_epsilon, num_reports=reports
        )
        grid = np.linspace(0.0, reach, _SHUFFLED_POINTS)
        deltas = clones_delta(grid, local_epsilon=local_epsilon, num_reports=reports)
    if reach < local_epsilon:
        grid, deltas = np.append(grid, local_epsilon), np.append(deltas, 0.0)
    return dataclasses.replace(interpolated_profile(grid, deltas), largest_loss=local_epsilon)


def _touched_together(event: events.Parallel, *, moves: bool) -> list[tuple[events.Event, ...]]:
    """The sets of parts that one unit can touch."""
    counts = collections.Counter(event.events)
    if not moves or len(event.events) == 1:
        return [(part,) for part in counts]
    twice = [(part, part) for part, count in counts.items() if count > 1]
    return [*twice, *itertools.combinations(counts, 2)]


def _worst_of(alternatives: Sequence[Parts]) -> Profile:
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
