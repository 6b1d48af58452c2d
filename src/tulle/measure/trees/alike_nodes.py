"""Nodes that must have the same variance, grouped, so that large trees cost little to plan for.

Where noise differs by level only, the variance of a node's estimate depends on the shape of the
tree around it and not on data. Nodes with subtrees of equal shape under parents that are
alike are alike. A regular tree with a million leaves has one group for each level.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.measure.trees.slice_tree import NO_PARENT, IntArray, SliceTree

_Words = npt.NDArray[np.uint64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AlikeNodes:
    """The groups of a tree, which make a tree themselves."""

    tree: SliceTree
    """One node for each group."""
    copies: IntArray
    """[groups], how many nodes of the group each parent has."""
    groups: IntArray
    """[nodes of the original tree], the group of each."""


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
