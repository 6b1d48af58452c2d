"""Ranges of ratios hold every ratio of what lies in their parts, and no more."""

import numpy as np
import pytest

from tulle.lab.sketches.consistent_reach import LinearSystem, nearest_point
from tulle.measure.reach.noisy_numbers import (
    NoisyNumbers,
    Range,
    average_range,
    isotonic_regression,
    monotone_counts,
    share_range,
)
from tulle.privacy.events import DiscreteLaplace


def around(value: float, half_width: float) -> Range:
    return Range.around(np.array([value]), half_width)


def test_a_share_lies_between_the_extremes_of_its_box() -> None:
    rng = np.random.default_rng(1)
    found = share_range(around(30.0, 5.0), around(60.0, 20.0))
    chosen, others = rng.uniform(25, 35, 100_000), rng.uniform(40, 80, 100_000)
    shares = chosen / (chosen + others)
    assert found.lows[0] <= shares.min() <= found.lows[0] + 0.01
    assert found.highs[0] >= shares.max() >= found.highs[0] - 0.01


@pytest.mark.parametrize(
    ("chosen", "others", "expected"),
    [(-50.0, 100.0, (0.0, 0.0)), (100.0, -50.0, (1.0, 1.0)), (0.0, 0.0, (0.0, 1.0))],
)
def test_shares_of_next_to_nothing_stay_between_0_and_1(
    chosen: float, others: float, expected: tuple[float, float]
) -> None:
    found = share_range(around(chosen, 10.0), around(others, 10.0))
    assert (found.lows[0], found.highs[0]) == expected


def test_an_average_lies_within_what_its_sums_allow() -> None:
    counts = np.array([40.0, 30.0, 20.0, 10.0])
    frequencies = np.arange(1, 5)
    sums = np.array([[counts @ (frequencies - centre) for centre in frequencies]])
    found = average_range(
        sums, np.full(4, 12.0), around(100.0, 10.0), centres=frequencies.astype(float), most=4
    )
    # Every c bounds it; the nearest to the average of 2 gives 2 + [-12, 12] / 90.
    assert found.lows[0] == pytest.approx(2 - 12 / 90)
    assert found.highs[0] == pytest.approx(2 + 12 / 90)


def test_an_average_over_nobody_may_be_anything() -> None:
    found = average_range(
        np.zeros((1, 3)), np.full(3, 5.0), around(0.0, 5.0), centres=np.arange(1.0, 4.0), most=3
    )
    assert (found.lows[0], found.highs[0]) == (1.0, 3.0)


def test_numbers_of_a_slice_are_its_release() -> None:
    numbers = NoisyNumbers.sums(np.array([5.0, 7.0]), stddev=2.0, half_width=4.0, confidence=0.9)
    release = numbers.release(1, DiscreteLaplace(scale=1.0))
    assert (release.value, release.noise_stddev) == (7.0, 2.0)
    assert (release.interval.low, release.interval.high) == (3.0, 11.0)
    assert release.interval.confidence == 0.9


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
