"""The noise of each kind of number that a planned query releases. Reads no data.

Of a hierarchy it is that of every level after all numbers add up, as the release says it; where
its slices are found privately nobody knows them yet, and it is that of each level as measured.
"""

import dataclasses
import math

import numpy as np
import polars as pl

from tulle.measure.queries.answer_table import FloatArray
from tulle.measure.queries.flat_query import FlatQuery
from tulle.measure.queries.planning import PlannedQuery
from tulle.measure.queries.query import Quantity
from tulle.measure.queries.reach_query import ReachQuery
from tulle.measure.queries.tree_query import TreeQuery
from tulle.measure.trees.slice_tree import SliceTree

TOTAL_LEVEL = "total"
"""The name of the level that is one sum of all slices."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """The slices of one level of a hierarchy."""

    tree: SliceTree
    level: slice
    slices: pl.DataFrame

    def totals(self, leaf_counts: FloatArray) -> FloatArray:
        """[nodes of the level], sums of what is below."""
        return np.asarray(self.tree.node_totals(leaf_counts), np.float64)[self.level]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NumberNoise:
    """One kind of number, over all slices or over those of one level."""

    number: str
    stddevs: FloatArray
    """[slices], or [1] if all have the same."""
    half_width: float
    """The largest."""
    is_main: bool = True
    """Whether earlier numbers of the query are of this kind."""
    level: str = ""
    nodes: Nodes | None = None
    """None if the slices are those of the query."""
    is_as_measured: bool = False


def number_noises(
    planned: PlannedQuery, keys: pl.DataFrame | None, confidence: float
) -> list[NumberNoise]:
    """The noise of every kind of number.

    Args:
      planned: The query.
      keys: Its slices, if they are known.
      confidence: Of the intervals.
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


def _same(number: str, stddev: float, half_width: float, *, is_main: bool = True) -> NumberNoise:
    return NumberNoise(
        number=number, stddevs=np.array([stddev]), half_width=half_width, is_main=is_main
    )


def _level_noises(planned: TreeQuery, keys: pl.DataFrame, confidence: float) -> list[NumberNoise]:
    tree = planned.tree(keys)
    stddevs = np.sqrt(planned.node_variances(tree))
    slices = keys if tree.keys is None else tree.keys
    return [
        NumberNoise(
            number=planned.job.amounts[0].name,
            stddevs=stddevs[nodes],
            half_width=float(planned.half_widths(stddevs[nodes], confidence).max()),
            level=name,
            nodes=Nodes(tree=tree, level=nodes, slices=slices[nodes]),
        )
        for name, nodes in zip(_level_names(planned), tree.level_slices, strict=True)
    ]


def _day_noises(planned: TreeQuery, keys: pl.DataFrame, confidence: float) -> list[NumberNoise]:
    tree, number = planned.tree(keys), planned.job.amounts[0].name
    stddevs = np.sqrt(planned.node_variances(tree)[tree.leaf_nodes])
    running = np.sqrt(planned.running_variances(tree))
    return [
        NumberNoise(
            number=name,
            stddevs=found,
            half_width=float(planned.half_widths(found, confidence).max()),
            is_main=name == number,
        )
        for name, found in ((number, stddevs), (f"running {number}", running))
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
    found = []
    main = planned.main
    per_step = 1 / main.job.steps
    if planned.query.quantity is Quantity.AVERAGE:
        num_parts = len(main.job.amount_names)
        stddev = main.noise.noise_stddev * math.sqrt(num_parts) * per_step
        half_width = main.noise.sum_half_width(num_parts, confidence) * per_step
        found.append(_same("conversions", stddev, half_width))
    for amount in main.job.amounts:
        size = amount.clip / amount.share * per_step
        is_main = planned.query.quantity is not Quantity.AVERAGE
        stddev, half_width = main.noise.noise_stddev, main.noise.half_width(confidence)
        found.append(_same(amount.name, stddev * size, half_width * size, is_main=is_main))
    if planned.base is not None:
        noise, per_step = planned.base.noise, 1 / planned.base.job.steps
        half_width = noise.half_width(confidence) * per_step
        stddev = noise.noise_stddev * per_step
        found.append(_same("impressions", stddev, half_width, is_main=False))
    return found
