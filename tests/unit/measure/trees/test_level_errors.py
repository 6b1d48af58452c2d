import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.trees.consistency import consistent_estimate
from tulle.measure.trees.level_errors import TreeErrors, expected_rmsre
from tulle.measure.trees.level_noise import GaussianLevels, LaplaceLevels
from tulle.mechanisms.discrete_laplace import sample_discrete_laplace
from tulle.mechanisms.entropy import SeededNoise
from unit.measure.trees.dense_trees import leaf_matrix, regular_tree, whitened

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
