"""Noisy reach numbers made to agree, by weighted least squares under linear relations.

The nearest point of a convex set that holds the truth is never further from the truth than the
noisy numbers were, distances measured in standard deviations. It is post-processing: it costs
nothing and reads no data.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.measure.reach.least_distance import InfeasibleError, LinearSystem, nearest_point
from tulle.measure.reach.relations import Relation
from tulle.privacy.release import Release

FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsistentNumbers:
    """Numbers that satisfy all relations. As public as the releases they come from."""

    values: dict[str, float]
    moves: dict[str, float]
    """How far each number moved, in standard deviations of its noise."""
    binding: tuple[str, ...]
    """The relations that moved something."""


def make_consistent(
    releases: Mapping[str, Release],
    relations: Sequence[Relation],
    *,
    are_non_negative: bool = True,
) -> ConsistentNumbers:
    """The nearest numbers that satisfy all relations.

    A number weighs 1 / noise_stddev^2, and noise of different numbers is taken as independent.
    The intervals of the releases stay valid as they are.

    Privacy:
      Post-processing of releases; no cost.
    """
    names = list(releases)
    if not names:
        raise ConfigError("releases={} has no numbers; give at least one.")
    stddevs = np.array([releases[name].noise_stddev for name in names])
    noisy = np.array([releases[name].value for name in names])
    if not (np.isfinite(stddevs).all() and np.isfinite(noisy).all()):
        raise DataError("a release has a value or noise_stddev that is not finite; leave it out.")
    system, descriptions = _system(names, relations, are_non_negative)
    try:
        # In units of its own deviation, every number weighs the same.
        solution = nearest_point(noisy / stddevs, system.scaled(stddevs))
    except InfeasibleError:
        raise ConfigError(
            f"no numbers satisfy all {len(relations)} relations; one of those with a public "
            "limit contradicts the others: "
            + ", ".join(r.description for r in relations if r.limit or r.is_equality)
            + "."
        ) from None
    points = solution.point * stddevs
    return ConsistentNumbers(
        values=dict(zip(names, points.tolist(), strict=True)),
        moves=dict(zip(names, (solution.point - noisy / stddevs).tolist(), strict=True)),
        binding=tuple(descriptions[row] for row in solution.binding_rows),
    )


def _system(
    names: list[str], relations: Sequence[Relation], are_non_negative: bool
) -> tuple[LinearSystem, list[str]]:
    places = {name: place for place, name in enumerate(names)}
    upper, equal, descriptions = [], [], []
    for relation in relations:
        row = np.zeros(len(names) + 1)
        row[-1] = relation.limit
        for name, coefficient in relation.coefficients:
            if name not in places:
                raise ConfigError(
                    f"relation {relation.description!r} names {name!r}, which is not among the "
                    "releases; release it or drop the relation."
                )
            row[places[name]] = coefficient
        if relation.is_equality:
            equal.append(row)
        else:
            upper.append(row)
            descriptions.append(relation.description)
    if are_non_negative:
        for place, name in enumerate(names):
            row = np.zeros(len(names) + 1)
            row[place] = -1.0
            upper.append(row)
            descriptions.append(f"{name} >= 0")
    return LinearSystem.of_rows(upper, equal, len(names)), descriptions
