import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError, DataError
from tulle.measure.trees.consistency import consistent_estimate
from tulle.measure.trees.level_budgets import (
    GaussianLevels,
    LaplaceLevels,
    TreeBudget,
    TreeErrors,
    closed_form_split,
    expected_rmsre,
    leaf_only_split,
    level_variances,
    optimised_split,
    rescaled_steps,
    uniform_split,
)
from tulle.measure.trees.slice_tree import day_tree
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, sample_discrete_laplace
from tulle.mechanisms.entropy import SeededNoise
from unit.measure.trees.dense_trees import leaf_matrix, random_tree, regular_tree, whitened

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


def test_a_level_has_the_variance_of_its_share_of_epsilon() -> None:
    found = level_variances(LaplaceLevels(epsilon=2.0), [0.25, 0.0, 0.75])
    np.testing.assert_allclose(
        found, [stats.dlaplace(0.5).var(), np.inf, stats.dlaplace(1.5).var()], rtol=1e-12
    )


def test_steps_make_noise_finer_and_not_smaller_than_its_continuous_limit() -> None:
    coarse = LaplaceLevels(epsilon=1.0).variance(1.0)
    fine = LaplaceLevels(epsilon=1.0, max_steps_per_unit=1 << 16, steps=1 << 16).variance(1.0)
    assert coarse == pytest.approx(1.8413, rel=1e-3)
    assert fine == pytest.approx(2.0, rel=1e-9)


def test_a_share_with_more_noise_than_can_be_drawn_has_its_variance_all_the_same() -> None:
    budget = LaplaceLevels(epsilon=0.1, max_steps_per_unit=1 << 21, steps=1 << 16)
    assert budget.variance(1e-12) == pytest.approx(2 * (32 / 1e-13) ** 2)
    with pytest.raises(ConfigError, match="scale="):
        budget.level_noise(1e-12)


def test_a_level_has_the_variance_of_its_share_of_rho() -> None:
    budget = GaussianLevels(rho=0.5, max_steps_per_unit=6.0, steps=2)
    found = level_variances(budget, [0.1, 0.9, 0.0])
    np.testing.assert_allclose(found, [90.0, 10.0, np.inf])
    # Costs of the levels, sensitivity^2 / (2 variance), add up to rho.
    assert (9.0 / (2 * found[:2])).sum() == pytest.approx(0.5)


@pytest.mark.parametrize("shares", [[-0.1, 1.1], [0.0, 0.0], [0.6, 0.5], [np.nan, 1.0]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        level_variances(LaplaceLevels(epsilon=1.0), shares)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon="):
        LaplaceLevels(epsilon=epsilon)
    with pytest.raises(ConfigError, match="rho="):
        GaussianLevels(rho=epsilon)


@pytest.mark.parametrize("epsilon", [0.5, 10.0, 64.0])
def test_scaling_contributions_is_the_same_as_giving_levels_shares_of_epsilon(
    epsilon: float,
) -> None:
    shares, steps = [0.5, 0.125, 0.3, 0.0], 1 << 16
    whole = rescaled_steps(shares, steps)
    # One noise for all levels, made for everything a contribution adds to them.
    shared = DiscreteLaplaceConfig(scale=steps / epsilon, max_contribution=steps)
    for share, level_steps in zip(shares, whole.tolist(), strict=True):
        if level_steps == 0:
            assert share == 0
            continue
        own = LaplaceLevels(
            epsilon=epsilon, max_steps_per_unit=level_steps, steps=level_steps
        ).level_noise(level_steps / steps)
        assert own.scale == pytest.approx(shared.scale, rel=1e-14)
        assert shared.variance / level_steps**2 == pytest.approx(
            own.variance / level_steps**2, rel=1e-12
        )
        # And this is the share of epsilon that was asked for, up to one step in 65536.
        assert level_steps / steps == pytest.approx(share, abs=1 / steps)
    # Together the levels move by no more than the noise was made for.
    assert whole.sum() <= steps


def test_scaled_contributions_of_the_browser_vectors() -> None:
    # Half the budget for a count, half for values up to 1024 of which 52 are spent: 32768, 1664.
    count, value = rescaled_steps([0.5, 0.5], 1 << 16).tolist()
    assert (count, 52 * value // 1024) == (32768, 1664)


@pytest.mark.parametrize("shares", [[0.7, 0.7], [-0.5, 1.0]])
def test_scaling_beyond_the_whole_is_refused(shares: list[float]) -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        rescaled_steps(shares, 1 << 16)


TREE = regular_tree(3, 4)
HISTORY = np.array([0, 1, 2, 3, 10, 0, 0, 0, 50, 60, 70, 80])
SHARES = [0.2, 0.3, 0.5]


def test_errors_by_level_are_those_of_the_definition() -> None:
    errors = TreeErrors.from_history(TREE, HISTORY, tau=5)
    budget = GaussianLevels(rho=1.0)
    variances = np.array([1 / (2 * share) for share in SHARES])[TREE.levels]
    design = whitened(TREE, variances)
    matrix = leaf_matrix(TREE)
    after = np.einsum("ij,jk,ik->i", matrix, np.linalg.inv(design.T @ design), matrix)
    for node_variances, after_consistency in ((variances, False), (after, True)):
        squares = node_variances / np.maximum(5, matrix @ HISTORY) ** 2
        expected = [np.sqrt(np.mean(squares[TREE.levels == level])) for level in range(3)]
        found = errors.level_rmsre(budget, SHARES, after_consistency=after_consistency)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        overall = expected_rmsre(errors, budget, SHARES, after_consistency=after_consistency)
        assert overall == pytest.approx(np.sqrt(np.mean(np.square(expected))), rel=1e-12)


def test_the_expected_error_is_that_of_releases() -> None:
    """10,000 releases: the mean square is within 7 standard errors, and 5% more noise is not."""
    budget = LaplaceLevels(epsilon=1.0)
    errors = TreeErrors.from_history(TREE, HISTORY, tau=5)
    rng = SeededNoise(41)
    truth = TREE.node_totals(HISTORY)
    variances = np.array([budget.variance(share) for share in SHARES])[TREE.levels]
    num_runs = 10_000
    noise = np.empty((num_runs, TREE.num_nodes))
    for level, share in enumerate(SHARES):
        nodes = TREE.level_slices[level]
        scale = budget.level_noise(share).scale
        noise[:, nodes] = sample_discrete_laplace(
            scale, (num_runs, nodes.stop - nodes.start), rng=rng
        )
    scales = np.maximum(5, truth)
    squares = np.empty(num_runs)
    for run in range(num_runs):
        estimate = consistent_estimate(TREE, truth + noise[run], variances)
        relative = ((estimate.values - truth) / scales) ** 2
        by_level = np.bincount(TREE.levels, weights=relative) / np.bincount(TREE.levels)
        squares[run] = by_level.mean()
    standard_error = squares.std() / np.sqrt(num_runs)
    expected = expected_rmsre(errors, budget, SHARES) ** 2
    assert abs(squares.mean() - expected) < 7 * standard_error
    assert abs(squares.mean() - expected * 1.05**2) > 7 * standard_error


def test_a_level_without_share_is_estimated_from_the_others_or_not_at_all() -> None:
    errors = TreeErrors.from_history(TREE, HISTORY, tau=5)
    budget = LaplaceLevels(epsilon=1.0)
    assert np.all(np.isfinite(errors.level_rmsre(budget, [0, 0, 1])))
    assert np.isinf(errors.level_rmsre(budget, [0.5, 0.5, 0])).tolist() == [False, False, True]
    alone = errors.level_rmsre(budget, [0, 0, 1], after_consistency=False)
    assert np.isinf(alone).tolist() == [True, True, False]
    assert expected_rmsre(errors, budget, [0.5, 0.5, 0]) == np.inf


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="tau=0"):
        TreeErrors.from_history(TREE, HISTORY, tau=0)
    with pytest.raises(DataError, match=">= 0"):
        TreeErrors.from_history(TREE, HISTORY - 1, tau=5)
    with pytest.raises(ConfigError, match="2 shares for 3 levels"):
        TreeErrors.from_history(TREE, HISTORY, tau=5).level_rmsre(
            LaplaceLevels(epsilon=1.0), [0.5, 0.5]
        )
