"""Monotone counts are the weighted projection, and leave reach mostly alone."""

import numpy as np
import pytest

from tulle.measure.reach.least_distance import LinearSystem, nearest_point
from tulle.measure.reach.monotone_counts import isotonic_regression, monotone_counts


def nearest_rising(values: np.ndarray, weights: np.ndarray, least: float) -> np.ndarray:
    """By the general solver, in units in which all weights are 1."""
    size = len(values)
    rows = np.zeros((size, size))
    rows[np.arange(size), np.arange(size)] = -1.0
    rows[np.arange(1, size), np.arange(size - 1)] = 1.0
    limits = np.zeros(size)
    limits[0] = -least
    system = LinearSystem(
        upper=rows, upper_limits=limits, equal=np.zeros((0, size)), equal_limits=np.zeros(0)
    ).scaled(1 / np.sqrt(weights))
    return nearest_point(values * np.sqrt(weights), system).point / np.sqrt(weights)


@pytest.mark.parametrize("seed", range(20))
def test_pooling_gives_the_nearest_rising_sequence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=7), rng.uniform(0.2, 2, 7)
    np.testing.assert_allclose(
        isotonic_regression(values, weights), nearest_rising(values, weights, -100.0), atol=1e-8
    )


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_nearest_in_their_tail_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.normal([50, 20, 5, 0, 0, 0], 10, (1, 6))
    weights = 1 / np.arange(1, 7)
    expected = nearest_rising(np.cumsum(counts[0, ::-1]), weights, 0.0)
    result = monotone_counts(counts)[0]
    assert (result >= 0).all()
    np.testing.assert_allclose(np.cumsum(result[::-1]), expected, atol=1e-7)


def test_counts_without_contradiction_stay_as_they_are() -> None:
    counts = np.array([[9.0, 4.0, 1.0], [0.0, 0.0, 2.0]])
    np.testing.assert_allclose(monotone_counts(counts), counts)
    assert monotone_counts(np.zeros((0, 3))).shape == (0, 3)


def test_empty_buckets_do_not_inflate_reach_as_cutting_at_zero_would() -> None:
    noise = np.random.default_rng(1).laplace(scale=10, size=(4000, 20))
    counts = noise + np.array([1000, *[0] * 19])
    bias = monotone_counts(counts).sum(axis=1).mean() - 1000
    cut_bias = np.maximum(counts, 0).sum(axis=1).mean() - 1000
    # The mean of 4,000 sums with deviation 63 is off by 1 in each standard error.
    assert abs(bias) < 7
    assert cut_bias > 80
