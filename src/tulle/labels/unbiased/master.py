"""The linear program over the columns made so far.

Rows are differences between neighbouring labels, divided by 1 - e^-epsilon: a set of
neighbouring labels then has two entries, and no entry shrinks with epsilon. Outputs
are measured in 1 / (1 - e^-epsilon) and costs in the variance of binary randomized
response, so all numbers stay near 1 from epsilon = 0.01 to 16.
"""

import dataclasses
import itertools
from typing import Any, Literal

import numpy as np

from tulle.errors import RunStateError
from tulle.labels.unbiased.pricing import Columns, Duals, FloatArray, Problem

_TOLERANCES = (1e-10, 1e-9, 1e-7)
_METHODS: tuple[Literal["highs-ds", "highs-ipm"], ...] = ("highs-ds", "highs-ipm")
_LEAST_WEIGHT = 1e-13
_POLISH_STEPS = 3


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Weighted:
    """Columns with their weights: one unbiased randomizer, up to rounding."""

    columns: Columns
    weights: FloatArray
    mean_squared_error: float
    worst_miss: float
    """By how much its worst constraint is off."""


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
    """Equality rows and their right sides: chances add up to 1, means are the labels."""
    span = 1 - problem.low_share
    marks = columns.is_high.T.astype(np.float64)
    chances = np.diff(marks, axis=0, prepend=0.0)
    chances[0] = problem.low_share + span * marks[0]
    scaled_outputs = columns.outputs * span
    means = chances * scaled_outputs
    chance_targets = np.zeros(problem.num_labels)
    chance_targets[0] = 1.0
    mean_targets = np.diff(problem.labels, prepend=0.0)
    mean_targets[0] = problem.labels[0] * span
    return np.concatenate([chances, means]), np.concatenate([chance_targets, mean_targets])


def merged(problem: Problem, columns: Columns, weights: FloatArray) -> Weighted:
    """One column for each set of labels in use, at its mean output, then polished."""
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
    """
    rows, targets = constraints(problem, columns)
    chances = rows[: problem.num_labels]
    chance_targets, mean_targets = targets.reshape(2, problem.num_labels)
    for _ in range(_POLISH_STEPS):
        miss = _worst_miss(problem, columns, weights)
        sums = weights * columns.outputs * (1 - problem.low_share)
        new_weights = weights + _correction(chances, chance_targets - chances @ weights)
        new_sums = sums + _correction(chances, mean_targets - chances @ sums)
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
