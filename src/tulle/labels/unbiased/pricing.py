"""Which output an optimal unbiased randomizer lacks, found exactly and without a grid.

An output o with a set S of labels is a column: its chance is w for the labels in S
and e^-epsilon w for the others (staircase columns are enough: Badanidiyuru et al.
2023). With dual values alpha, beta of "chances add up to 1" and "the mean is the
label", label y adds h(o) = p (o - y)^2 - alpha - beta o to the reduced cost, times
its share. The best S at o is {h < 0}. It changes only at roots of the D quadratics,
so between two neighbouring roots the reduced cost is one parabola.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_MAX_BOUND_STEPS = 30


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Labels from 0 to 1, ascending, their weights, all above 0, and e^-epsilon. Public."""

    labels: FloatArray
    prior: FloatArray
    low_share: float

    @property
    def num_labels(self) -> int:
        """How many labels there are."""
        return int(self.labels.size)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """Outputs and, for each, the labels that favour it: one row of marks an output."""

    outputs: FloatArray
    is_high: BoolArray

    def shares(self, problem: Problem) -> FloatArray:
        """Chance of each output for each label, up to the output's weight."""
        return np.where(self.is_high, 1.0, problem.low_share)

    def costs(self, problem: Problem) -> FloatArray:
        """Mean squared error that one unit of each output's weight adds."""
        errors = (self.outputs[:, None] - problem.labels) ** 2
        return np.asarray((self.shares(problem) * errors) @ problem.prior)

    def select(self, rows: NDArray[np.int64] | BoolArray) -> "Columns":
        """Some of the columns."""
        return Columns(outputs=self.outputs[rows], is_high=self.is_high[rows])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Duals:
    """Prices of the two constraints of each label."""

    constant: FloatArray
    slope: FloatArray

    def mixed(self, other: "Duals", share: float) -> "Duals":
        """A point between two prices; `share` is that of the other."""
        return Duals(
            constant=(1 - share) * self.constant + share * other.constant,
            slope=(1 - share) * self.slope + share * other.slope,
        )

    def value(self, problem: Problem) -> float:
        """The dual objective."""
        return float(self.constant.sum() + self.slope @ problem.labels)


def join(*parts: Columns) -> Columns:
    """All columns of several sets."""
    return Columns(
        outputs=np.concatenate([part.outputs for part in parts]),
        is_high=np.concatenate([part.is_high for part in parts]),
    )


def reduced_costs(problem: Problem, duals: Duals, columns: Columns) -> FloatArray:
    """By how much each column is dearer than the duals pay for it."""
    outputs = columns.outputs[:, None]
    each = problem.prior * (outputs - problem.labels) ** 2
    each = each - duals.constant - duals.slope * outputs
    return np.asarray((columns.shares(problem) * each).sum(axis=1))


def best_columns(problem: Problem, duals: Duals) -> tuple[Columns, FloatArray]:
    """The cheapest column of every cell between two roots, with its reduced cost.

    The least of them is the least over all outputs and all sets of labels.
    """
    square = problem.prior
    linear = -2 * square * problem.labels - duals.slope
    constant = square * problem.labels**2 - duals.constant
    first_root, last_root = _roots(square, linear, constant)
    is_real = first_root < last_root
    roots = np.unique(np.concatenate([first_root[is_real], last_root[is_real]]))
    starts = np.concatenate([[-np.inf], roots])
    ends = np.concatenate([roots, [np.inf]])
    is_high = is_real & (first_root <= starts[:, None]) & (ends[:, None] <= last_root)
    shares = np.where(is_high, 1.0, problem.low_share)
    cell_square, cell_linear = shares @ square, shares @ linear
    outputs = np.clip(-cell_linear / (2 * cell_square), starts, ends)
    least = (cell_square * outputs + cell_linear) * outputs + shares @ constant
    return Columns(outputs=outputs, is_high=is_high), least


def lower_bound(problem: Problem, duals: Duals) -> float:
    """No unbiased randomizer has a smaller mean squared error, whatever the duals are.

    Lowering every label's constant by d raises each reduced cost by d times the sum
    of its shares. The d that makes all of them >= 0 gives a feasible dual, hence a
    bound (Farley 1990, with a shift in place of a scale). The least reduced cost is
    concave in d, so Newton steps come from below; the last step is made safe.
    """
    shift = 0.0
    for _ in range(_MAX_BOUND_STEPS):
        columns, costs = best_columns(problem, _lowered(duals, shift))
        worst = int(np.argmin(costs))
        if costs[worst] >= 0:
            break
        shift -= costs[worst] / columns.shares(problem)[worst].sum()
    _, costs = best_columns(problem, _lowered(duals, shift))
    least_share_sum = problem.low_share * problem.num_labels
    shift += max(0.0, -float(costs.min())) / least_share_sum
    return _lowered(duals, shift).value(problem)


def _roots(
    square: FloatArray, linear: FloatArray, constant: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Both roots of each parabola, without cancellation; 0 and 0 where there are none."""
    discriminant = linear**2 - 4 * square * constant
    is_real = discriminant > 0
    # Of the two roots the larger one in size is safe; the product gives the other.
    far = -0.5 * (linear + np.copysign(np.sqrt(np.maximum(discriminant, 0)), linear))
    safe = np.where(is_real & (far != 0), far, 1.0)
    one = np.where(is_real, far / square, 0.0)
    other = np.where(is_real, constant / safe, 0.0)
    return np.minimum(one, other), np.maximum(one, other)


def _lowered(duals: Duals, shift: float) -> Duals:
    return Duals(constant=duals.constant - shift, slope=duals.slope)
