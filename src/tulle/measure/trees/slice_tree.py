"""A tree of slices: what a node counts is the sum of what its children count.

Nodes are kept in arrays, level by level from the top, so that parents come before their
children and a pass over the tree is a few numpy calls for each level. The tree may be irregular:
any number of children, roots and leaves at any level.

Consecutive days are grouped by `branching`, such groups again, and so on; only groups that are full
make a node. A unit of one day is then in few nodes, and a running total is a sum of few of them.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
NO_PARENT = -1
"""The parent of a node at the top."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SliceTree:
    """Nodes of a tree, or of several beside one another. The keys are public."""

    parents: IntArray
    """[nodes], the parent of each node, NO_PARENT for a root."""
    levels: IntArray
    """[nodes], from 0 on, never falling; a parent is one level above its children."""
    leaf_nodes: IntArray
    """[leaves], the node of each leaf, in the order in which leaf values are given."""
    keys: pl.DataFrame | None = None
    """The key of each node, null in columns that its level does not have."""

    def __post_init__(self) -> None:
        if len(self.parents) == 0 or len(self.levels) != len(self.parents):
            raise ConfigError("a tree needs at least one node, and a parent and a level for each.")
        children = np.flatnonzero(self.parents != NO_PARENT)
        parents = self.parents[children]
        if self.levels[0] != 0 or not np.all(np.isin(np.diff(self.levels), (0, 1))):
            raise ConfigError(
                "nodes of a tree must be in the order of their levels, from 0 on without a gap."
            )
        if np.any((parents < 0) | (parents >= children)):
            raise ConfigError("every parent in a tree must be a node that comes before its child.")
        if np.any(self.levels[parents] + 1 != self.levels[children]):
            raise ConfigError("every parent in a tree must be one level above its children.")
        if not np.array_equal(np.sort(self.leaf_nodes), np.flatnonzero(self.num_children == 0)):
            raise ConfigError("leaf_nodes must name every node without children exactly once.")

    @classmethod
    def from_keys(cls, keys: pl.DataFrame, levels: Sequence[Sequence[str]]) -> "SliceTree":
        """The tree whose leaves are the rows of `keys`.

        Args:
          keys: One row for each leaf, one column of text for each key; no row twice.
          levels: The columns of each level from the top, e.g.
            [(), ("campaign",), ("campaign", "geo")]. Each level has all columns of the one
            above and more; the last has all columns of `keys`.
        """
        _check_levels(keys, levels)
        parents, numbers, frames = [], [], []
        above = np.zeros(keys.height, dtype=np.int64)
        num_nodes = 0
        for number, columns in enumerate(levels):
            places, first_rows = _distinct_rows(keys, columns)
            parents.append(above[first_rows] if number else np.full(len(first_rows), NO_PARENT))
            numbers.append(np.full(len(first_rows), number))
            frames.append(keys[first_rows].select(_nulls_outside(keys, columns)))
            above = num_nodes + places
            num_nodes += len(first_rows)
        return cls(
            parents=np.concatenate(parents).astype(np.int64),
            levels=np.concatenate(numbers).astype(np.int64),
            leaf_nodes=above,
            keys=pl.concat(frames),
        )

    @property
    def num_nodes(self) -> int:
        """Nodes of all levels."""
        return len(self.parents)

    @property
    def num_levels(self) -> int:
        """Levels, the one of the leaves included."""
        return int(self.levels[-1]) + 1

    @functools.cached_property
    def num_children(self) -> IntArray:
        """[nodes], children of each node."""
        is_child = self.parents != NO_PARENT
        return np.bincount(self.parents[is_child], minlength=self.num_nodes).astype(np.int64)

    @functools.cached_property
    def level_slices(self) -> tuple[slice, ...]:
        """The nodes of each level, as a slice of the arrays."""
        ends = np.searchsorted(self.levels, np.arange(self.num_levels), side="right")
        starts = np.concatenate([[0], ends[:-1]])
        return tuple(slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True))

    def node_totals(self, leaf_values: npt.ArrayLike) -> npt.NDArray[np.int64 | np.float64]:
        """[nodes, ...], the sums of leaf values under each node; whole numbers stay exact.

        Args:
          leaf_values: [leaves, ...], in the order of `leaf_nodes`.

        Privacy:
          Sums of raw values are as sensitive as the values.
        """
        values = np.asarray(leaf_values)
        if len(values) != len(self.leaf_nodes):
            raise DataError(
                f"{len(values)} leaf values for a tree with {len(self.leaf_nodes)} leaves; "
                "give one for each row of its keys."
            )
        dtype = np.int64 if values.dtype.kind in "iub" else np.float64
        totals = np.zeros((self.num_nodes, *values.shape[1:]), dtype=dtype)
        totals[self.leaf_nodes] = values
        for nodes in reversed(self.level_slices):
            parents = self.parents[nodes]
            is_child = parents != NO_PARENT
            np.add.at(totals, parents[is_child], totals[nodes][is_child])
        return totals


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


def _check_levels(keys: pl.DataFrame, levels: Sequence[Sequence[str]]) -> None:
    if keys.height == 0:
        raise DataError("a tree of slices needs at least one leaf; the table of keys is empty.")
    if not levels or set(levels[-1]) != set(keys.columns):
        raise ConfigError(
            f"the last of levels={levels!r} must have all columns of the keys: {keys.columns}."
        )
    for above, below in itertools.pairwise(levels):
        if not set(above) < set(below):
            raise ConfigError(
                f"level {tuple(below)} must have all columns of the level above, {tuple(above)}, "
                "and at least one more; order the levels from coarse to fine."
            )
    if keys.is_duplicated().any():
        raise DataError("a key is there more than once; give each leaf of the tree one row.")


def _distinct_rows(keys: pl.DataFrame, columns: Sequence[str]) -> tuple[IntArray, IntArray]:
    """The number of the key of each row, and the first row of each key."""
    if not columns:
        return np.zeros(keys.height, dtype=np.int64), np.zeros(1, dtype=np.int64)
    rows = keys.select(columns).with_row_index("")
    firsts = rows.group_by(columns, maintain_order=True).agg(pl.col("").first())
    first_rows = firsts[""].to_numpy().astype(np.int64)
    numbered = firsts.drop("").with_row_index("")
    joined = rows.drop("").join(
        numbered, on=list(columns), how="left", nulls_equal=True, maintain_order="left"
    )
    return joined[""].to_numpy().astype(np.int64), first_rows


def _nulls_outside(keys: pl.DataFrame, columns: Sequence[str]) -> list[pl.Expr]:
    return [
        pl.col(name) if name in columns else pl.lit(None, dtype=kind).alias(name)
        for name, kind in keys.schema.items()
    ]
