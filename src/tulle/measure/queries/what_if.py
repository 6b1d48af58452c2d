"""What error to expect of every number, before anything is spent.

Noise follows from the plan alone. Relative errors also need an idea of the counts: those of an
earlier release, or public ones. Bounds cut off what units have beyond them; that bias is not in
these figures, because no public count tells it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from tulle.measure.expected_error import (
    expected_relative_errors,
    root_mean_square,
    smallest_count_within,
)
from tulle.measure.queries.answers import FloatArray
from tulle.measure.queries.measure_plan import MeasurePlan
from tulle.measure.queries.query import Quantity
from tulle.measure.queries.query_plans import PlannedQuery
from tulle.measure.queries.slice_queries import FlatQuery, ReachQuery
from tulle.measure.queries.tree_query import TreeQuery, history_counts

_WITHIN = 0.1
"""Relative error from which on a number is called good enough."""
TOTAL_LEVEL = "total"
"""The name of the level that is one sum of all slices."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExpectedErrors:
    """One kind of number of a query, over its slices. Public if the counts are."""

    query: str
    metric: str
    level: str
    """Slice columns of the level of a hierarchy. Empty for other queries."""
    noise_stddev: float
    """Standard deviation of the noise of one slice; where slices differ, the largest."""
    least_noise_stddev: float
    """The smallest of all slices."""
    is_as_measured: bool
    """True of a hierarchy whose slices are not known yet: what is released after all numbers
    add up has less noise."""
    smallest_within: int
    """The least number that is off by 10% at most, with the plan's confidence."""
    slices: pl.DataFrame | None = None
    """Slices with the columns expected, noise_stddev and relative_error; None without counts."""
    rmsre: float | None = None
    """Root of the mean squared relative error over all slices."""

    @property
    def label(self) -> str:
        """What is counted and at which level, e.g. "conversions by geo"."""
        if not self.level:
            return self.metric
        return f"{self.metric} {'in' if self.level == TOTAL_LEVEL else 'by'} {self.level}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "query": self.query,
            "metric": self.metric,
            "level": self.level or None,
            "noise_stddev": self.noise_stddev,
            "least_noise_stddev": self.least_noise_stddev,
            "is_as_measured": self.is_as_measured,
            "within_10_percent_from": self.smallest_within,
            "rmsre": self.rmsre,
            "slices": None if self.slices is None else self.slices.to_dicts(),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NumberNoise:
    """One kind of number, over all slices or over those of one level."""

    metric: str
    stddevs: FloatArray
    """[slices], or [1] if all have the same."""
    half_width: float
    """The largest."""
    is_main: bool = True
    """Whether earlier numbers of the query are of this kind."""
    level: str = ""
    slices: pl.DataFrame | None = None
    """Slices of a level; None if they are those of the query."""
    totals: Callable[[FloatArray], FloatArray] = lambda counts: counts
    """Makes the numbers of these slices from those of the query's."""
    is_as_measured: bool = False


def expected_errors(
    plan: MeasurePlan, past: Mapping[str, pl.DataFrame] | None = None, *, tau: float = 5.0
) -> list[ExpectedErrors]:
    """What each table of a plan will be like.

    Args:
      plan: The measurement.
      past: Earlier numbers of the slices by query, in the column "count".
      tau: Errors are relative to max(tau, number).

    Privacy:
      `past` is read as it is: give public numbers, or those of an earlier release.
    """
    found = []
    for planned in plan.queries:
        history = (past or {}).get(planned.query.name)
        if history is not None and planned.query.has_private_keys and not history.height:
            history = None  # no slice was found then
        keys = _known_keys(planned, history)
        for noise in number_noises(planned, keys, plan.config.confidence):
            frame = rmsre = None
            if history is not None and noise.is_main:
                frame = _frame(planned, noise, history, tau)
                rmsre = root_mean_square(frame["relative_error"].to_numpy())
            expected = ExpectedErrors(
                query=planned.query.name,
                metric=noise.metric,
                level=noise.level,
                noise_stddev=float(noise.stddevs.max()),
                least_noise_stddev=float(noise.stddevs.min()),
                is_as_measured=noise.is_as_measured,
                smallest_within=smallest_count_within(_WITHIN, noise.half_width),
                slices=frame,
                rmsre=rmsre,
            )
            found.append(expected)
    return found


def number_noises(
    planned: PlannedQuery, keys: pl.DataFrame | None, confidence: float
) -> list[NumberNoise]:
    """The noise of every kind of number.

    Args:
      planned: The query.
      keys: Slices of the query, if they are known.
      confidence: Confidence of the intervals.
    """
    if isinstance(planned, ReachQuery):
        stddev, half_width = planned.reach_noise(confidence)
        return [_same("reach", stddev, half_width)]
    if isinstance(planned, FlatQuery):
        return _flat_noises(planned, confidence)
    if keys is None:
        return _measured_noises(planned, confidence)
    if planned.query.has_running_totals:
        return _day_noises(planned, keys, confidence)
    return _level_noises(planned, keys, confidence)


def _known_keys(planned: PlannedQuery, history: pl.DataFrame | None) -> pl.DataFrame | None:
    """The slices that there will be, or were before; None if nobody can tell."""
    query = planned.query
    if query.keys is not None or history is None or not query.slices:
        return query.keys
    return history.select([column.name for column in query.slices]).cast(pl.String)


def _frame(
    planned: PlannedQuery, noise: NumberNoise, history: pl.DataFrame, tau: float
) -> pl.DataFrame:
    query = planned.query
    keys = _known_keys(planned, history)
    if keys is None:
        counts = np.array([float(history["count"].sum())])
    else:
        counts = history_counts(query, keys, history)
    if noise.slices is not None:
        keys, counts = noise.slices, noise.totals(counts)
    stddevs: FloatArray = np.broadcast_to(noise.stddevs, counts.shape)
    errors = expected_relative_errors(counts, stddevs**2, tau=tau)
    figures = {"expected": counts, "noise_stddev": stddevs, "relative_error": errors}
    columns = [pl.Series(name, values) for name, values in figures.items()]
    return pl.DataFrame(columns) if keys is None else keys.hstack(columns)


def _same(metric: str, stddev: float, half_width: float, *, is_main: bool = True) -> NumberNoise:
    return NumberNoise(
        metric=metric, stddevs=np.array([stddev]), half_width=half_width, is_main=is_main
    )


def _level_noises(planned: TreeQuery, keys: pl.DataFrame, confidence: float) -> list[NumberNoise]:
    tree = planned.tree(keys)
    stddevs = np.sqrt(planned.node_variances(tree))
    slices = keys if tree.keys is None else tree.keys

    def totals(nodes: slice, leaf_counts: FloatArray) -> FloatArray:
        return np.asarray(tree.node_totals(leaf_counts), np.float64)[nodes]

    return [
        NumberNoise(
            metric=planned.job.amounts[0].name,
            stddevs=stddevs[nodes],
            half_width=float(planned.half_widths(stddevs[nodes], confidence).max()),
            level=name,
            slices=slices[nodes],
            totals=functools.partial(totals, nodes),
        )
        for name, nodes in zip(_level_names(planned), tree.level_slices, strict=True)
    ]


def _day_noises(planned: TreeQuery, keys: pl.DataFrame, confidence: float) -> list[NumberNoise]:
    tree, metric = planned.tree(keys), planned.job.amounts[0].name
    stddevs = np.sqrt(planned.node_variances(tree)[tree.leaf_nodes])
    running = np.sqrt(planned.running_variances(tree))
    return [
        NumberNoise(
            metric=name,
            stddevs=found,
            half_width=float(planned.half_widths(found, confidence).max()),
            is_main=name == metric,
        )
        for name, found in ((metric, stddevs), (f"running {metric}", running))
    ]


def _measured_noises(planned: TreeQuery, confidence: float) -> list[NumberNoise]:
    found = []
    for level, name in enumerate(_level_names(planned)):
        noise = planned.measured_noise(level, confidence)
        if noise is not None:
            same = _same(planned.job.amounts[0].name, *noise)
            found.append(dataclasses.replace(same, level=name, is_as_measured=True))
    return found


def _level_names(planned: TreeQuery) -> list[str]:
    levels = planned.query.levels
    return (
        [] if levels is None else ["+".join(columns) or TOTAL_LEVEL for columns in levels.columns]
    )


def _flat_noises(planned: FlatQuery, confidence: float) -> list[NumberNoise]:
    noise, job = planned.main.noise, planned.main.job
    is_average = planned.query.quantity is Quantity.AVERAGE
    found = []
    if is_average:
        num_parts = len(job.amount_names)
        stddev = noise.noise_stddev * math.sqrt(num_parts) / job.steps
        half_width = noise.sum_half_width(num_parts, confidence) / job.steps
        found.append(_same("conversions", stddev, half_width))
    for part in [planned.main] if planned.base is None else [planned.main, planned.base]:
        for amount in part.job.amounts:
            size = amount.clip / amount.share / part.job.steps
            stddev, half_width = part.noise.noise_stddev, part.noise.half_width(confidence)
            is_main = part is planned.main and not is_average
            found.append(_same(amount.name, stddev * size, half_width * size, is_main=is_main))
    return found
