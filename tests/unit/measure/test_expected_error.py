"""Expected errors against simulated ones, and against sums over the exact law of the noise."""

import math

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import (
    expected_relative_errors,
    rmsre,
    smallest_count_within,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.gaussian import GaussianConfig

COUNTS = np.array([0, 3, 20, 500])
DEVIATIONS_OF_ALARM = 6.2


def test_errors_are_those_of_a_simulation() -> None:
    noise, bias, num_draws = DiscreteLaplaceConfig(scale=8.0), np.array([0, 0, -4, -30]), 100_000
    raw_counts = np.tile(COUNTS + bias, (num_draws, 1))
    noisy = release_discrete_laplace(raw_counts, noise, rng=SeededNoise(1))
    ratios = ((noisy - COUNTS) / np.maximum(5, COUNTS)) ** 2
    measured, spread = ratios.mean(axis=0), ratios.std(axis=0) / math.sqrt(num_draws)

    def is_plausible(variance: float) -> bool:
        stated = expected_relative_errors(COUNTS, variance, bias=bias, tau=5) ** 2
        return bool(np.all(np.abs(measured - stated) < DEVIATIONS_OF_ALARM * spread))

    assert is_plausible(noise.variance)
    assert not is_plausible(0.95**2 * noise.variance)
    assert not is_plausible(1.05**2 * noise.variance)


def test_errors_follow_from_the_definition() -> None:
    errors = expected_relative_errors([0, 10, 100], [9.0, 16.0, 64.0], bias=[0, -3, 6], tau=5)
    assert errors == pytest.approx([3 / 5, 5 / 10, 10 / 100])


def test_one_variance_serves_all_slices() -> None:
    one = expected_relative_errors(COUNTS, 4.0, tau=5)
    assert one == pytest.approx(expected_relative_errors(COUNTS, np.full(4, 4.0), tau=5))


def test_the_mean_error_is_a_root_mean_square() -> None:
    assert rmsre([10, 10], [4.0, 16.0], tau=5) == pytest.approx(math.sqrt((0.2**2 + 0.4**2) / 2))
    assert rmsre([10, 10], 0.0, bias=[2, -4], tau=5) == pytest.approx(math.sqrt(0.1))


@pytest.mark.parametrize("scale", [0.5, 3.0, 77.7])
@pytest.mark.parametrize("relative_error", [0.05, 0.1, 1 / 3])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_smallest_count_is_measured_well_and_the_next_smaller_is_not(
    scale: float, relative_error: float, confidence: float
) -> None:
    noise = DiscreteLaplaceConfig(scale=scale)
    count = smallest_count_within(relative_error, noise.half_width(confidence))

    def chance_within(count: int) -> float:
        reach = math.floor(relative_error * count * (1 + 1e-12))
        return float(noise.pmf(np.arange(-reach, reach + 1)).sum())

    assert chance_within(count) >= confidence - 1e-12
    assert count == 1 or chance_within(count - 1) < confidence


def test_normal_noise_agrees_with_its_exact_law() -> None:
    noise = GaussianConfig(noise_multiplier=40.0)
    assert smallest_count_within(0.1, noise.half_width()) == math.ceil(1.959964 * 40 / 0.1)


def test_rounding_does_not_move_the_count() -> None:
    # 3 / 0.1 is 30 and 6 / 0.05 is 120, although neither 0.1 nor 0.05 is a float.
    assert smallest_count_within(0.1, 3.0) == 30
    assert smallest_count_within(0.05, 6.0) == 120


def test_a_count_without_noise_is_measured_from_one_on() -> None:
    assert smallest_count_within(0.1, 0.0) == 1


@pytest.mark.parametrize("tau", [0.0, -1.0, math.inf, math.nan])
def test_a_tau_that_divides_by_nothing_is_refused(tau: float) -> None:
    with pytest.raises(ConfigError, match="tau"):
        expected_relative_errors(COUNTS, 1.0, tau=tau)


def test_what_is_no_count_or_variance_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="expected_counts"):
        expected_relative_errors([-1.0], 1.0, tau=5)
    with pytest.raises(DataError, match="noise_variances"):
        expected_relative_errors([1.0], math.nan, tau=5)
    with pytest.raises(DataError, match="noise_variances has shape"):
        expected_relative_errors([1.0, 2.0], [1.0, 2.0, 3.0], tau=5)
    with pytest.raises(DataError, match="bias"):
        expected_relative_errors([1.0], 1.0, bias=math.inf, tau=5)
    with pytest.raises(DataError, match="at least one slice"):
        rmsre([], 1.0, tau=5)


@pytest.mark.parametrize("relative_error", [0.0, -0.1, math.inf])
def test_a_senseless_relative_error_is_refused(relative_error: float) -> None:
    with pytest.raises(ConfigError, match="relative_error"):
        smallest_count_within(relative_error, 1.0)


@pytest.mark.parametrize("half_width", [-1.0, math.inf, math.nan])
def test_a_senseless_width_is_refused(half_width: float) -> None:
    with pytest.raises(ConfigError, match="half_width"):
        smallest_count_within(0.1, half_width)
