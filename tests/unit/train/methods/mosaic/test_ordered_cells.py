"""Cells along bins in order share a prior: exactly, to their profit, and never to their harm."""

import math

import numpy as np
import pytest

from tulle.train.methods.mosaic.cell_likelihood import CellLikelihood, NoisyCells
from tulle.train.methods.mosaic.ordered_cells import (
    OrderedAxis,
    Sites,
    WalkPrior,
    independent_evidences,
    learnt_walk,
    neighbours_say,
    walk_evidences,
)
from tulle.train.methods.mosaic.shrinkage import posterior_changes

RATE = 0.1
PRIOR = WalkPrior(level=0.09, step=0.0064, own=0.01)


def sites_of(num_chains: int, num_bins: int, seed: int = 1) -> Sites:
    rng = np.random.default_rng(seed)
    precisions = rng.exponential(30.0, (num_chains, num_bins))
    precisions[rng.random(precisions.shape) < 0.2] = 0.0
    return Sites(means=rng.normal(0, 0.5, precisions.shape), precisions=precisions)


def walk_covariance(size: int, *, is_cycle: bool) -> np.ndarray:
    if not is_cycle:
        places = np.arange(size)
        return PRIOR.level + PRIOR.step * np.minimum(places[:, None], places)
    steps = np.eye(size) - np.roll(np.eye(size), 1, axis=1)
    mean = np.full((size, size), 1 / size**2)
    return np.linalg.inv(steps.T @ steps / PRIOR.step + mean / PRIOR.level)


@pytest.mark.parametrize(("num_bins", "is_cycle"), [(1, False), (9, False), (24, True), (3, True)])
def test_what_neighbours_say_is_what_dense_algebra_says(num_bins: int, is_cycle: bool) -> None:
    sites = sites_of(6, num_bins)
    means, variances = neighbours_say(sites, PRIOR, is_cycle=is_cycle)
    covariance = walk_covariance(num_bins, is_cycle=is_cycle)
    for chain, cell in np.ndindex(means.shape):
        seen = (sites.precisions[chain] > 0) & (np.arange(num_bins) != cell)
        noise = np.diag(1 / sites.precisions[chain, seen] + PRIOR.own)
        gain = covariance[cell, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)] + noise)
        assert means[chain, cell] == pytest.approx(gain @ sites.means[chain, seen], abs=1e-9)
        left = covariance[cell, cell] - gain @ covariance[seen, cell] + PRIOR.own
        assert variances[chain, cell] == pytest.approx(left, rel=1e-9)


def log_density(values: np.ndarray, covariance: np.ndarray) -> float:
    _, log_determinant = np.linalg.slogdet(covariance)
    return -0.5 * (log_determinant + values @ np.linalg.solve(covariance, values))


def test_evidence_is_that_of_dense_algebra() -> None:
    sites = sites_of(5, 12)
    expected = [0.0, 0.0]
    for means, precisions in zip(sites.means, sites.precisions, strict=True):
        seen = precisions > 0
        noise = np.diag(1 / precisions[seen])
        nothing = log_density(means[seen], noise)
        own = PRIOR.own * np.eye(int(seen.sum()))
        walk = walk_covariance(12, is_cycle=False)[np.ix_(seen, seen)] + own
        expected[0] += log_density(means[seen], noise + walk) - nothing
        expected[1] += log_density(means[seen], noise + 0.09 * np.eye(len(noise))) - nothing
    assert walk_evidences(sites, [PRIOR])[0] == pytest.approx(expected[0])
    assert independent_evidences(sites, np.array([0.3]))[0] == pytest.approx(expected[1])


def test_chains_follow_the_ordered_column() -> None:
    axis = OrderedAxis(sizes=(2, 5), place=1, num_bins=3, is_cycle=False)
    assert axis.chains.tolist() == [[1, 2, 3], [6, 7, 8]]
    first = OrderedAxis(sizes=(4, 2), place=0, num_bins=3, is_cycle=False)
    assert first.chains.tolist() == [[2, 4, 6], [3, 5, 7]]


def simulated(effects: np.ndarray, *, rows: float, noise: float, seed: int) -> NoisyCells:
    rng = np.random.default_rng(seed)
    odds = RATE / (1 - RATE) * np.exp(effects)
    labels = rng.poisson(rows * odds / (1 + odds))
    predicted = np.full(len(effects), rows * RATE)
    return NoisyCells(
        residuals=labels - predicted + rng.normal(0, noise, len(effects)),
        predicted=predicted,
        residual_stddev=noise,
        predicted_stddev=0.0,
        rate=RATE,
    )


def error(effects: np.ndarray, axes: list[OrderedAxis], seed: int, **sizes: float) -> float:
    cells = simulated(effects, seed=seed, **sizes)
    return float(np.mean((posterior_changes(cells, 3.0, axes).log_odds - effects) ** 2))


SMOOTH = np.concatenate([[0.0], 0.7 * np.sin(np.arange(64) / 10), [1.2]])
AXIS = OrderedAxis(sizes=(66,), place=0, num_bins=64, is_cycle=False)
SEEDS = range(12)


def test_a_smooth_truth_is_found_with_less_error() -> None:
    sizes = {"rows": 2_000.0, "noise": 60.0}
    ordered = np.mean([error(SMOOTH, [AXIS], seed, **sizes) for seed in SEEDS])
    independent = np.mean([error(SMOOTH, [], seed, **sizes) for seed in SEEDS])
    assert ordered < 0.4 * independent


def test_a_truth_without_order_is_found_as_well_as_before() -> None:
    sizes = {"rows": 4_000.0, "noise": 60.0}
    shuffled = np.random.default_rng(3).permutation(SMOOTH)
    ordered = np.mean([error(shuffled, [AXIS], seed, **sizes) for seed in SEEDS])
    independent = np.mean([error(shuffled, [], seed, **sizes) for seed in SEEDS])
    assert ordered < 1.05 * independent


def test_many_cells_of_few_labels_are_not_biased_alike() -> None:
    """Planted fault of normal likelihoods: each a little low, and a chain adds them up."""
    axis = OrderedAxis(sizes=(50, 65), place=1, num_bins=64, is_cycle=False)
    effects = np.repeat(np.random.default_rng(4).normal(0, 0.3, 50), 65)
    cells = simulated(effects, rows=30.0, noise=1.0, seed=5)
    found = posterior_changes(cells, 3.0, [axis])
    off = (found.log_odds - effects).reshape(50, 65)[:, 1:]
    assert abs(off.mean()) < 0.03
    assert np.mean(off**2) < 0.02


def test_noise_alone_changes_nothing() -> None:
    axis = OrderedAxis(sizes=(20, 33), place=1, num_bins=32, is_cycle=False)
    for seed in SEEDS:
        cells = simulated(np.zeros(660), rows=150.0, noise=100.0, seed=seed)
        assert posterior_changes(cells, 3.0, [axis]).spread == 0


def test_what_is_no_bin_stays_apart() -> None:
    effects = np.concatenate([[0.0], np.full(64, 0.3), [-0.8]])
    cells = simulated(effects, rows=20_000.0, noise=60.0, seed=6)
    found = posterior_changes(cells, 3.0, [AXIS])
    assert found.log_odds[-1] == pytest.approx(-0.8, abs=0.15)
    assert found.log_odds[64] == pytest.approx(0.3, abs=0.1)
    assert isinstance(found.variances, np.ndarray)
    assert found.variances[64] < 0.01 < found.variances[-1]


def test_a_bin_without_rows_is_what_its_neighbours_are() -> None:
    effects = np.full(66, 0.5)
    cells = simulated(effects, rows=10_000.0, noise=30.0, seed=7)
    cells.predicted[30], cells.residuals[30] = 0.0, 40.0
    effects_found = posterior_changes(cells, 3.0, [AXIS]).log_odds
    assert effects_found[30] == pytest.approx(0.5, abs=0.1)


def test_midnight_is_beside_eleven() -> None:
    axis = OrderedAxis(sizes=(26,), place=0, num_bins=24, is_cycle=True)
    effects = np.zeros(26)
    effects[1:25] = 0.6 * np.cos(2 * math.pi * np.arange(24) / 24)
    line = OrderedAxis(sizes=(26,), place=0, num_bins=24, is_cycle=False)
    sizes = {"rows": 1_500.0, "noise": 60.0}

    def at_midnight(one: OrderedAxis) -> float:
        found = [
            posterior_changes(simulated(effects, seed=seed, **sizes), 3.0, [one]).log_odds
            for seed in range(40)
        ]
        return float(np.mean((np.array(found)[:, 1] - effects[1]) ** 2))

    assert at_midnight(axis) < at_midnight(line)


def test_a_walk_is_learnt_where_there_is_one() -> None:
    rng = np.random.default_rng(8)
    walk = np.cumsum(rng.normal(0, 0.08, (40, 48)), axis=1)
    precisions = np.full(walk.shape, 50.0)
    means = walk + rng.normal(0, 50.0**-0.5, walk.shape)
    prior, advantage = learnt_walk(Sites(means=means, precisions=precisions))
    assert math.sqrt(prior.step) == pytest.approx(0.08)
    assert advantage > 100
    shuffled = rng.permuted(means, axis=1)
    mixed = rng.permuted(shuffled, axis=0)
    assert learnt_walk(Sites(means=mixed, precisions=precisions))[1] < 2


def test_normal_likelihoods_have_the_slope_and_the_noise_of_the_sum() -> None:
    cells = simulated(np.zeros(3), rows=5_000.0, noise=20.0, seed=9)
    means, precisions = CellLikelihood(cells).normal_sites(np.arange(3), np.zeros(3))
    slope = 500.0 * (1 - RATE)
    assert means == pytest.approx(cells.residuals / slope)
    assert precisions == pytest.approx(slope**2 / (slope + 400.0))
