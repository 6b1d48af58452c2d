"""The unbiased randomizer of least mean squared error, by exact column generation.

The linear program has a column for every output and every set of labels that favours
it; only those that matter are ever made. Each round solves the program over the
columns made so far (HiGHS), asks for better ones at its prices and at prices mixed
with the best known ones (smoothing, Wentges 1997), and narrows the gap between the
best randomizer and a proven lower bound. Columns with the same labels are merged into
one at their mean output: same mean, less variance (Jensen).

Rounds are few because they start from half as many labels: that solution's prices
and columns, read between its labels, are already close. Some columns are always there and make
every problem feasible: rounding at random to the two ends, then binary randomized response on them.

Labels are rounded to a few atoms first. One between two atoms goes to the upper one with a
probability that grows linearly from 0 to 1, so the mean is the label. Rounding comes before the
noise and looks at nothing but the label, so what is private for atoms is private for labels.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, RunStateError
from tulle.labels.mechanisms.unbiased_program import (
    BoolArray,
    Columns,
    Duals,
    FloatArray,
    Problem,
    Weighted,
    best_columns,
    join,
    lower_bound,
    merged,
    reduced_costs,
    solve_master,
)
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]
Words = NDArray[np.uint64]

_CHUNK = 1 << 16
"""Labels that are rounded at once, so that the arrays stay in the processor's cache."""
_WORD_BITS = 64
"""Bits of a word of a noise source."""
_COARSEST = 6
"""Labels from which on a search starts from one with half as many."""
_COARSE_GAP = 1e-4
"""Relative gap at which a search with fewer labels ends: it only has to be close."""
_MAX_MISS = 1e-10
"""Largest error of a constraint with which a randomizer counts as unbiased."""
_BEST_DUAL_SHARES = (0.95, 0.7, 0.0)
"""Shares of the best known prices in those at which new columns are asked for."""
_KEPT_COLUMNS_PER_LABEL = 12
"""Columns for each label that a round keeps."""
_LEAST_KEPT_COLUMNS = 400
"""Fewest columns that a round keeps, the cheapest of them beside those in use."""
_GUESSES_PER_LABEL = 4
"""Outputs for each label at which columns are guessed from a coarser solution."""
_REACH = 0.05
"""How far beyond the coarser outputs guesses go, in their range."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Rounding:
    """Rounding at random to neighbouring atoms. Public."""

    atoms: FloatArray
    """Ascending; the first and the last are the ends of the label's range."""

    def __post_init__(self) -> None:
        if self.atoms.ndim != 1 or self.atoms.size < 2 or not np.all(np.diff(self.atoms) > 0):
            raise ConfigError("atoms must be at least two ascending numbers.")

    def lower_atoms(self, labels: ArrayLike) -> IntArray:
        """Place of the atom below each label; never the last one."""
        numbers = np.asarray(labels, np.float64)
        places = np.searchsorted(self.atoms, numbers, side="right") - 1
        return np.clip(places, 0, self.atoms.size - 2).astype(np.int64)

    def thresholds(self, labels: ArrayLike) -> Words:
        """Words, of 2^64, with which each label goes up, less than all of them.

        A label on an atom has that atom as its lower one and stays, except at the very
        top, where all words would be needed and `is_top` decides.
        """
        return self._thresholds(np.asarray(labels, np.float64), self.lower_atoms(labels))

    def upper_shares(self, labels: ArrayLike) -> FloatArray:
        """Probability that each label goes to the upper atom, as the sampler has it."""
        shares = np.ldexp(self.thresholds(labels).astype(np.float64), -_WORD_BITS)
        return np.where(self.is_top(labels), 1.0, shares)

    def is_top(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Labels at the upper end, which always go up."""
        return np.asarray(np.asarray(labels, np.float64) >= self.atoms[-1])

    def draw(self, raw_labels: FloatArray, *, rng: NoiseSource) -> IntArray:
        """The place of an atom for each label, drawn with one word each.

        Privacy:
          Not private by itself: a step before the noise. Its rows are independent.
        """
        places = np.empty(raw_labels.size, np.int64)
        for start in range(0, raw_labels.size, _CHUNK):
            labels = raw_labels[start : start + _CHUNK]
            below = self.lower_atoms(labels)
            goes_up = rng.words(labels.size) < self._thresholds(labels, below)
            places[start : start + _CHUNK] = below + (goes_up | self.is_top(labels))
        return places

    def variance(self, labels: ArrayLike) -> FloatArray:
        """Variance of the atom of each label: (label - lower) (upper - label)."""
        gaps = np.diff(self.atoms)[self.lower_atoms(labels)]
        shares = self.upper_shares(labels)
        return np.asarray(gaps**2 * shares * (1 - shares), np.float64)

    def mixed(self, per_atom: FloatArray, labels: ArrayLike) -> FloatArray:
        """Mean over the rounding of a number that depends on the atom."""
        below, shares = self.lower_atoms(labels), self.upper_shares(labels)
        return np.asarray((1 - shares) * per_atom[below] + shares * per_atom[below + 1])

    def pushed(self, labels: FloatArray, prior: FloatArray) -> FloatArray:
        """Probability of each atom, from the probability of each label."""
        below, shares = self.lower_atoms(labels), self.upper_shares(labels)
        size = self.atoms.size
        low = np.bincount(below, prior * (1 - shares), minlength=size)
        return np.asarray(low + np.bincount(below + 1, prior * shares, minlength=size))

    def _thresholds(self, labels: FloatArray, below: IntArray) -> Words:
        shares = (labels - self.atoms[below]) / np.diff(self.atoms)[below]
        inside = np.clip(shares, 0.0, np.nextafter(1.0, 0.0))
        return np.ldexp(inside, _WORD_BITS).astype(np.uint64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchLimits:
    """Limits at which a search stops."""

    relative_gap: float = 1e-7
    """Gap to the optimum, proven, at which the search ends."""
    max_rounds: int = 200
    """Most rounds; the gap that was reached is part of the result."""

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
    """Mean squared error under the problem's prior."""
    lower_bound: float
    """No unbiased randomizer has less."""
    duals: Duals
    """The prices that prove it."""
    num_rounds: int
    """Rounds of the column generation."""

    @property
    def relative_gap(self) -> float:
        """Largest share of the error that could still be saved."""
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


def start_columns(problem: Problem) -> Columns:
    """The randomizer of the two ends as staircase columns, and debiased K-ary response.

    A probability that grows linearly with the label is a mixture of steps, one for each
    border between neighbouring labels.
    """
    num_labels, low_share = problem.num_labels, problem.low_share
    noise = low_share / (1 - low_share)
    borders = np.arange(1, num_labels)[:, None]
    is_above = np.arange(num_labels) >= borders
    low_end = np.full(num_labels - 1, problem.labels[0] - noise)
    high_end = np.full(num_labels - 1, problem.labels[-1] + noise)
    gain = (1 - low_share) / (1 + (num_labels - 1) * low_share)
    lie = low_share / (1 + (num_labels - 1) * low_share)
    response = (problem.labels - lie * problem.labels.sum()) / gain
    return Columns(
        outputs=np.concatenate([low_end, high_end, response]),
        is_high=np.concatenate([~is_above, is_above, np.eye(num_labels, dtype=np.bool_)]),
    )


def coarser(problem: Problem) -> tuple[Problem, IntArray]:
    """The problem of about half the labels, with both ends, and the prior rounded onto them."""
    num_kept = problem.num_labels // 2 + 1
    places = np.unique(np.rint(np.linspace(0, problem.num_labels - 1, num_kept)).astype(np.int64))
    atoms = problem.labels[places]
    prior = Rounding(atoms=atoms).pushed(problem.labels, problem.prior)
    return Problem(labels=atoms, prior=prior, low_share=problem.low_share), places


def finer_duals(coarse: Problem, duals: Duals, fine: Problem) -> Duals:
    """Prices for all labels from those of some.

    What label y adds to a reduced cost is p times a parabola in the output; sum and
    product of its roots change smoothly with the label, so they are interpolated.

    Args:
      coarse: The problem of some labels.
      duals: Dual prices of the coarse problem.
      fine: The problem of all labels.
    """
    root_sum = 2 * coarse.labels + duals.slope / coarse.prior
    root_product = coarse.labels**2 - duals.constant / coarse.prior
    fine_sum = np.interp(fine.labels, coarse.labels, root_sum)
    fine_product = np.interp(fine.labels, coarse.labels, root_product)
    return Duals(
        constant=(fine.labels**2 - fine_product) * fine.prior,
        slope=(fine_sum - 2 * fine.labels) * fine.prior,
    )


def finer_columns(coarse: Columns, places: IntArray, fine: Problem, duals: Duals) -> Columns:
    """Guessed columns for all labels from the solution for some.

    Args:
      coarse: The columns of that solution.
      places: Places of its labels among all.
      fine: The problem of all labels.
      duals: Prices for it.
    """
    low, high = coarse.outputs.min(), coarse.outputs.max()
    reach = _REACH * (high - low)
    spread = np.linspace(low - reach, high + reach, _GUESSES_PER_LABEL * fine.num_labels)
    outputs = np.concatenate([spread, coarse.outputs])
    each = fine.prior * (outputs[:, None] - fine.labels) ** 2
    each = each - duals.constant - duals.slope * outputs[:, None]
    guesses = Columns(outputs=outputs, is_high=each < 0)
    return join(guesses, *_widened(coarse, places, fine.num_labels))


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
    """Rank of a randomizer: what misses its constraints comes last, however small its error."""
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


def _widened(coarse: Columns, places: IntArray, num_labels: int) -> list[Columns]:
    """Every range of labels that keeps and leaves out the same coarse labels."""
    result = []
    index = np.arange(num_labels)
    bounds = np.concatenate([[-1], places, [num_labels]])
    for output, is_high in zip(coarse.outputs, coarse.is_high, strict=True):
        inside = np.flatnonzero(is_high)
        if not inside.size:
            continue
        first, last = int(inside[0]), int(inside[-1])
        starts = np.arange(bounds[first] + 1, bounds[first + 1] + 1)
        ends = np.arange(bounds[last + 1], bounds[last + 2])
        is_inside = (index >= starts[:, None, None]) & (index <= ends[None, :, None])
        marks = is_inside.reshape(-1, num_labels)
        result.append(Columns(outputs=np.full(len(marks), output), is_high=marks))
    return result
