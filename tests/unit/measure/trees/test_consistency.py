import numpy as np
import polars as pl
import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.trees.consistency import (
    combination_variance,
    consistent_estimate,
    consistent_variances,
    group_alike,
)
from tulle.measure.trees.slice_tree import SliceTree, day_tree
from unit.measure.trees.dense_trees import (
    leaf_matrix,
    random_tree,
    random_variances,
    regular_tree,
    whitened,
    whitened_totals,
)

NUM_TREES = 200


def solvable_cases(unmeasured: float):
    """Random trees and noisy totals of which every node can be estimated."""
    rng = np.random.default_rng(11)
    num_found = 0
    while num_found < NUM_TREES:
        tree = random_tree(rng)
        variances = random_variances(rng, tree, unmeasured)
        design = whitened(tree, variances)
        if len(design) and np.linalg.matrix_rank(design) == len(tree.leaf_nodes):
            num_found += 1
            yield tree, rng.normal(1, 3, tree.num_nodes), variances, design


@pytest.mark.parametrize("unmeasured", [0.0, 0.2, 0.5])
def test_values_and_variances_are_those_of_dense_least_squares(unmeasured: float) -> None:
    for tree, noisy, variances, design in solvable_cases(unmeasured):
        estimate = consistent_estimate(tree, noisy, variances)
        covariance = np.linalg.inv(design.T @ design)
        leaves = covariance @ design.T @ whitened_totals(noisy, variances)
        matrix = leaf_matrix(tree)
        scale = 1 + np.abs(leaves).max()
        np.testing.assert_allclose(estimate.values, matrix @ leaves, rtol=0, atol=1e-12 * scale)
        expected = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
        np.testing.assert_allclose(estimate.variances, expected, rtol=1e-11)
        kept = np.where(np.isfinite(variances), noisy, np.nan)
        np.testing.assert_array_equal(estimate.noisy_totals, kept)


@pytest.mark.parametrize("unmeasured", [0.0, 0.5])
def test_the_variance_of_any_weighted_sum_is_that_of_dense_least_squares(
    unmeasured: float,
) -> None:
    rng = np.random.default_rng(5)
    for tree, noisy, variances, design in solvable_cases(unmeasured):
        weights = rng.normal(size=tree.num_nodes) * (rng.random(tree.num_nodes) < 0.4)
        by_leaf = leaf_matrix(tree).T @ weights
        expected = by_leaf @ np.linalg.inv(design.T @ design) @ by_leaf
        found = consistent_estimate(tree, noisy, variances).variance_of(weights)
        assert found == pytest.approx(expected, rel=1e-11, abs=1e-13)


def test_a_single_node_weighs_as_its_own_variance() -> None:
    rng = np.random.default_rng(6)
    tree = random_tree(rng)
    variances = random_variances(rng, tree, 0.0)
    found = [combination_variance(tree, variances, row) for row in np.eye(tree.num_nodes)]
    np.testing.assert_allclose(found, consistent_variances(tree, variances), rtol=1e-12)


def test_exactly_the_nodes_that_cannot_be_estimated_have_infinite_variance() -> None:
    rng = np.random.default_rng(7)
    num_unsolvable = 0
    for _ in range(300):
        tree = random_tree(rng)
        variances = random_variances(rng, tree, 0.6)
        design = whitened(tree, variances)
        onto_known = np.linalg.pinv(design) @ design
        matrix = leaf_matrix(tree)
        can_be_known = np.abs(matrix @ onto_known - matrix).max(axis=1) < 1e-8
        found = consistent_variances(tree, variances)
        np.testing.assert_array_equal(np.isfinite(found), can_be_known)
        if not can_be_known.all():
            num_unsolvable += 1
            with pytest.raises(ConfigError, match="cannot be estimated"):
                consistent_estimate(tree, np.zeros(tree.num_nodes), variances)
            unknown = (~can_be_known).astype(float)
            assert combination_variance(tree, variances, unknown) == np.inf
    assert num_unsolvable > 100


def test_children_add_up_to_their_parent() -> None:
    rng = np.random.default_rng(8)
    tree = regular_tree(7, 11, 5)
    estimate = consistent_estimate(
        tree, rng.normal(size=tree.num_nodes), random_variances(rng, tree, 0.0)
    )
    totals = tree.node_totals(estimate.values[tree.leaf_nodes])
    np.testing.assert_allclose(estimate.values, totals, atol=1e-12)


def test_equal_weights_would_not_do() -> None:
    # The merged estimate of a root with two leaves, by hand: variances 1, and 1 + 3 below.
    tree = regular_tree(2)
    estimate = consistent_estimate(tree, [10.0, 2.0, 4.0], [1.0, 1.0, 3.0])
    np.testing.assert_allclose(estimate.values, [9.2, 2.8, 6.4])
    np.testing.assert_allclose(estimate.variances, [0.8, 0.8, 1.2])


def test_a_leaf_that_was_not_measured_is_what_its_parent_has_left() -> None:
    tree = regular_tree(3)
    estimate = consistent_estimate(tree, [10.0, 2.0, np.nan, 4.0], [1.0, 2.0, np.inf, 3.0])
    np.testing.assert_allclose(estimate.values, [10, 2, 4, 4])
    np.testing.assert_allclose(estimate.variances, [1, 2, 6, 3])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_a_variance_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="> 0"):
        consistent_estimate(regular_tree(2), np.zeros(3), [1.0, bad, 1.0])


def test_totals_of_the_wrong_number_or_not_finite_are_refused() -> None:
    tree = regular_tree(2)
    with pytest.raises(DataError, match="shape"):
        consistent_estimate(tree, np.zeros(4), np.ones(3))
    with pytest.raises(DataError, match="shape"):
        consistent_estimate(tree, np.zeros(3), np.ones(4))
    with pytest.raises(DataError, match="shape"):
        combination_variance(tree, np.ones(3), np.ones(2))
    with pytest.raises(DataError, match="finite"):
        consistent_estimate(tree, [0.0, np.nan, 0.0], np.ones(3))


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
