import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.measure.trees.consistency import consistent_estimate
from tulle.measure.trees.day_tree import day_tree, running_total, running_totals
from tulle.measure.trees.slice_tree import NO_PARENT
from unit.measure.trees.dense_trees import whitened, whitened_totals


def test_full_groups_of_days_are_the_nodes() -> None:
    tree = day_tree(7)
    assert tree.levels.tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    assert tree.parents.tolist() == [NO_PARENT, 0, 0, NO_PARENT, 1, 1, 2, 2, 3, 3, NO_PARENT]
    assert tree.leaf_nodes.tolist() == [4, 5, 6, 7, 8, 9, 10]


def test_groups_can_be_of_any_size() -> None:
    tree = day_tree(30, branching=7)
    assert np.bincount(tree.levels).tolist() == [4, 30]
    assert day_tree(6, branching=7).num_levels == 1


@pytest.mark.parametrize(("num_days", "branching"), [(1, 2), (13, 2), (30, 3), (9, 7)])
def test_running_totals_and_their_variances_are_those_of_dense_least_squares(
    num_days: int, branching: int
) -> None:
    rng = np.random.default_rng(31)
    tree = day_tree(num_days, branching=branching)
    variances = rng.uniform(0.5, 2, tree.num_levels)[tree.levels]
    noisy = rng.normal(10, 3, tree.num_nodes)
    estimate = consistent_estimate(tree, noisy, variances)
    design = whitened(tree, variances)
    covariance = np.linalg.inv(design.T @ design)
    prefixes = np.tri(num_days)
    expected = prefixes @ covariance @ design.T @ whitened_totals(noisy, variances)
    expected_variances = np.diag(prefixes @ covariance @ prefixes.T)
    values, found_variances = running_totals(estimate)
    np.testing.assert_allclose(values, expected, rtol=1e-11)
    np.testing.assert_allclose(found_variances, expected_variances, rtol=1e-11)
    last = running_total(estimate, num_days - 1)
    assert last.value == pytest.approx(expected[-1], rel=1e-11)
    assert last.variance == pytest.approx(expected_variances[-1], rel=1e-11)


def test_a_tree_beats_single_days_for_long_running_totals() -> None:
    # The same rho: a 9th of it for each level, or all of it for days of variance 1.
    tree = day_tree(256)
    by_tree = consistent_estimate(tree, np.zeros(tree.num_nodes), np.full(tree.num_nodes, 9.0))
    _, variances = running_totals(by_tree)
    assert variances.max() < 40
    assert np.mean(variances) < np.mean(np.arange(1, 257)) / 5


@pytest.mark.parametrize("day", [-1, 3])
def test_a_day_that_is_not_in_the_tree_is_refused(day: int) -> None:
    estimate = consistent_estimate(day_tree(3), np.zeros(4), np.ones(4))
    with pytest.raises(ConfigError, match=f"day={day}"):
        running_total(estimate, day)


@pytest.mark.parametrize(("num_days", "branching"), [(0, 2), (3, 1)])
def test_a_tree_without_days_or_groups_is_refused(num_days: int, branching: int) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        day_tree(num_days, branching=branching)
