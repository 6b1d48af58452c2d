"""The linear program whose optimum is the unbiased randomizer of least error.

An output o with a set S of labels is a column: its probability is w for the labels in S and
e^-epsilon w for the others (staircase columns are enough: Badanidiyuru et al. 2023). There are far
too many to list, so the program is solved over the columns made so far, and its prices say exactly
which column it lacks. With dual values alpha, beta of "probabilities add up to 1" and "the mean is
the label", label y adds h(o) = p (o - y)^2 - alpha - beta o to the reduced cost, times its share.
The best S at o is {h < 0}. It changes only at roots of the D quadratics, so between neighbouring
roots the reduced cost is one parabola.

Rows of the program are differences between neighbouring labels, divided by 1 - e^-epsilon: a set of
neighbouring labels then has two entries, and no entry shrinks with epsilon. Outputs are measured in
1 / (1 - e^-epsilon) and costs in the variance of binary randomized response, so all numbers stay
near 1 from epsilon = 0.01 to 16.
"""

import dataclasses
import itertools
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tulle.errors import RunStateError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_MAX_BOUND_STEPS = 30
"""Newton steps towards the lower bound; the last one is made safe whatever they reached."""
_TOLERANCES = (1e-10, 1e-9, 1e-7)
"""Tolerances of the solver, from strict to loose: a hard program is not solved to the first."""
_METHODS: tuple[Literal["highs-ds", "highs-ipm"], ...] = ("highs-ds", "highs-ipm")
_LEAST_WEIGHT = 1e-13
"""Weight below which a column is not in use: less than a sampler of 64-bit words can tell."""
_POLISH_STEPS = 3
"""Corrections of what the solver's tolerance leaves; they stop where floats gain no more."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Labels from 0 to 1, ascending, their weights, all above 0, and e^-epsilon. Public."""

    labels: FloatArray
    prior: FloatArray
    """Weight of each label."""
    low_share: float
    """e^-epsilon."""

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return int(self.labels.size)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """Outputs and, for each, the labels that favour it: one row of marks an output."""

    outputs: FloatArray
    is_high: BoolArray
    """[outputs, labels], whether a label favours an output."""

    def shares(self, problem: Problem) -> FloatArray:
        """Probability of each output for each label, up to the output's weight."""
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
    """Prices of "probabilities add up to 1"."""
    slope: FloatArray
    """Prices of "the mean is the label"."""

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
    """Reduced cost of each column: how much dearer it is than the duals pay for it.

    Args:
      problem: Labels and their weights.
      duals: Prices of the constraints.
      columns: The columns to price.
    """
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Weighted:
    """Columns with their weights: one unbiased randomizer, up to rounding."""

    columns: Columns
    weights: FloatArray
    mean_squared_error: float
    worst_miss: float
    """Error of the constraint that is met worst."""


def solve_master(problem: Problem, columns: Columns) -> tuple[FloatArray, Duals]:
    """Best weights of the given columns, and the price of each label's constraints."""
    from scipy import sparse

    rows, targets = constraints(problem, columns)
    scale = problem.low_share / (1 - problem.low_share) ** 2
    costs = columns.costs(problem) / scale
    found = _solved(costs, sparse.csr_array(rows), targets)
    marginals = np.asarray(found.eqlin.marginals, np.float64) * scale
    constant, slope = marginals.reshape(2, problem.num_labels)
    # Rows were divided and outputs multiplied by 1 - e^-epsilon; prices go the other way.
    slope = slope * (1 - problem.low_share)
    weights = np.maximum(np.asarray(found.x, np.float64), 0.0)
    return weights, Duals(
        constant=_summed_prices(constant, problem), slope=_summed_prices(slope, problem)
    )


def constraints(problem: Problem, columns: Columns) -> tuple[FloatArray, FloatArray]:
    """Equality rows and their right sides: probabilities add up to 1, means are the labels."""
    span = 1 - problem.low_share
    marks = columns.is_high.T.astype(np.float64)
    probs = np.diff(marks, axis=0, prepend=0.0)
    probs[0] = problem.low_share + span * marks[0]
    scaled_outputs = columns.outputs * span
    means = probs * scaled_outputs
    prob_targets = np.zeros(problem.num_labels)
    prob_targets[0] = 1.0
    mean_targets = np.diff(problem.labels, prepend=0.0)
    mean_targets[0] = problem.labels[0] * span
    return np.concatenate([probs, means]), np.concatenate([prob_targets, mean_targets])


def merged(problem: Problem, columns: Columns, weights: FloatArray) -> Weighted:
    """One column for each set of labels in use, at its mean output, then polished.

    Args:
      problem: Labels and their weights.
      columns: The columns of a solution.
      weights: How much of each is used.
    """
    is_used = weights > _LEAST_WEIGHT
    used_weights, used_outputs = weights[is_used], columns.outputs[is_used]
    sets, place = np.unique(columns.is_high[is_used], axis=0, return_inverse=True)
    place = place.reshape(-1)
    total = np.asarray(np.bincount(place, used_weights), np.float64)
    outputs = np.bincount(place, used_weights * used_outputs) / total
    result, total = polished(problem, Columns(outputs=outputs, is_high=sets), total)
    return Weighted(
        columns=result,
        weights=total,
        mean_squared_error=float(result.costs(problem) @ total),
        worst_miss=_worst_miss(problem, result, total),
    )


def polished(problem: Problem, columns: Columns, weights: FloatArray) -> tuple[Columns, FloatArray]:
    """The nearest columns and weights that meet the constraints as well as floats can.

    Weights and weights times outputs are free of one another, and both enter linearly.

    Args:
      problem: Labels and their weights.
      columns: The columns of a solution.
      weights: How much of each is used.
    """
    rows, targets = constraints(problem, columns)
    probs = rows[: problem.num_labels]
    prob_targets, mean_targets = targets.reshape(2, problem.num_labels)
    for _ in range(_POLISH_STEPS):
        miss = _worst_miss(problem, columns, weights)
        sums = weights * columns.outputs * (1 - problem.low_share)
        new_weights = weights + _correction(probs, prob_targets - probs @ weights)
        new_sums = sums + _correction(probs, mean_targets - probs @ sums)
        if np.any(new_weights <= _LEAST_WEIGHT):
            break
        outputs = new_sums / new_weights / (1 - problem.low_share)
        moved = Columns(outputs=outputs, is_high=columns.is_high)
        if _worst_miss(problem, moved, new_weights) >= miss:
            break
        columns, weights = moved, new_weights
    return columns, weights


def _correction(rows: FloatArray, missing: FloatArray) -> FloatArray:
    """The least change that adds what is missing."""
    return np.asarray(np.linalg.lstsq(rows, missing)[0])


def _worst_miss(problem: Problem, columns: Columns, weights: FloatArray) -> float:
    rows, targets = constraints(problem, columns)
    return float(np.abs(targets - rows @ weights).max())


def _solved(costs: FloatArray, rows: Any, targets: FloatArray) -> Any:
    """The first answer of HiGHS that it calls optimal, from strict to loose tolerances."""
    from scipy.optimize import linprog

    message = ""
    for tolerance, method in itertools.product(_TOLERANCES, _METHODS):
        found: Any = linprog(
            costs,
            A_eq=rows,
            b_eq=targets,
            method=method,
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
            },
        )
        if found.status == 0:
            return found
        message = str(found.message)
    raise RunStateError(
        f"HiGHS found no optimum of the unbiased randomizer ({message}); take fewer atoms "
        "or an epsilon between 0.05 and 10."
    )


def _summed_prices(prices: FloatArray, problem: Problem) -> FloatArray:
    """Prices of single labels from prices of differences of neighbours."""
    span = 1 - problem.low_share
    result = prices / span
    result[:-1] -= prices[1:] / span
    result[0] += prices[0] * (1 - 1 / span)
    return result
