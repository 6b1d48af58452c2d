"""The point of a polyhedron nearest to a given one.

Equalities are solved away; what is left is a least-distance problem with inequalities, which
non-negative least squares solves exactly (Lawson and Hanson 1974, chapter 23). The binding rows
that it finds are then solved as equalities once more, to full precision.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.errors import TulleError

FloatArray = npt.NDArray[np.float64]

_TOLERANCE = 1e-9


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
        """From rows that end with their limit."""
        upper_rows = np.array(upper).reshape(len(upper), num_numbers + 1)
        equal_rows = np.array(equal).reshape(len(equal), num_numbers + 1)
        return cls(
            upper=upper_rows[:, :-1],
            upper_limits=upper_rows[:, -1],
            equal=equal_rows[:, :-1],
            equal_limits=equal_rows[:, -1],
        )

    def scaled(self, units: FloatArray) -> "LinearSystem":
        """The same for numbers that are counted in these units; rows get length 1."""
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
