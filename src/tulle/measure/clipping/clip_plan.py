"""Clips and shares chosen for the least relative error, from a past period (Aksu et al. 2024).

Noise of one contribution is fixed by the budget. What is left to choose is where to clip each value
and how much of the contribution it gets. The error is convex in the clips and in the shares, not
in both, so the search starts from several quantiles.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError
from tulle.measure.clipping.clip_errors import (
    ClipErrors,
    checked_taus,
    expected_errors,
    smooth_error,
)
from tulle.measure.clipping.value_history import FloatArray, IntArray, ValueHistory
from tulle.measure.slice_jobs import Amount
from tulle.measure.trees.level_noise import TreeBudget

_START_QUANTILES = (0.99, 0.95, 0.9, 0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipPlan:
    """Amounts for a slice job, and the errors to expect of them. Public."""

    amounts: tuple[Amount, ...]
    has_rest: bool
    """Whether the job has to fill rows up; then their number is the sum of all amounts."""
    errors: ClipErrors
    """On the history that the plan was made from."""

    @property
    def expected_rmsre(self) -> float:
        """The root mean square over value columns and count."""
        return self.errors.overall


def optimise_clips(
    history: ValueHistory, budget: TreeBudget, *, taus: Sequence[float] | None = None
) -> ClipPlan:
    """Clips and shares with the least expected error, and the count for free.

    Args:
      history: Past rows.
      budget: Of the whole job. Shares become whole numbers of its steps, so have many of them,
        e.g. 65536.
      taus: Smallest totals that matter, as in `expected_errors`.

    Privacy:
      Reads nothing but the history; the result is as public as the history is.
    """
    if budget.steps < 2 * len(history.names):
        raise ConfigError(
            f"steps={budget.steps} are too few to share among {len(history.names)} columns; "
            "use e.g. 65536."
        )
    scales = checked_taus(history, taus)
    log_clips, logits = _least_error(history, budget.variance(1.0), scales)
    whole_shares = whole_steps(_softmax(logits), budget.steps)
    amounts = tuple(
        Amount(name=name, column=name, share=whole / budget.steps, clip=float(clip))
        for name, whole, clip in zip(
            history.names, whole_shares.tolist(), np.exp(log_clips), strict=True
        )
    )
    errors = expected_errors(history, amounts, budget, has_rest=True, taus=taus)
    return ClipPlan(amounts=amounts, has_rest=True, errors=errors)


def quantile_clips(
    history: ValueHistory,
    budget: TreeBudget,
    *,
    quantile: float,
    taus: Sequence[float] | None = None,
) -> ClipPlan:
    """What is usual: clips at one quantile, equal shares, and one of them for the count.

    Privacy:
      As `optimise_clips`.
    """
    if not 0 < quantile <= 1:
        raise ConfigError(f"quantile={quantile} must be in (0, 1], e.g. 0.95.")
    num_amounts = len(history.names) + 1
    *value_steps, count_steps = whole_steps(
        np.full(num_amounts, 1 / num_amounts), budget.steps
    ).tolist()
    clips = _quantiles(history, quantile)
    amounts = [
        Amount(name=name, column=name, share=steps / budget.steps, clip=float(clip))
        for name, steps, clip in zip(history.names, value_steps, clips, strict=True)
    ]
    amounts.append(Amount(name="count", share=count_steps / budget.steps))
    errors = expected_errors(history, amounts, budget, has_rest=False, taus=taus)
    return ClipPlan(amounts=tuple(amounts), has_rest=False, errors=errors)


def whole_steps(shares: npt.ArrayLike, steps: int) -> IntArray:
    """Shares as whole numbers >= 1 that add up to `steps`, each less than 1 off where it can be."""
    wanted = np.asarray(shares, dtype=np.float64)
    wanted = wanted / wanted.sum() * steps
    if len(wanted) > steps:
        raise ConfigError(f"steps={steps} are fewer than the {len(wanted)} shares.")
    # One step each; the rest goes by what is wanted above it, and to the largest remainders.
    above = np.maximum(wanted - 1, 0.0)
    if above.sum() > 0:
        above *= (steps - len(wanted)) / above.sum()
    whole: IntArray = np.floor(above).astype(np.int64)
    num_left = steps - len(wanted) - int(whole.sum())
    whole[np.argsort(whole - above, kind="stable")[:num_left]] += 1
    whole += 1
    return whole


def _least_error(
    history: ValueHistory, noise_variance: float, taus: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log clips and logits of the shares."""
    from scipy.optimize import minimize

    num_columns = len(history.names)

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        error, gradient = smooth_error(
            history, point[:num_columns], point[num_columns:], noise_variance, taus
        )
        return float(np.log(error)), gradient / error

    largest = np.log(history.values.max(axis=0))
    # A clip below any row's value changes bias and noise alike in all rows: no use to go there.
    smallest = [float(np.log(column[column > 0].min())) - 1 for column in history.values.T]
    bounds = [*zip(smallest, largest.tolist(), strict=True), *[(-20.0, 20.0)] * num_columns]
    results = []
    for quantile in _START_QUANTILES:
        clips = np.log(np.maximum(_quantiles(history, quantile), np.exp(smallest)))
        start = np.concatenate([clips, np.zeros(num_columns)])
        results.append(minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds))
    best = np.asarray(min(results, key=lambda result: float(result.fun)).x)
    return best[:num_columns], best[num_columns:]


def _quantiles(history: ValueHistory, quantile: float) -> FloatArray:
    """[columns], at least the least value above zero, since a clip of zero keeps nothing."""
    found = np.quantile(history.values, quantile, axis=0)
    least = np.array([column[column > 0].min() for column in history.values.T])
    clips: FloatArray = np.maximum(found, least)
    return clips


def _softmax(logits: FloatArray) -> FloatArray:
    weights = np.exp(logits - logits.max())
    shares: FloatArray = weights / weights.sum()
    return shares
