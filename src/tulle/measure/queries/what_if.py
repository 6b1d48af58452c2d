"""What error to expect of every number, before anything is spent.

Noise follows from the plan alone. Relative errors also need an idea of the counts: those of an
earlier release, or public ones. Bounds cut off what units have beyond them; that bias is not in
these figures, because no public count tells it.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import polars as pl

from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.queries.answer_table import FloatArray
from tulle.measure.queries.flat_query import FlatQuery
from tulle.measure.queries.level_shares import history_counts
from tulle.measure.queries.measure_plan import MeasurePlan
from tulle.measure.queries.planning import PlannedQuery
from tulle.measure.queries.query import Quantity
from tulle.measure.queries.reach_query import ReachQuery
from tulle.measure.queries.tree_query import TreeQuery


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExpectedErrors:
    """One kind of number of a query, over its slices. Public if the counts are."""

    query: str
    number: str
    noise_stddev: float
    """Of one slice; of a hierarchy, of a leaf as measured."""
    smallest_within: float
    """The least number that is off by 10% at most, with the plan's confidence."""
    slices: pl.DataFrame | None = None
    """Slices with the columns expected, noise_stddev and relative_error; None without counts."""
    rmsre: float | None = None
    """Root of the mean squared relative error over all slices."""


def expected_errors(
    plan: MeasurePlan, past: Mapping[str, pl.DataFrame] | None = None, *, tau: float = 5.0
) -> list[ExpectedErrors]:
    """What each table of a plan will be like.

    Args:
      plan: The measurement.
      past: By query: earlier numbers of its slices in the column "count".
      tau: Errors are relative to max(tau, number).

    Privacy:
      `past` is read as it is: give public numbers, or those of an earlier release.
    """
    found = []
    confidence = plan.config.confidence
    for planned in plan.queries:
        history = (past or {}).get(planned.query.name)
        for noise in _number_noises(planned, confidence):
            frame = None
            if history is not None and noise.is_main:
                frame = _frame(planned, noise, history, tau)
            found.append(
                ExpectedErrors(
                    query=planned.query.name,
                    number=noise.number,
                    noise_stddev=noise.stddev,
                    smallest_within=math.ceil(noise.half_width / 0.1),
                    slices=frame,
                    rmsre=None
                    if frame is None
                    else root_mean_square(frame["relative_error"].to_numpy()),
                )
            )
    return found


@dataclasses.dataclass(frozen=True)
class _NumberNoise:
    number: str
    stddev: float
    half_width: float
    is_main: bool
    """Whether earlier numbers of the query are of this kind."""


def _number_noises(planned: PlannedQuery, confidence: float) -> list[_NumberNoise]:
    if isinstance(planned, ReachQuery):
        stddev, half_width = planned.reach_noise(confidence)
        return [_NumberNoise("reach", stddev, half_width, True)]
    if isinstance(planned, TreeQuery):
        number, size = planned.job.amounts[0].name, planned.job.amounts[0].clip
        leaf = planned.level_noise[-1]
        if leaf is None:  # a plan always measures its leaves; a day tree has one level at least
            return []
        size /= planned.job.steps
        return [
            _NumberNoise(number, leaf.noise_stddev * size, leaf.half_width(confidence) * size, True)
        ]
    return _flat_noises(planned, confidence)


def _flat_noises(planned: FlatQuery, confidence: float) -> list[_NumberNoise]:
    found = []
    main = planned.main
    per_step = 1 / main.job.steps
    if planned.query.quantity is Quantity.AVERAGE:
        num_parts = len(main.job.amount_names)
        stddev = main.noise.noise_stddev * math.sqrt(num_parts) * per_step
        half_width = main.noise.sum_half_width(num_parts, confidence) * per_step
        found.append(_NumberNoise("conversions", stddev, half_width, True))
    for amount in main.job.amounts:
        size = amount.clip / amount.share * per_step
        is_main = planned.query.quantity is not Quantity.AVERAGE
        stddev, half_width = main.noise.noise_stddev, main.noise.half_width(confidence)
        found.append(_NumberNoise(amount.name, stddev * size, half_width * size, is_main))
    if planned.base is not None:
        noise, per_step = planned.base.noise, 1 / planned.base.job.steps
        half_width = noise.half_width(confidence) * per_step
        found.append(_NumberNoise("impressions", noise.noise_stddev * per_step, half_width, False))
    return found


def _frame(
    planned: PlannedQuery, noise: _NumberNoise, history: pl.DataFrame, tau: float
) -> pl.DataFrame:
    query = planned.query
    names = [column.name for column in query.slices]
    keys = query.keys if query.keys is not None else history.select(names).cast(pl.String)
    if names:
        counts = history_counts(query, keys, history)
    else:
        counts = np.array([float(history["count"].sum())])
    stddevs = np.full(len(counts), noise.stddev)
    if isinstance(planned, TreeQuery) and query.levels is not None:
        keys, counts, stddevs = _tree_figures(planned, keys, counts)
    errors = expected_relative_errors(counts, stddevs**2, tau=tau)
    figures = {"expected": counts, "noise_stddev": stddevs, "relative_error": errors}
    columns = [pl.Series(name, values) for name, values in figures.items()]
    return keys.hstack(columns) if names else pl.DataFrame(columns)


def _tree_figures(
    planned: TreeQuery, keys: pl.DataFrame, counts: FloatArray
) -> tuple[pl.DataFrame, FloatArray, FloatArray]:
    tree = planned.tree(keys)
    totals = np.asarray(tree.node_totals(counts), np.float64)
    stddevs = np.sqrt(planned.node_variances(tree))
    return (keys if tree.keys is None else tree.keys), totals, stddevs
