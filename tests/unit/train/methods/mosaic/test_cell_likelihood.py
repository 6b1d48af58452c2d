"""Likelihoods of cells as matrix products say what the slow, obvious formulas say."""

import numpy as np
import pytest
from scipy import special, stats

from tulle.train.methods.mosaic.cell_likelihood import (
    GRID,
    LOG_NORMAL_PRIORS,
    SCALES,
    SPREADS,
    CellLikelihood,
    KeptLikelihoods,
    NoisyCells,
    log_normal,
)
from tulle.train.methods.mosaic.shrinkage import further_changes, posterior_changes

RATE = 0.03
UNEVENNESS, DISPERSION = 1.3, 0.9
STEPS = np.gradient(GRID)


def random_cells(num_cells: int, seed: int = 0) -> NoisyCells:
    """Cells of all sizes, each with its own noise and weight; a few are far from any prior."""
    rng = np.random.default_rng(seed)
    predicted = rng.lognormal(3, 2, num_cells)
    changes = 0.3 * rng.standard_normal(num_cells)
    changes[::50] = rng.uniform(-4, 3, len(changes[::50]))
    stddevs = rng.uniform(1, 6, (2, num_cells))
    residuals = predicted * np.expm1(changes) + stddevs[0] * rng.standard_normal(num_cells)
    return noisy_cells(residuals, predicted, *stddevs, rng.uniform(0.2, 2, num_cells))


def noisy_cells(
    residuals: np.ndarray,
    predicted: np.ndarray,
    residual_stddev: np.ndarray | float = 2.0,
    predicted_stddev: np.ndarray | float = 0.0,
    row_weights: np.ndarray | float = 1.0,
) -> NoisyCells:
    return NoisyCells(
        residuals=residuals,
        predicted=predicted,
        residual_stddev=residual_stddev,
        predicted_stddev=predicted_stddev,
        row_weights=row_weights,
        unevenness=UNEVENNESS,
        rate=RATE,
        dispersion=DISPERSION,
    )


def extreme_cells() -> NoisyCells:
    """300 ordinary cells, and huge ones for which all changes but one are out of reach."""
    rng = np.random.default_rng(3)
    huge = np.array([1e7, 1e7, 1e9, 1e12, 3e4, 1e-9, 50.0])
    far = np.array([-0.9e7, 1e8, 0.0, -1e12, 3e4, 0.0, 1e6])
    predicted = np.concatenate([rng.uniform(10, 500, 300), huge])
    residuals = np.concatenate([15 * rng.standard_normal(300), far])
    return noisy_cells(residuals, predicted)


TABLES = {
    "of one block": random_cells(400),
    "of several blocks": random_cells(1_300, seed=1),
    "of few cells": random_cells(30, seed=2),
    "of extremes": extreme_cells(),
    "of one cell": noisy_cells(np.array([12.0]), np.array([40.0])),
    "of one huge cell": noisy_cells(np.array([-0.95e8]), np.array([1e8])),
    "of nothing": noisy_cells(np.zeros(0), np.zeros(0)),
}
each_table = pytest.mark.parametrize("cells", TABLES.values(), ids=TABLES.keys())


def slow_logs(cells: NoisyCells) -> np.ndarray:
    """Log likelihoods of all cells: one normal density for each cell and change."""
    changed = special.expit(special.logit(RATE) + GRID)
    logs = np.empty((len(cells.predicted), GRID.size))
    noise = np.broadcast_to(cells.residual_stddev, len(logs))
    noise_of_predicted = np.broadcast_to(cells.predicted_stddev, len(logs))
    weights = np.broadcast_to(cells.row_weights, len(logs))
    for cell, predicted in enumerate(cells.predicted):
        growth = changed / RATE - 1
        of_labels = UNEVENNESS * DISPERSION * weights[cell] * changed * (1 - changed) / RATE
        variance = noise[cell] ** 2 + (growth * noise_of_predicted[cell]) ** 2
        variance = variance + predicted * of_labels
        logs[cell] = stats.norm.logpdf(cells.residuals[cell], predicted * growth, np.sqrt(variance))
    return logs


def slow_log_normal(variances: np.ndarray) -> np.ndarray:
    logs = np.log(STEPS) + stats.norm.logpdf(GRID, scale=np.sqrt(variances)[:, None])
    return logs - special.logsumexp(logs, axis=1, keepdims=True)


def slow_evidence(logs: np.ndarray, log_prior: np.ndarray) -> float:
    no_change = logs[:, np.flatnonzero(GRID == 0)[0]]
    return float((special.logsumexp(logs + log_prior, axis=1) - no_change).sum())


def slow_learnt_prior(logs: np.ndarray, start: np.ndarray) -> np.ndarray:
    log_prior = start
    for _ in range(10):
        share = special.softmax(logs + log_prior, axis=1).mean(axis=0)
        share = np.convolve(np.pad(share, 2, mode="edge"), [0.1, 0.2, 0.4, 0.2, 0.1], mode="valid")
        prior = 0.98 * share / share.sum() + 0.02 * np.exp(start)
        log_prior = np.log(np.maximum(prior, 1e-12))
    return log_prior


def slow_log_odds(logs: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
    chances = special.softmax(logs + log_prior, axis=1) @ special.expit(special.logit(RATE) + GRID)
    return special.logit(chances) - special.logit(RATE)


def kept_of(cells: NoisyCells) -> KeptLikelihoods:
    return KeptLikelihoods(CellLikelihood(cells), np.arange(len(cells.predicted)))


@each_table
def test_log_likelihoods_are_those_of_normal_sums(cells: NoisyCells) -> None:
    found = CellLikelihood(cells).log_likelihoods(np.arange(len(cells.predicted)))
    slow = slow_logs(cells)
    assert found == pytest.approx(slow - slow.max(axis=1, keepdims=True), rel=1e-9, abs=1e-9)


@each_table
def test_evidence_of_a_spread_is_that_of_sums_by_logs(cells: NoisyCells) -> None:
    logs = slow_logs(cells)
    slow = [slow_evidence(logs, prior) for prior in slow_log_normal(SPREADS**2)]
    assert kept_of(cells).evidences == pytest.approx(slow, rel=1e-10, abs=1e-8)


@each_table
def test_evidence_of_a_scale_is_that_of_sums_by_logs(cells: NoisyCells) -> None:
    logs = slow_logs(cells)
    variances = np.random.default_rng(7).lognormal(-4, 2, len(logs))
    slow = [slow_evidence(logs, slow_log_normal(scale * variances)) for scale in SCALES]
    found = CellLikelihood(cells).scale_evidences(np.arange(len(logs)), variances)
    assert found == pytest.approx(slow, rel=1e-10, abs=1e-8)


@each_table
@pytest.mark.parametrize("spread", [0, 5, 10])
def test_the_learnt_prior_and_its_posterior_are_those_of_sums_by_logs(
    cells: NoisyCells, spread: int
) -> None:
    logs, kept, start = slow_logs(cells), kept_of(cells), LOG_NORMAL_PRIORS[spread]
    found = kept.learnt_prior(start)
    expected = start if len(logs) < 200 else slow_learnt_prior(logs, start)
    assert np.exp(found) == pytest.approx(np.exp(expected), rel=1e-9)
    assert kept.posterior_log_odds(found) == pytest.approx(slow_log_odds(logs, found), abs=1e-9)


@each_table
@pytest.mark.parametrize("spread", [0, 10])
def test_kept_likelihoods_and_logs_have_the_same_posterior(cells: NoisyCells, spread: int) -> None:
    """Also under a narrow prior, which huge cells far from it make no more than e^-340 likely."""
    log_prior, places = LOG_NORMAL_PRIORS[spread], np.arange(len(cells.predicted))
    slow = slow_log_odds(slow_logs(cells), log_prior)
    assert kept_of(cells).posterior_log_odds(log_prior) == pytest.approx(slow, abs=1e-9)
    by_logs = CellLikelihood(cells).posterior_log_odds(places, log_prior)
    assert by_logs == pytest.approx(slow, abs=1e-9)


def test_each_cell_may_have_its_own_prior() -> None:
    cells = TABLES["of extremes"]
    variances = np.random.default_rng(7).lognormal(-4, 2, len(cells.predicted))
    found = CellLikelihood(cells).posterior_log_odds(
        np.arange(len(variances)), log_normal(variances)
    )
    slow = slow_log_odds(slow_logs(cells), slow_log_normal(variances))
    assert found == pytest.approx(slow, abs=1e-9)


def test_extreme_sums_are_asked_by_logs() -> None:
    """Else the tests above would say nothing about such sums."""
    likelihoods = np.exp(CellLikelihood(extreme_cells()).log_likelihoods(np.arange(307)))
    sums = likelihoods @ np.exp(LOG_NORMAL_PRIORS[0])
    assert (sums[:300] > 0).all()
    assert (sums[300:] == 0).sum() >= 3


def test_a_sum_that_is_no_number_changes_nothing() -> None:
    cells = random_cells(300)
    cells.residuals[17] = np.nan
    assert np.isnan(kept_of(cells).evidences).all()
    assert posterior_changes(cells, least_evidence=0.0).spread == 0
    assert further_changes(cells, np.full(300, 0.1))[1] == 0


def test_cells_that_a_prior_is_not_learnt_from_get_the_same_posterior(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest cells are kept, all others are asked by logs."""
    cells = noisy_cells(random_cells(900).residuals, random_cells(900).predicted)
    monkeypatch.setattr("tulle.train.methods.mosaic.shrinkage._MOST_LEARNT_FROM", 250)
    found = posterior_changes(cells, least_evidence=0.0)
    live, logs = cells.predicted > 0.3 * DISPERSION, slow_logs(cells)
    largest = np.argsort(-cells.predicted)[:250]
    evidences = [slow_evidence(logs[largest], prior) for prior in LOG_NORMAL_PRIORS]
    prior = slow_learnt_prior(logs[largest], LOG_NORMAL_PRIORS[int(np.argmax(evidences))])
    expected = np.where(live, slow_log_odds(logs, prior), 0.0)
    assert found.log_odds == pytest.approx(expected, abs=1e-9)
    assert found.spread == pytest.approx(float(np.sqrt(np.exp(prior) @ GRID**2)), rel=1e-9)
