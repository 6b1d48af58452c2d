"""Posterior changes of cells: right where the law is known, and nothing where nothing is."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, stats

from tulle.train.methods.mosaic.cell_likelihood import NoisyCells
from tulle.train.methods.mosaic.shrinkage import (
    FittedTable,
    further_changes,
    posterior_changes,
    unknown_variances,
)

_RATE = 0.1


def changed_chance(change: np.ndarray) -> np.ndarray:
    odds = _RATE / (1 - _RATE) * np.exp(change)
    return odds / (1 + odds)


def noisy(
    residuals: np.ndarray, predicted: np.ndarray, stddev: float, predicted_stddev: float = 0.0
) -> NoisyCells:
    return NoisyCells(
        residuals=residuals,
        predicted=predicted,
        residual_stddev=stddev,
        predicted_stddev=predicted_stddev,
        rate=_RATE,
    )


def simulated(
    num_cells: int, predicted: float, spread: float, stddev: float, seed: int = 0
) -> tuple[NoisyCells, np.ndarray]:
    """Cells whose true changes are normal, with sums as training would see them."""
    rng = np.random.default_rng(seed)
    changes = spread * rng.standard_normal(num_cells)
    num_rows = round(predicted / _RATE)
    positives = rng.binomial(num_rows, changed_chance(changes))
    residuals = positives - predicted + stddev * rng.standard_normal(num_cells)
    cells = noisy(residuals, np.full(num_cells, predicted), stddev)
    return cells, changes


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_changes_nothing(seed: int) -> None:
    cells, _ = simulated(2_000, 20.0, 0.0, 30.0, seed)
    found = posterior_changes(cells, least_evidence=3.0)
    assert found.spread == 0
    assert not found.log_odds.any()


def test_without_a_threshold_noise_would_change_something() -> None:
    changed = [
        posterior_changes(simulated(2_000, 20.0, 0.0, 30.0, seed)[0], least_evidence=-1e9).spread
        for seed in range(5)
    ]
    assert min(changed) > 0


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_the_spread_is_found(spread: float) -> None:
    cells, _ = simulated(5_000, 200.0, spread, 10.0)
    found = posterior_changes(cells, least_evidence=3.0)
    assert found.spread == pytest.approx(spread, rel=0.15)


def test_changes_come_near_the_true_ones() -> None:
    cells, changes = simulated(5_000, 20.0, 0.4, 5.0)
    error = posterior_changes(cells, least_evidence=3.0).log_odds - changes
    naive = np.log(np.maximum(1 + cells.residuals / cells.predicted, 0.05)) - changes
    assert np.mean(error**2) < 0.75 * np.mean(naive**2)
    assert np.mean(error**2) < 0.6 * 0.4**2


def test_few_cells_have_the_posterior_of_a_normal_prior() -> None:
    """An independent integral over the change, for the spread that was chosen."""
    predicted, stddev = 60.0, 4.0
    residuals = np.array([35.0, -20.0, 3.0])
    cells = noisy(residuals, np.full(3, predicted), stddev)
    found = posterior_changes(cells, least_evidence=0.0)
    assert found.spread > 0

    def weight(change: float, residual: float) -> float:
        chance = float(changed_chance(np.array(change)))
        mean = predicted * (chance / _RATE - 1)
        deviation = math.sqrt(predicted / _RATE * chance * (1 - chance) + stddev**2)
        prior = stats.norm.pdf(change, scale=found.spread)
        return float(stats.norm.pdf(residual, mean, deviation) * prior)

    for residual, change in zip(residuals, found.log_odds, strict=True):
        total = integrate.quad(weight, -3.5, 2.5, args=(residual,), limit=200)[0]
        mean = integrate.quad(
            lambda b, r=residual: weight(b, r) * float(changed_chance(np.array(b))),
            -3.5,
            2.5,
            limit=200,
        )[0]
        expected = math.log(mean / (total - mean)) - math.log(_RATE / (1 - _RATE))
        assert change == pytest.approx(expected, abs=5e-3)


def test_cells_that_do_not_stand_out_of_the_noise_are_left_alone() -> None:
    cells, _ = simulated(1_000, 200.0, 0.8, 5.0)
    predicted = np.concatenate([cells.predicted, np.full(10, 4.0)])
    residuals = np.concatenate([cells.residuals, np.full(10, 50.0)])
    mixed = noisy(residuals, predicted, 5.0, 5.0)
    found = posterior_changes(mixed, least_evidence=3.0)
    assert found.log_odds[:1_000].any()
    assert not found.log_odds[1_000:].any()


def test_no_cell_stands_out_of_a_large_noise() -> None:
    cells, _ = simulated(10, 1.0, 0.5, 1.0)
    drowned = noisy(cells.residuals, cells.predicted, 50.0, 50.0)
    assert posterior_changes(drowned, least_evidence=0.0).spread == 0


def test_further_sums_improve_on_what_was_known() -> None:
    """Two looks come as near as one with both budgets, and much nearer than the first alone."""
    rng = np.random.default_rng(5)
    spread, predicted, stddev = 0.3, 400.0, 60.0
    changes = spread * rng.standard_normal(3_000)
    positives = rng.binomial(round(predicted / _RATE), changed_chance(changes))

    def looked_at(log_odds: np.ndarray, noise: float) -> NoisyCells:
        now = predicted * changed_chance(log_odds) / _RATE
        return noisy(positives - now + noise * rng.standard_normal(len(changes)), now, noise)

    first = looked_at(np.zeros(len(changes)), stddev)
    found = posterior_changes(first, least_evidence=3.0)
    left = unknown_variances(found.spread**2, first)
    second = looked_at(found.log_odds, stddev)
    more, scale = further_changes(second, left)
    once = posterior_changes(
        looked_at(np.zeros(len(changes)), stddev / math.sqrt(2)), least_evidence=3.0
    )

    def error(log_odds: np.ndarray) -> float:
        return float(np.mean((log_odds - changes) ** 2))

    assert 0.5 <= scale <= 2
    assert error(found.log_odds + more) < 0.85 * error(found.log_odds)
    assert error(found.log_odds + more) < 1.1 * error(once.log_odds)


def test_what_is_unknown_is_what_the_error_is() -> None:
    cells, changes = simulated(5_000, 400.0, 0.2, 60.0)
    found = posterior_changes(cells, least_evidence=3.0)
    left = unknown_variances(0.2**2, cells)
    assert np.mean((found.log_odds - changes) ** 2) == pytest.approx(left.mean(), rel=0.1)


def test_nothing_more_is_taken_from_sums_that_agree_with_the_model() -> None:
    for seed in range(5):
        cells, _ = simulated(2_000, 400.0, 0.0, 60.0, seed)
        changes, scale = further_changes(cells, np.full(2_000, 0.3**2))
        assert scale <= 0.05
        assert np.abs(changes).max() < 0.05


def test_other_tables_may_have_explained_a_part() -> None:
    cells, _ = simulated(5_000, 400.0, 0.1, 20.0, seed=4)
    _, scale = further_changes(cells, np.full(5_000, 0.4**2))
    assert scale == pytest.approx((0.1 / 0.4) ** 2, rel=0.3)


def test_a_cell_that_no_prior_expects_is_no_gap() -> None:
    """So many rows that all changes but one are out of reach of floats, and the prior far off."""
    predicted = np.concatenate([np.full(2_000, 400.0), [1e7]])
    rng = np.random.default_rng(0)
    residuals = np.concatenate([20 * rng.standard_normal(2_000), [-0.8e7]])
    cells = noisy(residuals, predicted, 5.0, 5.0)
    found = posterior_changes(cells, least_evidence=3.0)
    further, _ = further_changes(cells, np.full(2_001, 1e-5))
    for changes in (found.log_odds, further):
        assert np.isfinite(changes).all()
        assert changes[-1] < -1.5


@pytest.mark.parametrize("change", [0.007, 0.025, -0.06, 0.3])
def test_large_cells_are_not_rounded(change: float) -> None:
    predicted = 1e6
    chance = float(changed_chance(np.array(change)))
    cells = noisy(np.array([predicted * (chance / _RATE - 1)]), np.array([predicted]), 1.0)
    found = posterior_changes(cells, least_evidence=3.0).log_odds[0]
    assert found == pytest.approx(change, abs=0.1 * abs(change) + 0.006)


def test_values_that_vary_less_than_labels_of_0_and_1_tell_more() -> None:
    """Values between 0 and 0.2, of mean 0.1: their variance is 0.0033 and not 0.09."""
    rng = np.random.default_rng(4)
    changes, num_rows = 0.1 * rng.standard_normal(2_000), 1_000
    means = changed_chance(changes)
    sums = num_rows * means + np.sqrt(num_rows * means**2 / 3) * rng.standard_normal(2_000)
    cells = noisy(sums - 100, np.full(2_000, 100.0), 1.0)
    told = dataclasses.replace(cells, dispersion=0.1**2 / 3 / 0.09)
    errors = [
        float(np.std(posterior_changes(some, least_evidence=3.0).log_odds - changes))
        for some in (cells, told)
    ]
    assert errors[1] < 0.4 * errors[0]
    unknown = [float(unknown_variances(0.01, some).mean()) for some in (cells, told)]
    assert unknown[1] < 0.2 * unknown[0]


def test_releases_are_weighted_by_what_their_rows_spent() -> None:
    table = FittedTable.empty(2)
    first, second = np.sqrt([0.1, 0.1]), np.sqrt([0.3, 0.9])
    table.add_label_sums(first * [10.0, 0.0], first)
    assert table.label_sums == pytest.approx([10.0, 0.0])
    table.add_label_sums(second * [2.0, 4.0], second)
    assert table.label_sums == pytest.approx([4.0, 3.6])
    assert table.label_shares == pytest.approx([0.4, 1.0])


def test_the_mean_has_the_noise_of_the_whole_share() -> None:
    """Noise of variance 1 on sums of weighted rows: 1/(sum of shares) on the mean."""
    rng = np.random.default_rng(0)
    table = FittedTable.empty(200_000)
    shares = (0.02, 0.3, 0.08)
    for share in shares:
        table.add_label_sums(rng.standard_normal(200_000), np.full(200_000, np.sqrt(share)))
    assert table.label_sums.var() == pytest.approx(1 / sum(shares), rel=0.02)
    assert table.noise_factors()[0] == pytest.approx(1 / np.sqrt(sum(shares)))


def test_cells_without_rows_say_nothing() -> None:
    table = FittedTable.empty(1)
    table.add_label_sums(np.array([5.0]), np.zeros(1))
    assert np.isfinite(table.label_sums).all()
    assert table.label_sums[0] == 0
    assert np.isfinite(table.noise_factors()).all()
