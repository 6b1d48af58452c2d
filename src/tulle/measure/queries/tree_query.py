"""Numbers of a hierarchy: every level is measured with its share, and then all add up.

How much of a query's budget a level gets is given, or follows from earlier counts.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.queries.answers import (
    MEASURED_COLUMNS,
    FloatArray,
    SliceNumbers,
    answer_frame,
)
from tulle.measure.queries.query import Levels, LevelSplit, Query
from tulle.measure.queries.query_noise import LaplaceBudget, NoiseBudget, Sensitivity, StepNoise
from tulle.measure.queries.slice_queries import NoisyQuery
from tulle.measure.slice_jobs import IntArray, SliceJob
from tulle.measure.trees.consistency import (
    TreeEstimate,
    consistent_estimate,
    consistent_variances,
    running_totals,
)
from tulle.measure.trees.level_budgets import (
    GaussianLevels,
    LaplaceLevels,
    TreeBudget,
    TreeErrors,
    closed_form_split,
    optimised_split,
)
from tulle.measure.trees.nonnegative import NonnegativeEstimate, nonnegative_estimate
from tulle.measure.trees.slice_tree import SliceTree, day_tree
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event

COUNT_COLUMN = "count"
"""Column of earlier numbers, beside those of the slices."""
_LEAST_STDDEV = 1e-12
"""Least deviation of a number, in steps: an interval needs some width."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TreeQuery(NoisyQuery):
    """Numbers of a hierarchy, or of days with their running totals."""

    job: SliceJob
    """Totals of the leaves; the levels above are sums of them."""
    level_noise: tuple[StepNoise | None, ...]
    """Noise by level from the top; None for a level that is not measured."""

    @property
    def jobs(self) -> tuple[SliceJob, ...]:
        """The leaves alone."""
        return (self.job,)

    def tree(self, slices: pl.DataFrame) -> SliceTree:
        """The tree over these leaves."""
        if self.query.levels is not None:
            return SliceTree.from_keys(slices, self.query.levels.columns)
        return day_tree(slices.height)

    def node_variances(self, tree: SliceTree) -> FloatArray:
        """[nodes], of the noise of each number after all add up."""
        return consistent_variances(tree, self._noise_variances(tree)) * self._size**2

    def running_variances(self, tree: SliceTree) -> FloatArray:
        """[leaves], of the noise of each running total after all add up."""
        nothing = consistent_estimate(tree, np.zeros(tree.num_nodes), self._noise_variances(tree))
        return running_totals(nothing)[1] * self._size**2

    def half_widths(self, stddev: FloatArray, confidence: float) -> FloatArray:
        """Half-widths of intervals of numbers with these standard deviations, after all add up."""
        measured = [noise for noise in self.level_noise if noise is not None]
        noise = min(measured, key=lambda noise: noise.noise_stddev)
        return noise.combined_half_width(stddev / self._size, confidence) * self._size

    def measured_noise(self, level: int, confidence: float) -> tuple[float, float] | None:
        """Standard deviation and half-width of a number as measured; None if it is not."""
        noise = self.level_noise[level]
        if noise is None:
            return None
        return noise.noise_stddev * self._size, noise.half_width(confidence) * self._size

    def _noise_events(self) -> list[Event]:
        return [noise.event() for noise in self.level_noise if noise is not None]

    def _noisy_frame(
        self,
        slices: pl.DataFrame,
        raw_steps: Sequence[IntArray],
        confidence: float,
        rng: NoiseSource,
    ) -> pl.DataFrame:
        """Draws the noise; sums over leaves keep the L1 bound of a unit at every level."""
        if slices.height == 0:  # no slice passed the private choice
            frame = answer_frame(slices, [_no_answer(self._metric)])
            floats = [pl.lit(0.0).alias(name) for name in ("nonnegative", *MEASURED_COLUMNS)]
            return frame.with_columns(pl.lit(0, pl.Int64).alias("level"), *floats)
        estimate = self._estimate(self.tree(slices), raw_steps[0][:, 0], rng)
        return self._frame(slices, estimate, confidence)

    @property
    def _metric(self) -> str:
        return self.job.amounts[0].name

    def _estimate(
        self, tree: SliceTree, leaf_steps: IntArray, rng: NoiseSource
    ) -> NonnegativeEstimate:
        raw_steps = tree.node_totals(leaf_steps)
        noisy = np.zeros(tree.num_nodes)
        for noise, nodes in zip(self.level_noise, tree.level_slices, strict=True):
            if noise is not None:
                noisy[nodes] = noise.release(raw_steps[nodes].astype(np.int64), rng=rng)
        return nonnegative_estimate(tree, noisy, self._noise_variances(tree))

    def _noise_variances(self, tree: SliceTree) -> FloatArray:
        """[nodes], in steps, infinite where nothing is measured."""
        by_level = [np.inf if n is None else n.noise_stddev**2 for n in self.level_noise]
        return np.array(by_level)[tree.levels]

    def _frame(
        self, slices: pl.DataFrame, estimate: NonnegativeEstimate, confidence: float
    ) -> pl.DataFrame:
        unbiased = estimate.unbiased
        if self.query.has_running_totals:
            return self._day_frame(slices, unbiased, confidence)
        keys = unbiased.tree.keys
        answer = self._answer(self._metric, unbiased.values, unbiased.variances, confidence)
        return answer_frame(slices if keys is None else keys, [answer]).with_columns(
            pl.Series("level", unbiased.tree.levels),
            pl.Series("nonnegative", estimate.values * self._size),
            *self._as_measured(unbiased.noisy_totals, unbiased.noise_variances),
        )

    def _day_frame(
        self, slices: pl.DataFrame, unbiased: TreeEstimate, confidence: float
    ) -> pl.DataFrame:
        days = unbiased.tree.leaf_nodes
        by_day = unbiased.values[days], unbiased.variances[days]
        answers = [
            self._answer(self._metric, *by_day, confidence),
            self._answer(f"running {self._metric}", *running_totals(unbiased), confidence),
        ]
        # Every other row is a running total, which nobody measured.
        noisy, variances = np.full(2 * len(days), np.nan), np.full(2 * len(days), np.inf)
        noisy[::2], variances[::2] = unbiased.noisy_totals[days], unbiased.noise_variances[days]
        return answer_frame(slices, answers).with_columns(self._as_measured(noisy, variances))

    def _as_measured(self, noisy: FloatArray, variances: FloatArray) -> list[pl.Series]:
        """Numbers in front of consistency: post-processing of the same noise, so public."""
        values = (noisy * self._size, np.sqrt(variances) * self._size)
        return [pl.Series(name, v) for name, v in zip(MEASURED_COLUMNS, values, strict=True)]

    @property
    def _size(self) -> float:
        """What one step is worth."""
        return self.job.amounts[0].clip / self.job.steps

    def _answer(
        self, metric: str, steps: FloatArray, variances: FloatArray, confidence: float
    ) -> SliceNumbers:
        stddev = np.sqrt(np.maximum(variances, _LEAST_STDDEV**2)) * self._size
        return SliceNumbers.around(
            metric,
            steps * self._size,
            half_width=self.half_widths(stddev, confidence),
            noise_stddev=stddev,
        )


def level_shares(
    query: Query,
    levels: Levels,
    job: SliceJob,
    budget: TreeBudget,
    history: pl.DataFrame | None,
) -> tuple[float, ...]:
    """Shares that add up to 1, one for each level from the top; some may be 0.

    Args:
      query: Query whose levels they are.
      levels: The levels.
      job: Job of the query's leaves.
      budget: Budget of all levels together.
      history: Earlier numbers by slice in the column "count", where the split needs them.

    Privacy:
      `history` is read as it is: it must be public, or an earlier release.
    """
    if not isinstance(levels.split, LevelSplit):
        return levels.split
    if levels.split is LevelSplit.UNIFORM:
        return (1 / len(levels.columns),) * len(levels.columns)
    if levels.split is LevelSplit.LEAVES:
        return (*(0.0,) * (len(levels.columns) - 1), 1.0)
    if history is None:
        raise ConfigError(
            f"query {query.name!r}: split {levels.split.value} follows from earlier counts; give "
            "them as history."
        )
    errors = tree_errors(query, levels, job, history)
    if levels.split is LevelSplit.CUBE_ROOT:
        shares = closed_form_split(errors, budget)
    else:
        shares = optimised_split(errors, budget)
    return tuple(float(share) for share in shares)


def tree_budget(budget: NoiseBudget, sensitivity: Sensitivity, job: SliceJob) -> TreeBudget:
    """The budget of all levels, for totals in contributions.

    Args:
      budget: Budget of the query.
      sensitivity: The most that one unit changes the totals by.
      job: Totals of the leaves.
    """
    if isinstance(budget, LaplaceBudget):
        return LaplaceLevels(
            epsilon=budget.epsilon, max_steps_per_unit=sensitivity.l1, steps=job.steps
        )
    return GaussianLevels(
        rho=1 / (2 * budget.noise_multiplier**2),
        max_steps_per_unit=float(sensitivity.l1),
        steps=job.steps,
    )


def tree_errors(query: Query, levels: Levels, job: SliceJob, history: pl.DataFrame) -> TreeErrors:
    """How errors at the nodes of a query weigh, by earlier numbers.

    Args:
      query: The query.
      levels: Levels of the query.
      job: Totals of the leaves.
      history: Earlier numbers by slice in the column "count".
    """
    names = [column.name for column in query.slices]
    _check_history(query, history)
    keys = query.keys if query.keys is not None else history.select(names).cast(pl.String)
    tree = SliceTree.from_keys(keys, levels.columns)
    clip = job.amounts[0].clip  # errors are those of contributions, each worth up to the clip
    counts = history_counts(query, keys, history)
    return TreeErrors.from_history(tree, counts / clip, tau=levels.tau / clip)


def history_counts(query: Query, keys: pl.DataFrame, history: pl.DataFrame) -> FloatArray:
    """The earlier number of each key, 0 for those that were not there.

    Args:
      query: The query.
      keys: Slices of the query.
      history: Earlier numbers by slice in the column "count".
    """
    _check_history(query, history)
    names = [column.name for column in query.slices]
    known = history.select(*(pl.col(name).cast(pl.String) for name in names), COUNT_COLUMN)
    joined = keys.join(known, on=names, how="left", maintain_order="left")
    counts = joined[COUNT_COLUMN].cast(pl.Float64, strict=False).fill_null(0.0)
    return np.asarray(counts.to_numpy()).clip(min=0.0)


def _no_answer(metric: str) -> SliceNumbers:
    nothing = np.zeros(0)
    return SliceNumbers.around(metric, nothing, half_width=nothing, noise_stddev=nothing)


def _check_history(query: Query, history: pl.DataFrame) -> None:
    names = [*(column.name for column in query.slices), COUNT_COLUMN]
    missing = [name for name in names if name not in history.columns]
    if missing:
        raise DataError(
            f"query {query.name!r}: its history has no column {missing[0]!r}; it needs "
            f"{', '.join(names)}."
        )
    if history.height and not history[COUNT_COLUMN].dtype.is_numeric():
        raise DataError(f"query {query.name!r}: {COUNT_COLUMN!r} of its history is no number.")
    if names[:-1] and history.select(names[:-1]).is_duplicated().any():
        raise DataError(f"query {query.name!r}: its history has a slice twice.")
