import itertools

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.measure.trees.day_tree import day_tree
from tulle.measure.trees.level_budgets import (
    closed_form_split,
    leaf_only_split,
    optimised_split,
    uniform_split,
)
from tulle.measure.trees.level_errors import TreeErrors, expected_rmsre
from tulle.measure.trees.level_noise import GaussianLevels, LaplaceLevels, TreeBudget
from unit.measure.trees.dense_trees import random_tree, regular_tree

FINE_LAPLACE = LaplaceLevels(epsilon=1.0, max_steps_per_unit=1 << 16, steps=1 << 16)
BUDGETS = [FINE_LAPLACE, GaussianLevels(rho=0.5)]


def skewed_errors(total: int) -> TreeErrors:
    tree = regular_tree(4, 4, 4)
    rng = np.random.default_rng(51)
    weights = np.ones(1)
    for _ in range(3):
        parts = rng.dirichlet(np.full(4, 0.8), size=len(weights))
        weights = (weights[:, None] * parts).ravel()
    return TreeErrors.from_history(tree, rng.multinomial(total, weights), tau=5)


@pytest.mark.parametrize("budget", BUDGETS, ids=["laplace", "gaussian"])
def test_no_shares_nearby_beat_the_closed_form_without_consistency(budget: TreeBudget) -> None:
    errors = skewed_errors(2000)
    shares = closed_form_split(errors, budget)
    assert shares.sum() == pytest.approx(1)
    least = expected_rmsre(errors, budget, shares, after_consistency=False)
    for up, down in itertools.permutations(range(4), 2):
        moved = shares.copy()
        moved[up] += 5e-4
        moved[down] -= 5e-4
        assert expected_rmsre(errors, budget, moved, after_consistency=False) > least
    np.testing.assert_allclose(
        shares / shares[-1],
        (errors.level_costs() / errors.level_costs()[-1]) ** budget.best_power,
    )


@pytest.mark.parametrize("budget", BUDGETS, ids=["laplace", "gaussian"])
@pytest.mark.parametrize("total", [100, 2000, 50_000])
def test_no_shares_of_a_fine_grid_beat_the_optimised_ones(budget: TreeBudget, total: int) -> None:
    errors = skewed_errors(total)
    least = expected_rmsre(errors, budget, optimised_split(errors, budget))
    grid = [
        np.array([a, b, c, 20 - a - b - c]) / 20
        for a, b, c in itertools.product(range(21), repeat=3)
        if a + b + c < 20
    ]
    on_grid = min(expected_rmsre(errors, budget, shares) for shares in grid)
    assert least <= on_grid * (1 + 1e-7)
    for other in (uniform_split(errors.tree), leaf_only_split(errors.tree)):
        assert least <= expected_rmsre(errors, budget, other) * (1 + 1e-7)


def test_on_a_dense_tree_the_leaves_get_all() -> None:
    tree = regular_tree(4, 4)
    errors = TreeErrors.from_history(tree, np.full(16, 1000), tau=5)
    shares = optimised_split(errors, LaplaceLevels(epsilon=1.0))
    assert shares.tolist() == [0, 0, 1]


def test_a_level_in_the_middle_can_get_nothing() -> None:
    # Each node of level 1 has one child: measuring both would split the budget for nothing.
    tree = regular_tree(50, 1, 2)
    errors = TreeErrors.from_history(tree, np.full(100, 1), tau=5)
    shares = optimised_split(errors, LaplaceLevels(epsilon=1.0))
    assert min(shares[1], shares[2]) == 0
    assert shares[3] > 0
    assert shares.sum() == pytest.approx(1)


def test_random_trees_get_shares_that_add_up_and_are_no_worse_than_uniform() -> None:
    rng = np.random.default_rng(52)
    for _ in range(5):
        tree = random_tree(rng, depth=3)
        errors = TreeErrors.from_history(tree, rng.poisson(20, len(tree.leaf_nodes)), tau=5)
        budget = LaplaceLevels(epsilon=1.0)
        shares = optimised_split(errors, budget)
        assert shares.sum() == pytest.approx(1)
        assert np.all(shares >= 0)
        uniform = expected_rmsre(errors, budget, uniform_split(tree))
        assert expected_rmsre(errors, budget, shares) <= uniform * (1 + 1e-9)


def test_many_steps_and_a_small_epsilon_can_be_split_too() -> None:
    errors = skewed_errors(2000)
    budget = LaplaceLevels(epsilon=0.01, max_steps_per_unit=1 << 30, steps=1 << 24)
    shares = optimised_split(errors, budget)
    assert shares.sum() == pytest.approx(1)


def test_leaves_at_several_levels_have_no_leaf_only_split() -> None:
    rng = np.random.default_rng(53)
    trees = [random_tree(rng) for _ in range(20)]
    tree = next(t for t in trees if len(set(t.levels[t.leaf_nodes].tolist())) > 1)
    with pytest.raises(ConfigError, match="above its last level"):
        leaf_only_split(tree)
    assert leaf_only_split(day_tree(7)).tolist() == [0, 0, 1]
