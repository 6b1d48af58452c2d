import numpy as np
import pytest
from scipy.optimize import nnls

from tulle.measure.trees.consistency import consistent_estimate
from tulle.measure.trees.nonnegative import nonnegative_estimate
from tulle.measure.trees.slice_tree import SliceTree
from unit.measure.trees.dense_trees import (
    leaf_matrix,
    random_tree,
    random_variances,
    regular_tree,
    whitened,
    whitened_totals,
)


@pytest.mark.parametrize("unmeasured", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("mean", [-2.0, 0.5, 3.0])
def test_it_is_the_solution_that_nonnegative_least_squares_finds(
    unmeasured: float, mean: float
) -> None:
    rng = np.random.default_rng(21)
    num_solved = num_with_zeros = 0
    while num_solved < 60:
        tree = random_tree(rng)
        variances = random_variances(rng, tree, unmeasured)
        design = whitened(tree, variances)
        if not len(design) or np.linalg.matrix_rank(design) < len(tree.leaf_nodes):
            continue
        num_solved += 1
        noisy = rng.normal(mean, 3, tree.num_nodes)
        expected, _ = nnls(design, whitened_totals(noisy, variances))
        found = nonnegative_estimate(tree, noisy, variances)
        np.testing.assert_allclose(found.values, leaf_matrix(tree) @ expected, atol=1e-10)
        num_with_zeros += bool(np.any(expected == 0) and np.any(expected > 0))
    assert num_with_zeros >= 10


def largest_breach(tree: SliceTree, noisy: np.ndarray, variances: np.ndarray, values: np.ndarray):
    """Of the conditions that only the solution meets: slope 0 above zero, >= 0 at zero."""
    slopes = (values - noisy) / variances
    for nodes in tree.level_slices[1:]:
        slopes[nodes] += slopes[tree.parents[nodes]]
    at_leaves, leaves = slopes[tree.leaf_nodes], values[tree.leaf_nodes]
    assert np.any(leaves > 0)
    assert np.any(leaves == 0)
    return max(np.abs(at_leaves[leaves > 0]).max(), -at_leaves[leaves == 0].min(), 0.0)


def test_conditions_of_the_optimum_hold_on_a_large_tree_and_fail_next_to_it() -> None:
    rng = np.random.default_rng(22)
    tree = regular_tree(20, 30, 40)
    variances = random_variances(rng, tree, 0.0)
    truth = tree.node_totals(rng.poisson(0.3, 24_000))
    noisy = truth + rng.normal(0, np.sqrt(variances))
    found = nonnegative_estimate(tree, noisy, variances)
    assert largest_breach(tree, noisy, variances, found.values) < 1e-9
    clipped = np.maximum(found.unbiased.values[tree.leaf_nodes], 0)
    assert largest_breach(tree, noisy, variances, tree.node_totals(clipped)) > 0.1
    np.testing.assert_allclose(
        found.values, tree.node_totals(found.values[tree.leaf_nodes]), rtol=1e-12
    )


def test_the_unbiased_estimate_stays_beside_it() -> None:
    rng = np.random.default_rng(23)
    tree = regular_tree(4, 4)
    noisy, variances = rng.normal(size=21), np.ones(21)
    found = nonnegative_estimate(tree, noisy, variances)
    unbiased = consistent_estimate(tree, noisy, variances)
    np.testing.assert_array_equal(found.unbiased.values, unbiased.values)
    np.testing.assert_array_equal(found.unbiased.variances, unbiased.variances)
    assert np.any(unbiased.values < 0)
    assert np.all(found.values >= 0)


def test_nothing_changes_where_nothing_is_negative() -> None:
    tree = regular_tree(2, 2)
    noisy = tree.node_totals([5.0, 6.0, 7.0, 8.0])
    found = nonnegative_estimate(tree, noisy, np.ones(7))
    np.testing.assert_allclose(found.values, noisy, rtol=1e-14)


def test_small_totals_come_out_too_large_on_average() -> None:
    rng = np.random.default_rng(24)
    tree = regular_tree(10)
    truth = np.zeros(11)
    values = [
        nonnegative_estimate(tree, truth + rng.normal(size=11), np.ones(11)).values
        for _ in range(200)
    ]
    # Exactly 0 on average if it were unbiased; standard errors are below 0.1.
    assert np.mean(values, axis=0)[0] > 0.7


def test_totals_all_below_zero_become_zero() -> None:
    tree = regular_tree(3, 2)
    found = nonnegative_estimate(tree, np.full(10, -1.0), np.ones(10))
    np.testing.assert_array_equal(found.values, np.zeros(10))
