import numpy as np
import polars as pl

from tulle.measure.trees.alike_nodes import group_alike
from tulle.measure.trees.consistency import consistent_variances
from tulle.measure.trees.day_tree import day_tree
from tulle.measure.trees.slice_tree import SliceTree
from unit.measure.trees.dense_trees import random_tree, regular_tree


def test_variances_of_groups_are_those_of_their_nodes() -> None:
    rng = np.random.default_rng(81)
    num_smaller = 0
    for _ in range(200):
        tree = random_tree(rng)
        by_level = rng.uniform(0.5, 2, tree.num_levels)
        by_level[rng.random(tree.num_levels) < 0.3] = np.inf
        alike = group_alike(tree)
        found = consistent_variances(alike.tree, by_level[alike.tree.levels], copies=alike.copies)
        expected = consistent_variances(tree, by_level[tree.levels])
        np.testing.assert_allclose(found[alike.groups], expected, rtol=1e-12)
        num_smaller += alike.tree.num_nodes < tree.num_nodes
    assert num_smaller > 100


def test_a_regular_tree_has_one_group_for_each_level() -> None:
    alike = group_alike(regular_tree(5, 3, 7))
    assert alike.tree.parents.tolist() == [-1, 0, 1, 2]
    assert alike.copies.tolist() == [1, 5, 3, 7]


def test_nodes_are_not_alike_where_their_siblings_are_not() -> None:
    # Campaigns b and c have one geo each, a has two: leaves of a differ from those of b and c.
    keys = pl.DataFrame({"campaign": ["a", "a", "b", "c"], "geo": ["x", "y", "x", "x"]})
    tree = SliceTree.from_keys(keys, [(), ("campaign",), ("campaign", "geo")])
    groups = group_alike(tree).groups
    leaves = groups[tree.leaf_nodes]
    assert leaves[0] == leaves[1]
    assert leaves[2] == leaves[3]
    assert leaves[0] != leaves[2]


def test_roots_below_the_top_are_groups_of_their_own() -> None:
    alike = group_alike(day_tree(7))
    assert alike.groups[-1] not in alike.groups[:-1]
    assert alike.copies[alike.groups[-1]] == 1
