"""The unbiased randomizer of least mean squared error, by exact column generation.

The linear program has a column for every output and every set of labels that favours
it; only those that matter are ever made. Each round solves the program over the
columns made so far (HiGHS), asks for better ones at its prices and at prices mixed
with the best known ones (smoothing, Wentges 1997), and narrows the gap between the
best randomizer and a proven lower bound. Columns with the same labels are merged into
one at their mean output: same mean, less variance (Jensen).

Rounds are few because they start from half as many labels: that solution's prices
and columns, read between its labels, are already close.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, RunStateError
from tulle.labels.unbiased.master import Weighted, merged, solve_master
from tulle.labels.unbiased.pricing import (
    BoolArray,
    Columns,
    Duals,
    FloatArray,
    Problem,
    best_columns,
    join,
    lower_bound,
    reduced_costs,
)
from tulle.labels.unbiased.warm_start import (
    coarser,
    finer_columns,
    finer_duals,
    start_columns,
)
from tulle.privacy.fields import check_count

_COARSEST = 6
_COARSE_GAP = 1e-4
_MAX_MISS = 1e-10
_BEST_DUAL_SHARES = (0.95, 0.7, 0.0)
_KEPT_COLUMNS_PER_LABEL = 12
_LEAST_KEPT_COLUMNS = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchLimits:
    """When to stop."""

    relative_gap: float = 1e-7
    """Stop once the best randomizer is proven to be this close to the optimum."""
    max_rounds: int = 200
    """Stop after so many rounds; the gap reached is part of the result."""

    def __post_init__(self) -> None:
        check_count("max_rounds", self.max_rounds)
        if not 0 < self.relative_gap < 1:
            raise ConfigError(f"relative_gap={self.relative_gap} must be between 0 and 1.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """A randomizer and what is proven about it, for labels from 0 to 1. Public."""

    columns: Columns
    weights: FloatArray
    mean_squared_error: float
    """Under the problem's prior."""
    lower_bound: float
    """No unbiased randomizer has less."""
    duals: Duals
    """The prices that prove it."""
    num_rounds: int

    @property
    def relative_gap(self) -> float:
        """At most this share of the error could be saved."""
        return max(0.0, 1 - self.lower_bound / self.mean_squared_error)


def solve(problem: Problem, limits: SearchLimits) -> Solution:
    """The best unbiased randomizer, with a proof of how close to optimal it is."""
    if problem.num_labels <= _COARSEST:
        return _search(problem, limits, start_columns(problem), None)
    coarse_problem, places = coarser(problem)
    coarse_limits = dataclasses.replace(limits, relative_gap=max(limits.relative_gap, _COARSE_GAP))
    coarse = solve(coarse_problem, coarse_limits)
    duals = finer_duals(coarse_problem, coarse.duals, problem)
    guesses = finer_columns(coarse.columns, places, problem, duals)
    return _search(problem, limits, join(start_columns(problem), guesses), duals)


def _search(
    problem: Problem, limits: SearchLimits, columns: Columns, duals: Duals | None
) -> Solution:
    """Rounds of the column generation, from given columns and prices."""
    num_fixed = start_columns(problem).outputs.size
    weights, prices = solve_master(problem, columns)
    best = found = merged(problem, columns, weights)
    duals = prices if duals is None else duals
    bound = lower_bound(problem, duals)
    num_rounds = 1
    while num_rounds < limits.max_rounds:
        fresh = [found.columns]
        centre = duals
        for share in _BEST_DUAL_SHARES:
            asked = prices.mixed(centre, share)
            proposed, _ = best_columns(problem, asked)
            fresh.append(proposed.select(reduced_costs(problem, prices, proposed) < 0))
            if (at_asked := lower_bound(problem, asked)) > bound:
                bound, duals = at_asked, asked
        if best.mean_squared_error - bound <= limits.relative_gap * best.mean_squared_error:
            break
        kept = _kept(problem, columns, prices, weights > 0, num_fixed)
        columns = join(columns.select(kept), *fresh)
        try:
            weights, prices = solve_master(problem, columns)
        except RunStateError:
            break  # what was found so far is feasible, and its gap is proven
        found = merged(problem, columns, weights)
        best = min(best, found, key=_quality)
        num_rounds += 1
    return Solution(
        columns=best.columns,
        weights=best.weights,
        mean_squared_error=best.mean_squared_error,
        lower_bound=min(bound, best.mean_squared_error),
        duals=duals,
        num_rounds=num_rounds,
    )


def _quality(one: Weighted) -> tuple[bool, float]:
    """Smaller is better; what misses its constraints comes last, however small its error."""
    return one.worst_miss > _MAX_MISS, one.mean_squared_error


def _kept(
    problem: Problem, columns: Columns, prices: Duals, is_used: BoolArray, num_fixed: int
) -> NDArray[np.int64]:
    """The start columns, which keep the program feasible, those in use, and the cheapest."""
    costs = reduced_costs(problem, prices, columns)
    costs[is_used] = -math.inf
    costs[:num_fixed] = -math.inf
    num_needed = num_fixed + int(is_used.sum())
    num_wanted = max(_LEAST_KEPT_COLUMNS, _KEPT_COLUMNS_PER_LABEL * problem.num_labels)
    num_kept = max(num_needed, num_wanted)
    return np.sort(np.argsort(costs, kind="stable")[:num_kept])
