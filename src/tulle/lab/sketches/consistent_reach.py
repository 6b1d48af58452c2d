"""Noisy reach numbers made to agree, by weighted least squares under linear relations.

Reach does not add up over publishers or weeks, because a user can be in several. What holds are
inequalities: a part is at most the whole, a union at most the sum of its parts, a total over time
never falls. Only over disjoint groups of users (geo, age) is the whole the sum.

The nearest point of a convex set that holds the truth is never further from the truth than the
noisy numbers were, distances measured in standard deviations. It is post-processing: it costs
nothing and reads no data. Equalities are solved away; what is left is a least-distance problem with
inequalities, which non-negative least squares solves exactly (Lawson and Hanson 1974, chapter 23).
The binding rows that it finds are then solved as equalities once more, to full precision.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError, TulleError
from tulle.privacy.fields import check_count, check_finite, check_text
from tulle.privacy.guarantee import Release

FloatArray = npt.NDArray[np.float64]
_TOLERANCE = 1e-9
"""Part of the largest number by which rounding may break a row."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReachRelation:
    """sum of coefficient * number <= limit, or == limit. Public."""

    description: str
    coefficients: tuple[tuple[str, float], ...]
    limit: float = 0.0
    is_equality: bool = False

    def __post_init__(self) -> None:
        check_text("description", self.description)
        check_finite("limit", self.limit)
        if not self.coefficients:
            raise ConfigError(f"relation {self.description!r} has no numbers; name at least one.")
        names = [name for name, _ in self.coefficients]
        if len(set(names)) < len(names):
            raise ConfigError(f"relation {self.description!r} names a number twice; once is right.")
        for name, coefficient in self.coefficients:
            check_finite(f"coefficient of {name!r}", coefficient)


def part_of(part: str, whole: str) -> ReachRelation:
    """The relation that a part reaches no more than the whole.

    Whoever a part reached, the whole reached: a publisher in all publishers, 2+ in 1+.
    """
    return ReachRelation(
        description=f"{part} <= {whole}", coefficients=((part, 1.0), (whole, -1.0))
    )


def covered_by(union: str, parts: Sequence[str]) -> ReachRelation:
    """The relation that a union reaches no more than its parts together.

    Whoever the union reached, one of its parts did.
    """
    return ReachRelation(
        description=f"{union} <= {' + '.join(parts)}",
        coefficients=((union, 1.0), *((part, -1.0) for part in parts)),
    )


def in_order(names: Sequence[str]) -> tuple[ReachRelation, ...]:
    """Each number is at most the next: reach up to week 1, up to week 2, and so on."""
    return tuple(part_of(a, b) for a, b in itertools.pairwise(names))


def adds_up(whole: str, parts: Sequence[str]) -> ReachRelation:
    """The whole is the sum of disjoint groups of users."""
    return ReachRelation(
        description=f"{whole} = {' + '.join(parts)}",
        coefficients=((whole, 1.0), *((part, -1.0) for part in parts)),
        is_equality=True,
    )


def within_impressions(k_plus_reach: str, k: int, impressions: str | float) -> ReachRelation:
    """The relation that k times the k+ reach is at most the number of impressions.

    Whoever saw k impressions or more used up k of them.

    Impressions are another noisy number, by name, or a public one.

    Args:
      k_plus_reach: Name of the k+ reach.
      k: Impressions that each of them saw at least.
      impressions: Name of the noisy number of impressions, or a public number.
    """
    check_count("k", k)
    if isinstance(impressions, str):
        return ReachRelation(
            description=f"{k} * {k_plus_reach} <= {impressions}",
            coefficients=((k_plus_reach, float(k)), (impressions, -1.0)),
        )
    return ReachRelation(
        description=f"{k} * {k_plus_reach} <= public impressions",
        coefficients=((k_plus_reach, float(k)),),
        limit=float(impressions),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsistentNumbers:
    """Numbers that satisfy all relations. As public as the releases they come from."""

    values: dict[str, float]
    moves: dict[str, float]
    """How far each number moved, in standard deviations of its noise."""
    binding: tuple[str, ...]
    """The relations that moved something."""


class InfeasibleError(TulleError):
    """No point satisfies all rows."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LinearSystem:
    """upper @ x <= upper_limits and equal @ x == equal_limits."""

    upper: FloatArray
    upper_limits: FloatArray
    equal: FloatArray
    equal_limits: FloatArray

    @classmethod
    def of_rows(
        cls, upper: list[FloatArray], equal: list[FloatArray], num_numbers: int
    ) -> "LinearSystem":
        """Makes a system of rows that end with their limit.

        Args:
          upper: Rows of inequalities.
          equal: Rows of equalities.
          num_numbers: How many numbers the rows are about.
        """
        upper_rows = np.array(upper).reshape(len(upper), num_numbers + 1)
        equal_rows = np.array(equal).reshape(len(equal), num_numbers + 1)
        return cls(
            upper=upper_rows[:, :-1],
            upper_limits=upper_rows[:, -1],
            equal=equal_rows[:, :-1],
            equal_limits=equal_rows[:, -1],
        )

    def scaled(self, units: FloatArray) -> "LinearSystem":
        """The system for numbers that are counted in these units; rows get length 1."""
        upper, upper_limits = _unit_rows(self.upper * units, self.upper_limits)
        equal, equal_limits = _unit_rows(self.equal * units, self.equal_limits)
        return LinearSystem(
            upper=upper, upper_limits=upper_limits, equal=equal, equal_limits=equal_limits
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NearestPoint:
    """The nearest point and what holds it back."""

    point: FloatArray
    multipliers: FloatArray
    """>= 0 for each row of `upper`: target - point = upper.T @ multipliers + equal.T @ any."""

    @property
    def binding_rows(self) -> list[int]:
        """Rows of `upper` with a multiplier above 0."""
        return [int(row) for row in np.flatnonzero(self.multipliers > 0)]


def make_consistent(
    releases: Mapping[str, Release],
    relations: Sequence[ReachRelation],
    *,
    are_non_negative: bool = True,
) -> ConsistentNumbers:
    """The nearest numbers that satisfy all relations.

    A number weighs 1 / noise_stddev^2, and noise of different numbers is taken as independent.
    The intervals of the releases stay valid as they are.

    Args:
      releases: Noisy numbers by name.
      relations: What the true numbers satisfy.
      are_non_negative: Whether no number may be negative.

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


def nearest_point(target: FloatArray, system: LinearSystem) -> NearestPoint:
    """Minimises |x - target|^2 over all x that satisfy the system."""
    start, free = _solve_equalities(target, system)
    slack = system.upper_limits - system.upper @ start
    rows = system.upper @ free
    multipliers = np.zeros(len(rows))
    scale = max(1.0, float(np.abs(slack).max(initial=0.0)))
    # A row that follows from the equalities says nothing new, or contradicts them.
    says_more = np.linalg.norm(rows, axis=1) > 1e-10 * np.linalg.norm(system.upper, axis=1)
    if (slack[~says_more] < -_TOLERANCE * scale).any():
        raise InfeasibleError("an inequality contradicts the equalities.")
    rows, slack = rows[says_more], slack[says_more]
    if (slack >= 0).all():
        return NearestPoint(point=start, multipliers=multipliers)
    move, multipliers[says_more] = _refined(rows, slack, _least_distance(rows, slack))
    return NearestPoint(point=start + free @ move, multipliers=multipliers)


def _system(
    names: list[str], relations: Sequence[ReachRelation], are_non_negative: bool
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


def _refined(
    rows: FloatArray, slack: FloatArray, multipliers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The move and its multipliers: with what binds as equalities, if that is a solution."""
    binding = np.flatnonzero(multipliers > 0)
    move = np.asarray(np.linalg.lstsq(rows[binding], slack[binding], rcond=None)[0], np.float64)
    exact, *_ = np.linalg.lstsq(rows[binding].T, -move, rcond=None)
    scale = float(np.abs(slack).max())
    if (rows @ move > slack + _TOLERANCE * scale).any() or (exact < 0).any():
        return -rows.T @ multipliers, multipliers
    refined = np.zeros(len(multipliers))
    refined[binding] = exact
    return move, refined


def _solve_equalities(target: FloatArray, system: LinearSystem) -> tuple[FloatArray, FloatArray]:
    """The nearest point of the equalities alone, and directions that keep them."""
    if len(system.equal) == 0:
        return target, np.eye(len(target))
    gap = system.equal_limits - system.equal @ target
    _, sizes, rows = np.linalg.svd(system.equal)
    rank = int(np.sum(sizes > 1e-11 * sizes[0]))
    move, *_ = np.linalg.lstsq(system.equal, gap, rcond=1e-11)
    scale = max(1.0, float(np.abs(target).max()), float(np.abs(gap).max()))
    if np.abs(system.equal @ move - gap).max() > _TOLERANCE * scale:
        raise InfeasibleError("the equalities contradict one another.")
    return target + move, rows[rank:].T


def _least_distance(rows: FloatArray, slack: FloatArray) -> FloatArray:
    """Multipliers u >= 0 of: minimise |z|^2 / 2 with rows @ z <= slack. Then z = -rows.T @ u."""
    from scipy.optimize import nnls

    # With the largest gap as unit, z is neither huge nor tiny.
    unit = float(np.abs(slack[slack < 0]).max())
    matrix = np.vstack([-rows.T, -slack[None, :] / unit])
    goal = np.zeros(len(matrix))
    goal[-1] = 1.0
    weights, _ = nnls(matrix, goal, maxiter=30 * (len(slack) + len(goal)))
    rest = goal - matrix @ weights
    if rest[-1] <= 1e-9:
        raise InfeasibleError("no point satisfies all inequalities.")
    multipliers: FloatArray = weights / rest[-1] * unit
    return multipliers


def _unit_rows(rows: FloatArray, limits: FloatArray) -> tuple[FloatArray, FloatArray]:
    lengths = np.linalg.norm(rows, axis=1)
    lengths[lengths == 0] = 1.0
    return rows / lengths[:, None], limits / lengths
