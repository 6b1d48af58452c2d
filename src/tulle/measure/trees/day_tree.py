"""A tree over consecutive days, for totals from the first day up to any other.

Days are grouped by `branching`, such groups again, and so on; only groups that are full make a
node. A unit of one day is then in few nodes, and a running total is a sum of few of them. After
consistency a running total is the sum of its days, whatever nodes it could be put together from.
"""

import dataclasses

import numpy as np

from tulle.errors import ConfigError
from tulle.measure.trees.consistency import TreeEstimate
from tulle.measure.trees.slice_tree import NO_PARENT, FloatArray, IntArray, SliceTree
from tulle.privacy.fields import check_count


def day_tree(num_days: int, *, branching: int = 2) -> SliceTree:
    """The tree of `num_days` days; its leaves are the days in their order."""
    check_count("num_days", num_days)
    check_count("branching", branching, least=2)
    sizes = [num_days]
    while sizes[-1] >= branching:
        sizes.append(sizes[-1] // branching)
    sizes.reverse()
    starts = np.concatenate([[0], np.cumsum(sizes)])
    parents = [np.full(sizes[0], NO_PARENT, dtype=np.int64)]
    for level in range(1, len(sizes)):
        above = np.arange(sizes[level]) // branching
        is_full = above < sizes[level - 1]
        parents.append(np.where(is_full, starts[level - 1] + above, NO_PARENT))
    return SliceTree(
        parents=np.concatenate(parents).astype(np.int64),
        levels=np.repeat(np.arange(len(sizes)), sizes).astype(np.int64),
        leaf_nodes=np.arange(starts[-2], starts[-1]),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunningTotal:
    """The total of all days up to one, with the variance of its noise."""

    value: float
    variance: float


def running_total(estimate: TreeEstimate, day: int) -> RunningTotal:
    """The total of days 0 to `day`, `day` included.

    Privacy:
      Post-processing of noisy totals.
    """
    num_days = len(estimate.tree.leaf_nodes)
    if not 0 <= day < num_days:
        raise ConfigError(f"day={day} must be from 0 to {num_days - 1}, the last of the tree.")
    weights = np.zeros(estimate.tree.num_nodes)
    weights[estimate.tree.leaf_nodes[: day + 1]] = 1.0
    return RunningTotal(
        value=float(weights @ estimate.values), variance=estimate.variance_of(weights)
    )


def running_totals(estimate: TreeEstimate) -> tuple[FloatArray, FloatArray]:
    """[days], the running total of each day, and its variance.

    Privacy:
      Post-processing of noisy totals.
    """
    days: IntArray = estimate.tree.leaf_nodes
    # Values add up in one pass; each variance is a pass of its own over the tree.
    variances = [running_total(estimate, day).variance for day in range(len(days))]
    return np.cumsum(estimate.values[days]), np.array(variances)
