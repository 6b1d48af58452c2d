"""The best linear unbiased estimate of every node of a tree, in two passes.

Each node was measured with noise of its own variance, or not at all. Upwards, a node's own
measurement is merged with the sum of its children's merged ones, each weighted by the other's
variance. Downwards, what a parent's final estimate differs from that sum is shared out among its
children in proportion to their merged variances. The result is generalised least squares under
the constraint that children add up to their parent, exactly, for any tree and any variances
(Hay et al. 2010 for equal variances and complete trees).

With a child's share a = v / S, v its merged variance and S their sum over the children of p,
x_child = a * x_p + e with e = z_child - a * s_p. The errors e of different groups of siblings are
uncorrelated with each other and with x_p, which gives the variance of every weighted sum of nodes
in one pass too. After consistency a running total is the sum of its days, whatever nodes it could
be put together from.

Where noise differs by level only, the variance of a node's estimate depends on the shape of the
tree around it and not on data. Nodes with subtrees of equal shape under parents that are alike are
alike, so that large trees cost little to plan for: a regular tree with a million leaves has one
group of alike nodes for each level.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.measure.trees.slice_tree import NO_PARENT, FloatArray, IntArray, SliceTree

BoolArray = npt.NDArray[np.bool_]
_Words = npt.NDArray[np.uint64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TreeEstimate:
    """Unbiased estimates that add up, with the exact variances of their noise."""

    tree: SliceTree
    values: FloatArray
    """[nodes]"""
    variances: FloatArray
    """[nodes]"""
    noise_variances: FloatArray
    """[nodes], of what the estimate was made from; infinite where nothing was measured."""
    noisy_totals: FloatArray
    """[nodes], what the estimate was made from; not a number where nothing was measured."""

    def variance_of(self, weights: npt.ArrayLike) -> float:
        """The variance of the sum of weights * values, [nodes] each."""
        return combination_variance(self.tree, self.noise_variances, weights)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunningTotal:
    """The total of all days up to one, with the variance of its noise."""

    value: float
    variance: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AlikeNodes:
    """The groups of a tree, which make a tree themselves."""

    tree: SliceTree
    """One node for each group."""
    copies: IntArray
    """[groups], how many nodes of the group each parent has."""
    groups: IntArray
    """[nodes of the original tree], the group of each."""


def consistent_estimate(
    tree: SliceTree, noisy_totals: npt.ArrayLike, variances: npt.ArrayLike
) -> TreeEstimate:
    """The estimate with the least variance at every node, among the linear unbiased ones.

    Args:
      tree: The tree.
      noisy_totals: [nodes], one noisy total for each node; not read where not measured.
      variances: [nodes], > 0, of the noise of each; infinite for a node that was not measured.
        Noise of different nodes is independent.

    Privacy:
      Post-processing of noisy totals: it costs nothing.
    """
    known_variances = checked_variances(tree, variances)
    noisy = np.asarray(noisy_totals, dtype=np.float64)
    if noisy.shape != (tree.num_nodes,):
        raise DataError(f"noisy totals have shape {noisy.shape}, not one for each node of a tree.")
    if not np.all(np.isfinite(noisy[np.isfinite(known_variances)])):
        raise DataError("noisy totals have a node that was measured and is not a finite number.")
    final_variances = consistent_variances(tree, known_variances)
    if num_unknown := int(np.sum(np.isinf(final_variances))):
        raise ConfigError(
            f"{num_unknown} of {tree.num_nodes} nodes cannot be estimated: neither they nor enough "
            "of the nodes around them were measured. Give their level a share of the budget."
        )
    return TreeEstimate(
        tree=tree,
        values=least_squares(tree, noisy, known_variances),
        variances=final_variances,
        noise_variances=known_variances,
        noisy_totals=np.where(np.isfinite(known_variances), noisy, np.nan),
    )


def consistent_variances(
    tree: SliceTree, variances: npt.ArrayLike, *, copies: IntArray | None = None
) -> FloatArray:
    """[nodes], the variance of each node's estimate; infinite where there is none.

    Depends on no data, so it can be computed before anything is spent.

    Args:
      tree: The tree.
      variances: [nodes], of the noise of each node, as in `consistent_estimate`.
      copies: [nodes], how many siblings that are alike a node stands for; see `alike_nodes`.
    """
    merge = _Merge(tree, checked_variances(tree, variances), copies)
    final = merge.variances.copy()
    for nodes in tree.level_slices[1:]:
        parents, is_child, share = merge.children(nodes)
        own = merge.variances[nodes][is_child]
        # v - a^2 S + a^2 f, or for the one child without any measurement S of the others + f.
        inside = merge.finite_sums[parents]
        np.multiply(own, 1 - share, out=inside, where=np.isfinite(own))
        from_above = np.zeros_like(inside)
        np.multiply(share**2, final[parents], out=from_above, where=share > 0)
        is_hopeless = np.isinf(own) & (merge.num_unmeasured[parents] > 1)
        level_final = final[nodes]
        level_final[is_child] = np.where(is_hopeless, np.inf, inside + from_above)
    return final


def combination_variance(
    tree: SliceTree, variances: npt.ArrayLike, weights: npt.ArrayLike
) -> float:
    """The variance of a weighted sum of the consistent estimates of nodes.

    Args:
      tree: The tree.
      variances: [nodes], of the noise of each node, as in `consistent_estimate`.
      weights: [nodes], e.g. 1 for each day of a running total and else 0.
    """
    known_variances = checked_variances(tree, variances)
    merge = _Merge(tree, known_variances)
    carried = np.array(weights, dtype=np.float64)
    if carried.shape != (tree.num_nodes,):
        raise DataError(f"weights have shape {carried.shape}, not one for each node of the tree.")
    final = consistent_variances(tree, known_variances)
    if np.any(np.isinf(final[carried != 0])):
        return float("inf")
    total = 0.0
    for nodes in reversed(tree.level_slices):
        parents, is_child, share = merge.children(nodes)
        weight = carried[nodes][is_child]
        mean = np.bincount(parents, weights=share * weight, minlength=tree.num_nodes)
        own = merge.variances[nodes][is_child]
        is_measured = np.isfinite(own)
        deviation = (weight - mean[parents])[is_measured]
        total += float(np.sum(own[is_measured] * deviation**2))
        carried += mean
        roots = np.flatnonzero(~is_child) + nodes.start
        roots = roots[carried[roots] != 0]
        total += float(np.sum(merge.variances[roots] * carried[roots] ** 2))
    return total


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


def least_squares(tree: SliceTree, noisy: FloatArray, variances: FloatArray) -> FloatArray:
    """[nodes], the values of the estimate. A leaf of variance 0 keeps its value as it is.

    Args:
      tree: The tree.
      noisy: Noisy totals of all nodes.
      variances: Variances of their noise; infinite for a node that was not measured.

    Privacy:
      Post-processing of noisy totals.
    """
    merge = _Merge(tree, variances)
    values = np.where(merge.own_weights > 0, noisy, 0.0) * merge.own_weights
    sums = np.zeros(tree.num_nodes)
    for nodes in reversed(tree.level_slices):
        values[nodes] += (1 - merge.own_weights[nodes]) * sums[nodes]
        values[nodes][np.isinf(merge.variances[nodes])] = 0.0
        parents, is_child, _ = merge.children(nodes)
        np.add.at(sums, parents, values[nodes][is_child])
    for nodes in tree.level_slices[1:]:
        parents, is_child, share = merge.children(nodes)
        level_values = values[nodes]
        level_values[is_child] += share * (values[parents] - sums[parents])
    return values


def checked_variances(tree: SliceTree, variances: npt.ArrayLike) -> FloatArray:
    """The variances as an array, if there is one > 0 for each node."""
    known = np.asarray(variances, dtype=np.float64)
    if known.shape != (tree.num_nodes,):
        raise DataError(f"variances have shape {known.shape}, not one for each node of the tree.")
    if not np.all(known > 0):
        raise ConfigError(
            f"variances must be > 0, the least is {np.min(known)}; use infinity for nodes that "
            "were not measured."
        )
    return known


def group_alike(tree: SliceTree) -> AlikeNodes:
    """The groups of nodes that are alike. Shapes are compared by 64-bit hashes."""
    shapes = _shape_hashes(tree)
    groups = np.zeros(tree.num_nodes, dtype=np.int64)
    num_groups = 0
    for nodes in tree.level_slices:
        level_parents = tree.parents[nodes]
        above = np.where(level_parents == NO_PARENT, NO_PARENT, groups[level_parents])
        distinct_shapes, shape_numbers = np.unique(shapes[nodes], return_inverse=True)
        pairs = (above + 1) * len(distinct_shapes) + shape_numbers
        distinct_pairs, places = np.unique(pairs, return_inverse=True)
        groups[nodes] = num_groups + places
        num_groups += len(distinct_pairs)
    firsts = np.unique(groups, return_index=True)[1]
    sizes = np.bincount(groups)
    first_parents = tree.parents[firsts]
    is_root = first_parents == NO_PARENT
    parents = np.where(is_root, NO_PARENT, groups[first_parents])
    return AlikeNodes(
        tree=SliceTree(
            parents=parents,
            levels=tree.levels[firsts],
            leaf_nodes=np.setdiff1d(np.arange(num_groups), parents),
        ),
        copies=np.where(is_root, 1, sizes // sizes[parents]),
        groups=groups,
    )


class _Merge:
    """The upward pass for variances: nothing in it depends on measured values."""

    def __init__(
        self, tree: SliceTree, variances: FloatArray, copies: IntArray | None = None
    ) -> None:
        self._tree = tree
        self._copies = np.ones(tree.num_nodes, dtype=np.int64) if copies is None else copies
        self.variances = variances.copy()
        """[nodes], of a node's measurement merged with all those below it."""
        self.own_weights = np.isfinite(variances).astype(np.float64)
        """[nodes], of a node's own measurement in the merged one; the rest is its children's."""
        self.finite_sums = np.zeros(tree.num_nodes)
        """[nodes], merged variances of the children that were measured, added up."""
        self.num_unmeasured = np.zeros(tree.num_nodes, dtype=np.int64)
        """[nodes], children about which nothing at or below them is known."""
        for nodes in reversed(tree.level_slices):
            self._merge_children(nodes, tree.num_children[nodes] > 0)
            self._add_to_parents(nodes)

    def children(self, nodes: slice) -> tuple[IntArray, BoolArray, FloatArray]:
        """Parents of the nodes of a level that have one, which nodes those are, and their shares.

        A share is the part of a parent's difference to its children's sum that a child takes.
        """
        level_parents = self._tree.parents[nodes]
        is_child = level_parents != NO_PARENT
        parents = level_parents[is_child]
        own = self.variances[nodes][is_child]
        sums = np.where(self.num_unmeasured[parents] > 0, np.inf, self.finite_sums[parents])
        share = np.isinf(own).astype(np.float64)
        # Where all siblings are known exactly there is no difference to share out.
        np.divide(own, sums, out=share, where=np.isfinite(own) & (sums > 0))
        return parents, is_child, share

    def _merge_children(self, nodes: slice, is_inner: BoolArray) -> None:
        own = self.variances[nodes][is_inner]
        below = self.finite_sums[nodes][is_inner]
        is_known_below = self.num_unmeasured[nodes][is_inner] == 0
        weight = np.isfinite(own).astype(np.float64)
        is_both = is_known_below & np.isfinite(own)
        np.divide(below, own + below, out=weight, where=is_both)
        merged = np.where(is_known_below, below, own)
        np.multiply(own, weight, out=merged, where=is_both)
        self.variances[nodes][is_inner] = merged
        self.own_weights[nodes][is_inner] = weight

    def _add_to_parents(self, nodes: slice) -> None:
        level_parents = self._tree.parents[nodes]
        is_child = level_parents != NO_PARENT
        parents, own = level_parents[is_child], self.variances[nodes][is_child]
        copies = self._copies[nodes][is_child]
        is_measured = np.isfinite(own)
        np.add.at(self.finite_sums, parents[is_measured], (copies * own)[is_measured])
        np.add.at(self.num_unmeasured, parents[~is_measured], copies[~is_measured])


def _shape_hashes(tree: SliceTree) -> _Words:
    """[nodes], equal for subtrees that are equal up to the order of children."""
    sums = np.zeros(tree.num_nodes, dtype=np.uint64)
    for nodes in reversed(tree.level_slices):
        sums[nodes] = _mixed(sums[nodes])
        level_parents = tree.parents[nodes]
        is_child = level_parents != NO_PARENT
        np.add.at(sums, level_parents[is_child], sums[nodes][is_child])
    return sums


def _mixed(words: _Words) -> _Words:
    """Steele, Lea, Flood 2014: the finaliser of SplitMix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: _Words = words ^ (words >> np.uint64(31))
    return mixed
