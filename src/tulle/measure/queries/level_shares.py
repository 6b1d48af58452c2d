"""How much of a query's budget each level of its hierarchy gets."""

import numpy as np
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.queries.query import Levels, LevelSplit, Query
from tulle.measure.queries.step_noise import LaplaceBudget, NoiseBudget, Sensitivity
from tulle.measure.slice_jobs import SliceJob
from tulle.measure.trees import level_noise
from tulle.measure.trees.level_budgets import (
    closed_form_split,
    optimised_split,
)
from tulle.measure.trees.level_errors import TreeErrors
from tulle.measure.trees.slice_tree import FloatArray, SliceTree

COUNT_COLUMN = "count"


def level_shares(
    query: Query,
    levels: Levels,
    job: SliceJob,
    budget: level_noise.TreeBudget,
    history: pl.DataFrame | None,
) -> tuple[float, ...]:
    """Shares that add up to 1, one for each level from the top; some may be 0.

    Args:
      query: Whose levels they are.
      levels: The levels.
      job: Of its leaves.
      budget: Of all levels together.
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


def tree_errors(query: Query, levels: Levels, job: SliceJob, history: pl.DataFrame) -> TreeErrors:
    """How errors at the nodes of a query weigh, by earlier numbers."""
    names = [column.name for column in query.slices]
    _check_history(query, history)
    keys = query.keys if query.keys is not None else history.select(names).cast(pl.String)
    tree = SliceTree.from_keys(keys, levels.columns)
    clip = job.amounts[0].clip  # errors are those of contributions, each worth up to the clip
    counts = history_counts(query, keys, history)
    return TreeErrors.from_history(tree, counts / clip, tau=levels.tau / clip)


def history_counts(query: Query, keys: pl.DataFrame, history: pl.DataFrame) -> FloatArray:
    """The earlier number of each key, 0 for those that were not there."""
    _check_history(query, history)
    names = [column.name for column in query.slices]
    known = history.select(*(pl.col(name).cast(pl.String) for name in names), COUNT_COLUMN)
    joined = keys.join(known, on=names, how="left", maintain_order="left")
    counts = joined[COUNT_COLUMN].cast(pl.Float64, strict=False).fill_null(0.0)
    return np.asarray(counts.to_numpy()).clip(min=0.0)


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


def tree_budget(
    budget: NoiseBudget, sensitivity: Sensitivity, job: SliceJob
) -> level_noise.TreeBudget:
    """The budget of all levels, for totals in contributions."""
    if isinstance(budget, LaplaceBudget):
        return level_noise.LaplaceLevels(
            epsilon=budget.epsilon, max_steps_per_unit=sensitivity.l1, steps=job.steps
        )
    return level_noise.GaussianLevels(
        rho=1 / (2 * budget.noise_multiplier**2),
        max_steps_per_unit=float(sensitivity.l1),
        steps=job.steps,
    )
