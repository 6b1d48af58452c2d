"""Totals that add up and are never below zero: least squares with both constraints, exactly.

Noise makes small totals negative. Here the leaves are the closest ones >= 0, by the same weighted
squares as the unbiased estimate. The result is easier to use and BIASED: small totals come out too
large on average, and large ones too small to make up for it. Intervals belong to the unbiased
estimate, so that one is kept beside it.

The least cost F(t) of a subtree whose top is t is convex and piecewise quadratic. Let t(m) be the
top at which its slope is m: zero below the first break, then linear between breaks. Siblings share
one slope, so their t(m) add up; a parent measured as y with variance v moves a break from slope m
to m + (t - y) / v. Every leaf brings one break, at -y / v. Going up, breaks are merged and moved;
at a root the slope is 0; going down, each node reads its children's slope from its breaks.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.measure.trees.consistency import TreeEstimate, consistent_estimate, least_squares
from tulle.measure.trees.slice_tree import NO_PARENT, FloatArray, IntArray, SliceTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NonnegativeEstimate:
    """Totals >= 0 that add up, beside the unbiased ones they were made from."""

    values: FloatArray
    """[nodes], >= 0 and biased."""
    unbiased: TreeEstimate
    """Unbiased estimate, which may be negative; its variances make the intervals."""


def nonnegative_estimate(
    tree: SliceTree, noisy_totals: npt.ArrayLike, variances: npt.ArrayLike
) -> NonnegativeEstimate:
    """The totals >= 0 that add up and have the least weighted squares to the noisy ones.

    Args:
      tree: The tree.
      noisy_totals: [nodes], as in `consistent_estimate`.
      variances: [nodes], as in `consistent_estimate`.

    Privacy:
      Post-processing of noisy totals: it costs nothing.
    """
    unbiased = consistent_estimate(tree, noisy_totals, variances)
    known = unbiased.noise_variances
    noisy = np.where(np.isfinite(known), np.asarray(noisy_totals, dtype=np.float64), 0.0)
    is_leaf = tree.num_children == 0
    if np.all(unbiased.values[is_leaf] >= 0):
        return NonnegativeEstimate(values=unbiased.values, unbiased=unbiased)
    slopes = _slopes(tree, noisy, known)
    # A leaf without measurement is above zero where more of it costs nothing.
    is_zero = np.where(np.isinf(known), slopes < 0, noisy + _times(known, slopes) <= 0) & is_leaf
    # Which leaves are zero is all that the slopes are needed for: with these fixed, the two
    # passes of the plain estimate give the others to full precision.
    fixed = least_squares(tree, np.where(is_zero, 0.0, noisy), np.where(is_zero, 0.0, known))
    leaves = np.maximum(fixed[tree.leaf_nodes], 0.0)
    return NonnegativeEstimate(
        values=tree.node_totals(leaves).astype(np.float64), unbiased=unbiased
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Breaks:
    """Breaks of the nodes of one level, sorted by node and then by slope of the children."""

    nodes: IntArray
    child_slopes: FloatArray
    """Slope of the children at the break."""
    own_slopes: FloatArray
    """Slope of the node at the break."""
    gains: FloatArray
    """How much t rises with the children's slope after the break."""
    own_gains: FloatArray
    """How much t rises with the node's slope after the break."""


def _slopes(tree: SliceTree, noisy: FloatArray, variances: FloatArray) -> FloatArray:
    """[nodes], the slope of the cost of each node's subtree at the solution."""
    levels = _breaks_by_level(tree, noisy, variances)
    slopes, child_slopes = np.zeros(tree.num_nodes), np.zeros(tree.num_nodes)
    for nodes, breaks in zip(tree.level_slices, levels, strict=True):
        level_parents = tree.parents[nodes]
        is_child = level_parents != NO_PARENT
        slopes[nodes][is_child] = child_slopes[level_parents[is_child]]
        inner = np.flatnonzero(tree.num_children[nodes]) + nodes.start
        child_slopes[inner] = _slopes_of_children(inner, slopes, breaks, noisy, variances)
    return slopes


def _slopes_of_children(
    inner: IntArray,
    slopes: FloatArray,
    breaks: _Breaks,
    noisy: FloatArray,
    variances: FloatArray,
) -> FloatArray:
    """Reads the slope below each inner node of a level from its breaks."""
    is_passed = breaks.own_slopes <= slopes[breaks.nodes]
    num_passed = np.bincount(breaks.nodes, weights=is_passed, minlength=len(slopes))[inner]
    last = np.searchsorted(breaks.nodes, inner) + np.maximum(num_passed.astype(np.int64) - 1, 0)
    own, spread = slopes[inner], variances[inner]
    ratio = np.zeros(len(inner))
    np.divide(breaks.gains[last], spread, out=ratio, where=np.isfinite(spread))
    after_break = breaks.child_slopes[last] + (own - breaks.own_slopes[last]) / (1 + ratio)
    # Before the first break the top is zero. A node that was not measured adds no cost.
    before_any = own + noisy[inner] / spread
    below = np.where(num_passed > 0, after_break, before_any)
    return np.where(np.isinf(spread), own, below)


def _breaks_by_level(tree: SliceTree, noisy: FloatArray, variances: FloatArray) -> list[_Breaks]:
    """The breaks of each level, from the top."""
    found: list[_Breaks] = []
    for nodes in reversed(tree.level_slices):
        leaves = np.flatnonzero(tree.num_children[nodes] == 0) + nodes.start
        breaks = _leaf_breaks(leaves, noisy, variances)
        if found:
            breaks = _joined(breaks, _inner_breaks(tree, found[-1], noisy, variances))
        found.append(breaks)
    return found[::-1]


def _leaf_breaks(leaves: IntArray, noisy: FloatArray, variances: FloatArray) -> _Breaks:
    starts = -noisy[leaves] / variances[leaves]
    return _Breaks(
        nodes=leaves,
        child_slopes=starts,
        own_slopes=starts,
        own_gains=variances[leaves],
        gains=variances[leaves],
    )


def _inner_breaks(
    tree: SliceTree, below: _Breaks, noisy: FloatArray, variances: FloatArray
) -> _Breaks:
    """Breaks of parents, from those of their children."""
    parents = tree.parents[below.nodes]
    order = np.lexsort((below.own_slopes, parents))
    order = order[parents[order] != NO_PARENT]
    gains = _sums_within(_steps_within(below.own_gains, below.nodes)[order], parents[order])
    # Where t rises without limit, later breaks are never reached.
    is_reached = np.append(True, ~_is_next_same(parents[order]) | np.isfinite(gains[:-1]))
    order, gains = order[is_reached], gains[is_reached]
    nodes, slopes = parents[order], below.own_slopes[order]
    widths = np.where(_is_next_same(nodes), np.diff(slopes), 0.0)
    rises = np.append(0.0, _times(gains[:-1], widths))
    tops = _sums_within(rises, nodes)
    spread = variances[nodes]
    flatness = 1 / gains + 1 / spread
    own_gains = np.full(len(nodes), np.inf)
    np.divide(1.0, flatness, out=own_gains, where=flatness > 0)
    return _Breaks(
        nodes=nodes,
        child_slopes=slopes,
        own_slopes=slopes + (tops - noisy[nodes]) / spread,
        own_gains=own_gains,
        gains=gains,
    )


def _joined(first: _Breaks, second: _Breaks) -> _Breaks:
    """Breaks of different nodes in one table, in the order of the nodes."""
    order = np.argsort(np.concatenate([first.nodes, second.nodes]), kind="stable")
    columns = {
        field.name: np.concatenate([getattr(first, field.name), getattr(second, field.name)])[order]
        for field in dataclasses.fields(_Breaks)
    }
    return _Breaks(**columns)


def _is_next_same(groups: IntArray) -> npt.NDArray[np.bool_]:
    is_same: npt.NDArray[np.bool_] = groups[1:] == groups[:-1]
    return is_same


def _steps_within(values: FloatArray, groups: IntArray) -> FloatArray:
    """How much each value is above the one before it in its group; the first: above zero."""
    before = np.append(0.0, np.where(_is_next_same(groups), values[:-1], 0.0))
    steps: FloatArray = values - before
    return steps


def _sums_within(steps: FloatArray, groups: IntArray) -> FloatArray:
    """Running sums within each group; infinite from the first infinite step on."""
    is_infinite = np.isinf(steps)
    firsts = np.append(0, np.flatnonzero(~_is_next_same(groups)) + 1)
    sizes = np.diff(np.append(firsts, len(groups)))
    sums = np.cumsum(np.where(is_infinite, 0.0, steps))
    infinities = np.cumsum(is_infinite)
    sums -= np.repeat(np.append(0.0, sums[firsts[1:] - 1]), sizes)
    infinities -= np.repeat(np.append(0, infinities[firsts[1:] - 1]), sizes)
    return np.where(infinities > 0, np.inf, sums)


def _times(factors: FloatArray, values: FloatArray) -> FloatArray:
    """factors * values, with infinity * 0 = 0."""
    product = np.zeros(len(values))
    np.multiply(factors, values, out=product, where=values != 0)
    return product
