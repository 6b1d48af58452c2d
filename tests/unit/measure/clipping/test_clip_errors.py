"""Golden values: unit tests of google-research/ara_optimization (Aksu et al. 2024)."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from tulle.errors import ConfigError
from tulle.measure.clipping.clip_errors import expected_errors, smooth_error
from tulle.measure.clipping.value_history import ValueHistory
from tulle.measure.slice_jobs import Amount
from tulle.measure.trees.level_noise import GaussianLevels, LaplaceLevels
from tulle.mechanisms.discrete_laplace import sample_discrete_laplace
from tulle.mechanisms.entropy import SeededNoise

STEPS = 1 << 16
BUDGET = LaplaceLevels(epsilon=1.0, max_steps_per_unit=STEPS, steps=STEPS)
TWO_ROWS = ValueHistory(
    names=("A", "B"), values=np.array([[1.0, 3.0], [2.0, 4.0]]), slices=np.array([0, 0])
)
# Above all totals, so that the relative error is the plain one over it.
TAU = 1000.0


def amounts_of(*settings: tuple[str | None, float, float]) -> list[Amount]:
    return [
        Amount(name=column or "count", column=column, share=share, clip=clip)
        for column, share, clip in settings
    ]


def random_history(rng: np.random.Generator, num_rows: int = 300) -> ValueHistory:
    return ValueHistory(
        names=("price", "items"),
        values=np.column_stack([rng.lognormal(2, 1, num_rows), rng.poisson(2, num_rows)]),
        slices=rng.integers(0, 12, num_rows),
        kept=rng.choice([0.0, 0.5, 1.0], num_rows),
    )


def test_the_error_of_the_values_is_the_golden_one() -> None:
    squared, _ = smooth_error(
        TWO_ROWS, np.log([5.0, 5.0]), np.log([1.0, 3.0]), 2.0, np.full(3, TAU)
    )
    assert math.sqrt(squared) * TAU == pytest.approx(20 * math.sqrt(10 / 9), rel=1e-12)


def test_the_error_with_the_free_count_is_the_golden_one() -> None:
    amounts = amounts_of(("A", 0.25, 5.0), ("B", 0.75, 5.0))
    errors = expected_errors(TWO_ROWS, amounts, BUDGET, has_rest=True, taus=[TAU] * 3)
    variance = stats.dlaplace(1 / STEPS).var()
    golden = math.sqrt(variance * (400 * 10 / 9 + 3) / 3) / STEPS
    assert errors.overall * TAU == pytest.approx(golden, rel=1e-9)
    assert errors.count * TAU == pytest.approx(math.sqrt(3 * variance) / STEPS, rel=1e-10)


def test_the_error_with_a_share_for_the_count_is_the_golden_one() -> None:
    amounts = amounts_of(("A", 1 / 8, 5.0), ("B", 3 / 8, 5.0), (None, 1 / 2, 1.0))
    errors = expected_errors(TWO_ROWS, amounts, BUDGET, has_rest=False, taus=[TAU] * 3)
    assert errors.overall * TAU == pytest.approx(math.sqrt(24054) * 2 / 9, rel=1e-9)


def test_the_gradient_is_that_of_differences() -> None:
    rng = np.random.default_rng(61)
    history = random_history(rng)
    taus = np.array(history.default_taus())
    for _ in range(5):
        point = np.concatenate([rng.normal([2.0, 0.3], 0.5), rng.normal(0, 1, 2)])

        def value(x: np.ndarray) -> float:
            return smooth_error(history, x[:2], x[2:], 3.0, taus)[0]

        _, gradient = smooth_error(history, point[:2], point[2:], 3.0, taus)
        differences = approx_fprime(point, value, 1e-7)
        np.testing.assert_allclose(gradient, differences, rtol=1e-4, atol=1e-6)


def test_the_smooth_error_is_the_exact_one_up_to_rounding() -> None:
    history = random_history(np.random.default_rng(62))
    amounts = amounts_of(("price", 0.75, 20.0), ("items", 0.25, 4.0))
    exact = expected_errors(history, amounts, BUDGET, has_rest=True)
    smooth, _ = smooth_error(
        history,
        np.log([20.0, 4.0]),
        np.log([0.75, 0.25]),
        2.0,
        np.array(history.default_taus()),
    )
    assert math.sqrt(np.mean(np.square(exact.values))) == pytest.approx(math.sqrt(smooth), rel=1e-4)


def test_the_error_is_that_of_releases() -> None:
    """20,000 releases: mean squares within 7 standard errors, and 5% wrong noise is not."""
    history = random_history(np.random.default_rng(63), num_rows=60)
    amounts = amounts_of(("price", 0.75, 20.0), ("items", 0.25, 4.0))
    expected = expected_errors(history, amounts, BUDGET, has_rest=True)
    columns = [
        np.rint(np.minimum(history.values[:, j] / a.clip, 1) * a.share * STEPS)
        for j, a in enumerate(amounts)
    ]
    columns.append(STEPS - columns[0] - columns[1])
    kept = np.stack([history.kept_totals(column) for column in columns], axis=1)
    num_runs = 20_000
    noise = sample_discrete_laplace(STEPS, (num_runs, *kept.shape), rng=SeededNoise(64))
    noisy = kept + noise
    taus = history.default_taus()
    found = [
        (noisy[..., 0] * 20 / (0.75 * STEPS), history.true_totals[:, 0], expected.values[0]),
        (noisy[..., 1] * 4 / (0.25 * STEPS), history.true_totals[:, 1], expected.values[1]),
        (noisy.sum(axis=2) / STEPS, history.true_counts, expected.count),
    ]
    for (estimates, truth, error), tau in zip(found, taus, strict=True):
        squares = np.mean(((estimates - truth) / np.maximum(tau, truth)) ** 2, axis=1)
        standard_error = squares.std() / math.sqrt(num_runs)
        assert abs(squares.mean() - error**2) < 7 * standard_error
        assert abs(squares.mean() - (1.05 * error) ** 2) > 7 * standard_error


def test_more_contributions_of_a_unit_are_more_noise() -> None:
    amounts = amounts_of(("A", 0.25, 5.0), ("B", 0.75, 5.0))
    three = LaplaceLevels(epsilon=1.0, max_steps_per_unit=3 * STEPS, steps=STEPS)
    one = expected_errors(TWO_ROWS, amounts, BUDGET, has_rest=True)
    assert expected_errors(TWO_ROWS, amounts, three, has_rest=True).count == pytest.approx(
        3 * one.count, rel=1e-9
    )


def test_gaussian_noise_has_its_own_variance() -> None:
    budget = GaussianLevels(rho=0.125, max_steps_per_unit=STEPS, steps=STEPS)
    amounts = amounts_of(("A", 0.25, 5.0), ("B", 0.75, 5.0))
    errors = expected_errors(TWO_ROWS, amounts, budget, has_rest=True, taus=[TAU] * 3)
    assert errors.values[0] * TAU == pytest.approx(math.sqrt(400 * 4), rel=1e-6)


def test_amounts_and_taus_must_fit_the_history() -> None:
    only_a = amounts_of(("A", 0.5, 5.0))
    with pytest.raises(ConfigError, match="column 'B'"):
        expected_errors(TWO_ROWS, only_a, BUDGET, has_rest=True)
    both = amounts_of(("A", 0.5, 5.0), ("B", 0.5, 5.0))
    with pytest.raises(ConfigError, match="a count"):
        expected_errors(TWO_ROWS, both, BUDGET, has_rest=False)
    with pytest.raises(ConfigError, match="taus="):
        expected_errors(TWO_ROWS, both, BUDGET, has_rest=True, taus=[1.0, 1.0])
