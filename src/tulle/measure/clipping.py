"""Clips and shares chosen for the least relative error, from a past period (Aksu et al. 2024).

Noise of one contribution is fixed by the budget. What is left to choose is where to clip each value
and how much of the contribution it gets. The error is convex in the clips and in the shares, not
in both, so the search starts from several quantiles.

A row spends one contribution on all of its values: value j, clipped at its clip, has a share of
it. A small clip loses what is above it (bias); a large clip or a small share makes the noise larger
in units of the value (variance). With a rest, the column that fills every row up to a whole
contribution, the number of rows is the sum of all columns and needs no share of its own.

What is chosen from past rows is written into public settings. So they must be public, simulated, or
from a period whose use for this purpose is covered by its own guarantee.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data.tables.rows import reals_of
from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import rmsre, root_mean_square
from tulle.measure.slice_jobs import Amount
from tulle.measure.small_tables import read_rows, texts_of
from tulle.measure.trees.level_budgets import TreeBudget

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
_START_QUANTILES = (0.99, 0.95, 0.9, 0.5)
"""Quantiles of the values that the search for clips starts from."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ValueHistory:
    """Rows with one or more values, each row in one slice.

    Privacy:
      Read as it is and without noise: public or past data, never the data to be released.
    """

    names: tuple[str, ...]
    """Names of the value columns."""
    values: FloatArray = dataclasses.field(repr=False)
    """[rows, columns], finite and >= 0."""
    slices: IntArray = dataclasses.field(repr=False)
    """[rows], the number of each row's slice, from 0 on."""
    kept: FloatArray | None = dataclasses.field(default=None, repr=False)
    """[rows], the part of each row that a unit's bounds leave, from 0 to 1. None keeps all."""

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.slices), len(self.names)) or self.values.size == 0:
            raise DataError(
                f"history has values of shape {self.values.shape} for {len(self.slices)} rows and "
                f"{len(self.names)} columns; it needs at least one of each."
            )
        if not np.all(np.isfinite(self.values)) or np.any(self.values < 0):
            raise DataError("values of the history must be finite and >= 0; drop the other rows.")
        for place, name in enumerate(self.names):
            if not np.any(self.values[:, place] > 0):
                raise DataError(f"column {name!r} of the history has only zeros; leave it out.")
        if np.any(self.slices < 0):
            raise DataError("numbers of slices in the history must be >= 0.")
        if self.kept is not None and (
            self.kept.shape != self.slices.shape or not np.all((self.kept >= 0) & (self.kept <= 1))
        ):
            raise DataError("kept must have a number from 0 to 1 for each row of the history.")

    @classmethod
    def from_frame(
        cls, frame: pl.DataFrame, *, slices: Sequence[str], values: Sequence[str]
    ) -> "ValueHistory":
        """The history in a table of conversions; slices are the distinct keys in it.

        Args:
          frame: Conversions, one a row.
          slices: Columns whose values make slices.
          values: Columns of values.
        """
        if frame.height == 0:
            raise DataError("the history has no rows; clips cannot be chosen from it.")
        if slices:
            numbers = frame.select(pl.struct(slices).rank("dense") - 1).to_series().to_numpy()
        else:
            numbers = np.zeros(frame.height)
        return cls(
            names=tuple(values),
            values=frame.select(pl.col(list(values)).cast(pl.Float64)).to_numpy(),
            slices=numbers.astype(np.int64),
        )

    @functools.cached_property
    def weights(self) -> FloatArray:
        """[rows], `kept` as an array."""
        return np.ones(len(self.slices)) if self.kept is None else self.kept

    @functools.cached_property
    def true_totals(self) -> FloatArray:
        """[slices, columns], all rows added up, whether bounds would leave them or not."""
        columns = [np.bincount(self.slices, weights=column) for column in self.values.T]
        return np.stack(columns, axis=1)

    @functools.cached_property
    def true_counts(self) -> FloatArray:
        """[slices], rows."""
        return np.bincount(self.slices).astype(np.float64)

    def kept_totals(self, row_values: FloatArray) -> FloatArray:
        """[slices], one number for each row added up as far as bounds leave it."""
        totals = np.bincount(self.slices, weights=self.weights * row_values)
        return totals.astype(np.float64)

    def default_taus(self) -> tuple[float, ...]:
        """Five usual rows: 5 medians of each column's values, and 5 for the count.

        A total below tau is not worth a smaller error (Aksu et al. 2024, section 5).
        """
        medians = [float(np.median(column[column > 0])) for column in self.values.T]
        return (*(5 * median for median in medians), 5.0)


def read_value_history(
    data: object, *, slices: Sequence[str], values: Sequence[str]
) -> ValueHistory:
    """Reads the history in a file or a table in memory.

    Args:
      data: A path, or a table of polars, pandas, Arrow or DuckDB.
      slices: Columns whose values make slices.
      values: Columns of values.

    Raises:
      DataError: It cannot be read, or lacks a column or has text in place of numbers.
    """
    rows = read_rows(data, [*slices, *values])
    columns = [texts_of(rows, name) for name in slices]
    columns += [reals_of(rows, name) for name in values]
    return ValueHistory.from_frame(pl.DataFrame(columns), slices=slices, values=values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipErrors:
    """Relative errors (RMSRE) to expect of values and of the number of rows."""

    values: tuple[float, ...]
    """RMSRE of each value column."""
    count: float

    @property
    def overall(self) -> float:
        """The root mean square over the value columns and the count."""
        return root_mean_square([*self.values, self.count])


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipPlan:
    """Amounts for a slice job, and the errors to expect of them. Public."""

    amounts: tuple[Amount, ...]
    has_rest: bool
    """Whether the job has to fill rows up; then their number is the sum of all amounts."""
    errors: ClipErrors
    """Errors on the history that the plan was made from."""

    @property
    def expected_rmsre(self) -> float:
        """The root mean square over value columns and count."""
        return self.errors.overall

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the `values` of a query with measure = "average", and the error."""
        values = [
            {"column": amount.column, "clip": amount.clip, "share": amount.share}
            for amount in self.amounts
        ]
        return {"values": values, "expected_rmsre": self.expected_rmsre}

    def to_toml(self) -> str:
        """The `values` of a query with measure = "average", to be pasted into its settings."""
        rows = [
            f"  {{ column = {json.dumps(amount.column)}, clip = {amount.clip:.6g}, "
            f"share = {amount.share:.6g} }},"
            for amount in self.amounts
        ]
        return "\n".join(["values = [", *rows, "]"])


def optimise_clips(
    history: ValueHistory, budget: TreeBudget, *, taus: Sequence[float] | None = None
) -> ClipPlan:
    """Clips and shares with the least expected error, and the count for free.

    Args:
      history: Past rows.
      budget: Budget of the whole job. Shares become whole numbers of its steps, so have many of
        them, e.g. 65536.
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

    Args:
      history: Past rows.
      budget: Budget of the whole job.
      quantile: The quantile of each column that its values are clipped at.
      taus: Smallest totals that matter, as in `expected_errors`.

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


def expected_errors(
    history: ValueHistory,
    amounts: Sequence[Amount],
    budget: TreeBudget,
    *,
    has_rest: bool,
    taus: Sequence[float] | None = None,
) -> ClipErrors:
    """The errors that a job with these amounts would have on rows like those of the history.

    Rounding to whole steps and the discreteness of the noise are taken into account.

    Args:
      history: Past rows; its columns are those that `amounts` name.
      amounts: One for each value column, and one without column unless there is a rest.
      budget: Budget of the whole job.
      has_rest: Whether the job fills each row up to a whole contribution.
      taus: Smallest totals that matter, by value column and last for the count; as a default
        those of the history.

    Privacy:
      Reads nothing but the history.
    """
    scales = checked_taus(history, taus)
    noise = budget.variance(1.0)
    by_column = {amount.column: amount for amount in amounts}
    found = []
    for place, name in enumerate(history.names):
        amount = _amount_of(name, by_column)
        steps = amount.share * budget.steps
        unit = amount.clip / steps
        clipped = np.rint(np.minimum(history.values[:, place] / amount.clip, 1.0) * steps) * unit
        bias = history.true_totals[:, place] - history.kept_totals(clipped)
        variance = (amount.clip / amount.share) ** 2 * noise
        found.append(
            rmsre(history.true_totals[:, place], variance, bias=bias, tau=float(scales[place]))
        )
    if has_rest:
        variance = (len(amounts) + 1) * noise
    else:
        variance = noise / _amount_of(None, by_column).share ** 2
    bias = history.true_counts - history.kept_totals(np.ones(len(history.slices)))
    count = rmsre(history.true_counts, variance, bias=bias, tau=float(scales[-1]))
    return ClipErrors(values=tuple(found), count=count)


def smooth_error(
    history: ValueHistory,
    log_clips: FloatArray,
    logits: FloatArray,
    noise_variance: float,
    taus: FloatArray,
) -> tuple[float, FloatArray]:
    """The mean squared RMSRE of the values, and its gradient by log clips and then logits.

    Shares are the softmax of `logits`, clips and shares any real numbers. The count is left out:
    with a rest it does not depend on either.

    Args:
      history: Past rows.
      log_clips: Logarithms of the clips, by column.
      logits: Shares before their softmax, by column.
      noise_variance: Variance of the noise of one contribution.
      taus: Smallest totals that matter, by column.

    Privacy:
      Reads nothing but the history.
    """
    shares = _softmax(logits)
    num_columns = len(history.names)
    total, by_clip, by_share = 0.0, np.zeros(num_columns), np.zeros(num_columns)
    for place in range(num_columns):
        clip = np.exp(log_clips[place])
        true_totals = history.true_totals[:, place]
        weights = 1 / np.maximum(taus[place], true_totals) ** 2
        column = history.values[:, place]
        bias = true_totals - history.kept_totals(np.minimum(column, clip))
        slope = -clip * history.kept_totals((column > clip).astype(np.float64))
        variance = (clip / shares[place]) ** 2 * noise_variance * float(np.mean(weights))
        total += float(np.mean(weights * bias**2)) + variance
        by_clip[place] = float(np.mean(2 * weights * bias * slope)) + 2 * variance
        by_share[place] = -2 * variance
    by_logit = by_share - shares * by_share.sum()
    return total / num_columns, np.concatenate([by_clip, by_logit]) / num_columns


def checked_taus(history: ValueHistory, taus: Sequence[float] | None) -> FloatArray:
    """The taus as an array, those of the history if None."""
    scales = np.array(history.default_taus() if taus is None else taus, dtype=np.float64)
    if scales.shape != (len(history.names) + 1,) or not np.all(scales > 0):
        raise ConfigError(
            f"taus={scales.tolist()} must be > 0, one for each of the columns "
            f"{', '.join(history.names)} and last one for the count."
        )
    return scales


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


def _amount_of(column: str | None, by_column: dict[str | None, Amount]) -> Amount:
    if column not in by_column:
        what = "a count" if column is None else f"column {column!r}"
        raise ConfigError(f"amounts have none for {what} of the history; add one.")
    return by_column[column]
