"""Expected errors against simulated ones, and against sums over the exact law of the noise."""

import math

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError, DataError
from tulle.measure import expected_error
from tulle.measure.expected_error import (
    NoisePart,
    SharedNoise,
    expected_relative_errors,
    half_width_beside_normal,
    rmsre,
    smallest_count_within,
    sum_half_width,
    sum_stddev,
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


def convolved_law(scale: float, weights: list[int]) -> np.ndarray:
    """Chances of -n, ..., n, by convolving one dilated law after the other."""
    reach = math.ceil(45 * scale)
    law = np.ones(1)
    for weight in weights:
        one = np.zeros(2 * reach * weight + 1)
        one[::weight] = DiscreteLaplaceConfig(scale=scale).pmf(np.arange(-reach, reach + 1))
        law = np.convolve(law, one)
    return law


def least_half_width(law: np.ndarray, confidence: float) -> int:
    middle = len(law) // 2
    inside = [law[middle - h : middle + h + 1].sum() for h in range(middle + 1)]
    return next(h for h, chance in enumerate(inside) if chance >= confidence)


@pytest.mark.parametrize("scale", [0.25, 0.9, 4.0])
@pytest.mark.parametrize("weights", [[1], [1, 1], [1] * 7, [1, 2, 3], [5, 5, 1]])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_half_width_is_the_least_one_that_convolution_allows(
    scale: float, weights: list[int], confidence: float
) -> None:
    part = NoisePart(
        noise=DiscreteLaplaceConfig(scale=scale), weights=tuple(float(w) for w in weights)
    )
    expected = least_half_width(convolved_law(scale, weights), confidence)
    assert sum_half_width(part, confidence=confidence) == expected


def test_parts_of_different_noise_are_convolved_too() -> None:
    law = np.convolve(convolved_law(3.0, [1, 1]), convolved_law(0.7, [4]))
    half_width = sum_half_width(
        NoisePart(noise=DiscreteLaplaceConfig(scale=3.0), weights=(1.0, -1.0)),
        NoisePart(noise=DiscreteLaplaceConfig(scale=0.7), weights=(4.0,)),
        confidence=0.9,
    )
    assert half_width == least_half_width(law, 0.9)


@pytest.mark.parametrize("scale", [50.0, 3000.0])
def test_wide_noise_is_rounded_up_by_three_percent_at_most(scale: float) -> None:
    noise = DiscreteLaplaceConfig(scale=scale)
    half_width = sum_half_width(NoisePart(noise=noise, weights=(1.0,)), confidence=0.95)
    exact = noise.half_width(0.95)
    assert exact - 1e-3 * scale <= half_width <= exact + scale / 32 + 1


def test_fractional_weights_are_rounded_up() -> None:
    noise = DiscreteLaplaceConfig(scale=20.0)
    part = NoisePart(noise=noise, weights=(0.9, -0.1, 0.1))
    law = convolved_law(20.0, [9, 1, 1])
    exact = least_half_width(law, 0.95) / 10
    assert exact <= sum_half_width(part, confidence=0.95) <= 1.05 * exact


def test_stddev_adds_squares() -> None:
    noise = DiscreteLaplaceConfig(scale=2.0)
    part = NoisePart(noise=noise, weights=(3.0, 4.0))
    assert sum_stddev(part, part) == pytest.approx(5 * math.sqrt(2) * noise.noise_stddev)


def test_gaussian_sums_are_normal() -> None:
    noise = GaussianConfig(noise_multiplier=7.0)
    half_width = sum_half_width(NoisePart(noise=noise, weights=(1.0,) * 4), confidence=0.95)
    assert half_width == pytest.approx(14 * stats.norm.isf(0.025), rel=1e-5)


def test_mixed_noise_is_refused() -> None:
    parts = [
        NoisePart(noise=GaussianConfig(noise_multiplier=7.0), weights=(1.0,)),
        NoisePart(noise=DiscreteLaplaceConfig(scale=2.0), weights=(1.0,)),
    ]
    with pytest.raises(ConfigError, match="all discrete Laplace or all Gaussian"):
        sum_half_width(*parts, confidence=0.95)


@pytest.mark.parametrize(("scale", "stddev"), [(1.0, 10.0), (10.0, 1.0), (200.0, 300.0)])
@pytest.mark.parametrize("shape", [1, 3])
def test_half_width_beside_a_normal_number_covers_exactly(
    scale: float, stddev: float, shape: int
) -> None:
    # By characteristic functions of the continuous law, which is near enough at these sizes,
    # or of the sum over all integers where it is not.
    half_width = half_width_beside_normal(
        SharedNoise(scale=scale, shape=shape), stddev, confidence=0.9
    )
    law = convolved_law(scale, [1] * shape) if scale < 100 else None
    if law is None:
        rng = np.random.default_rng(1)
        values = rng.laplace(scale=scale, size=(400_000, shape)).sum(axis=1)
        chances = np.full(len(values), 1 / len(values))
    else:
        values, chances = np.arange(len(law)) - len(law) // 2, law
    covered = chances @ (
        stats.norm.cdf((half_width - values) / stddev)
        - stats.norm.cdf((-half_width - values) / stddev)
    )
    assert covered == pytest.approx(0.9, abs=1e-5 if law is not None else 3e-3)


def test_more_shares_than_needed_make_more_noise() -> None:
    one, three = (SharedNoise(scale=5.0, shape=shape) for shape in (1, 3))
    assert three.noise_stddev == pytest.approx(math.sqrt(3) * one.noise_stddev)


def chances_from_zero(noise: SharedNoise) -> np.ndarray:
    """Chances of 0, 1, 2, ..., of one sign."""
    chances = expected_error._size_probs(noise.scale, noise.shape).copy()
    chances[1:] /= 2
    return chances


@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_one_noise_in_shares_is_discrete_laplace(scale: float, confidence: float) -> None:
    one = DiscreteLaplaceConfig(scale=scale)
    assert SharedNoise(scale=scale).half_width(confidence) == one.half_width(confidence)
    assert SharedNoise(scale=scale).noise_stddev == pytest.approx(one.noise_stddev, rel=1e-12)


@pytest.mark.parametrize("num_noises", [2, 5])
def test_whole_sums_are_convolutions(num_noises: int) -> None:
    support = np.arange(-400, 401)
    one = DiscreteLaplaceConfig(scale=4.0).pmf(support)
    total = one
    for _ in range(num_noises - 1):
        total = np.convolve(total, one, mode="same")
    chances = chances_from_zero(SharedNoise(scale=4.0, shape=num_noises))[:200]
    assert chances == pytest.approx(total[400 : 400 + len(chances)], abs=1e-12)
    assert total[400 + len(chances) : 600] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("shape", [0.3, 1.7, 40.0])
def test_shares_are_differences_of_negative_binomials(shape: float) -> None:
    law = stats.nbinom(shape, -math.expm1(-1 / 3))
    chances = law.pmf(np.arange(1500))
    difference = [float(np.sum(chances[k:] * chances[: 1500 - k])) for k in range(50)]
    shared = chances_from_zero(SharedNoise(scale=3.0, shape=shape))
    assert shared[:50] == pytest.approx(difference, abs=1e-11)


@pytest.mark.parametrize("shape", [0.5, 3.0, 1000.0])
def test_a_shared_half_width_is_the_least_that_covers(shape: float) -> None:
    noise = SharedNoise(scale=5.0, shape=shape)
    half_width = noise.half_width(0.95)
    chances = expected_error._size_probs(noise.scale, noise.shape)
    tails = [float(chances[h + 1 :].sum()) for h in (half_width, half_width - 1)]
    assert tails[0] <= 0.05 < tails[1]


def test_wide_sums_in_coarser_steps_err_on_the_safe_side() -> None:
    exact = -math.log(0.05) * 1e6  # of continuous Laplace noise
    assert exact <= SharedNoise(scale=1e6).half_width(0.95) <= 1.0002 * exact + 200
    many = SharedNoise(scale=10.0, shape=60e6)
    normal = stats.norm.ppf(0.975) * many.noise_stddev
    assert normal <= many.half_width(0.95) <= 1.001 * normal


def test_a_confidence_beyond_float_errors_is_refused() -> None:
    with pytest.raises(ConfigError, match="confidence"):
        SharedNoise(scale=1.0).half_width(1 - 1e-8)
