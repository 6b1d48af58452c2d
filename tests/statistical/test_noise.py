"""The noise of every mechanism has the stated law, for small and large settings.

Each line accepts the stated scale and must refuse one that is 5% off.
"""

import math

import numpy as np
import pytest
from scipy import stats

from statistical.noise_checks import (
    assert_bernoulli,
    assert_discrete,
    assert_gaussian,
    assert_laplace,
)
from tulle.mechanisms.discrete_gaussian import (
    DiscreteGaussianConfig,
    release_discrete_gaussian,
    sample_discrete_gaussian,
)
from tulle.mechanisms.discrete_laplace import (
    DiscreteLaplaceConfig,
    release_discrete_laplace,
    sample_discrete_laplace,
)
from tulle.mechanisms.entropy import NoiseSource, OperatingSystemNoise
from tulle.mechanisms.exact import sample_bernoulli, sample_bernoulli_exp, sample_geometric
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian, sample_rounded_normal
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace, sample_rounded_laplace


def discrete_laplace_pmf(scale: float):
    return DiscreteLaplaceConfig(scale=scale).pmf


def discrete_gaussian_pmf(scale: float):
    return DiscreteGaussianConfig(scale=scale).pmf


def geometric_pmf(scale: float):
    return lambda i: np.where(i < 0, 0.0, -math.expm1(-1 / scale) * np.exp(-np.abs(i) / scale))


@pytest.mark.parametrize("scale", [0.3, 1.0, 1.7, 40.0, 3000.0])
def test_discrete_laplace_noise_has_the_stated_law(scale: float) -> None:
    def release(rng: NoiseSource, size: int) -> np.ndarray:
        config = DiscreteLaplaceConfig(scale=scale)
        return release_discrete_laplace(np.zeros(size, int), config, rng=rng)

    assert_discrete(release, discrete_laplace_pmf, scale=scale)


@pytest.mark.parametrize("scale", [1e6, 1e9])
def test_discrete_laplace_noise_of_a_large_scale_is_laplace(scale: float) -> None:
    assert_laplace(lambda rng, n: sample_discrete_laplace(scale, n, rng=rng), scale=scale)


@pytest.mark.parametrize("scale", [0.4, 1.0, 1.7, 40.0, 3000.0])
def test_discrete_gaussian_noise_has_the_stated_law(scale: float) -> None:
    def release(rng: NoiseSource, size: int) -> np.ndarray:
        config = DiscreteGaussianConfig(scale=scale)
        return release_discrete_gaussian(np.zeros(size, int), config, rng=rng)

    assert_discrete(release, discrete_gaussian_pmf, scale=scale)


@pytest.mark.parametrize("scale", [1e6, 1e9])
def test_discrete_gaussian_noise_of_a_large_scale_is_gaussian(scale: float) -> None:
    assert_gaussian(lambda rng, n: sample_discrete_gaussian(scale, n, rng=rng), stddev=scale)


@pytest.mark.parametrize("scale", [0.5, 1.0, 20.0])
def test_geometric_draws_have_the_stated_law(scale: float) -> None:
    assert_discrete(lambda rng, n: sample_geometric(scale, n, rng=rng), geometric_pmf, scale=scale)


@pytest.mark.parametrize("max_contribution", [1e-3, 1.0, 1e9])
def test_laplace_noise_has_the_stated_scale(max_contribution: float) -> None:
    config = LaplaceConfig(noise_multiplier=1.5, max_contribution=max_contribution)
    assert_laplace(
        lambda rng, n: release_laplace(np.zeros(n), config, rng=rng),
        scale=1.5 * max_contribution,
    )


@pytest.mark.parametrize("max_contribution", [1e-3, 1.0, 1e9])
def test_gaussian_noise_has_the_stated_stddev(max_contribution: float) -> None:
    config = GaussianConfig(noise_multiplier=1.5, max_contribution=max_contribution)
    assert_gaussian(
        lambda rng, n: release_gaussian(np.zeros(n), config, rng=rng),
        stddev=1.5 * max_contribution,
    )


def rounded_pmf(cdf):
    return lambda i: np.asarray(cdf(i + 0.5) - cdf(i - 0.5))


@pytest.mark.parametrize("scale", [0.6, 2.0])
def test_rounded_laplace_has_the_chances_of_its_cells(scale: float) -> None:
    assert_discrete(
        lambda rng, n: sample_rounded_laplace(scale, n, rng=rng),
        lambda scale: rounded_pmf(stats.laplace(scale=scale).cdf),
        scale=scale,
    )


@pytest.mark.parametrize("scale", [0.6, 2.0])
def test_rounded_normal_has_the_chances_of_its_cells(scale: float) -> None:
    assert_discrete(
        lambda rng, n: sample_rounded_normal(scale, n, rng=rng),
        lambda scale: rounded_pmf(stats.norm(scale=scale).cdf),
        scale=scale,
    )


def test_the_two_normals_of_a_pair_are_independent() -> None:
    draws = sample_rounded_normal(1e6, 40_000, rng=OperatingSystemNoise()).reshape(2, -1)
    signs = np.sign(draws)
    assert abs(np.sum(signs[0] * signs[1])) < 6.2 * math.sqrt(signs.shape[1])
    far = np.abs(draws) > 1e6
    expected = far[0].mean() * far[1].mean()
    assert abs(np.mean(far[0] & far[1]) - expected) < 6.2 * math.sqrt(expected / far.shape[1])


@pytest.mark.parametrize("prob", [0.2, 0.5, 0.9])
def test_coins_fall_with_the_stated_chance(prob: float) -> None:
    assert_bernoulli(lambda rng, n: sample_bernoulli(prob, n, rng=rng), prob=prob)


@pytest.mark.parametrize("exponent", [0.05, 0.7, 1.9])
def test_exponential_coins_fall_with_the_stated_chance(exponent: float) -> None:
    assert_bernoulli(
        lambda rng, n: sample_bernoulli_exp(exponent, n, rng=rng), prob=math.exp(-exponent)
    )


def test_noise_from_the_operating_system_has_the_stated_law() -> None:
    secure = OperatingSystemNoise()
    assert_discrete(
        lambda _, n: sample_discrete_laplace(2.5, n, rng=secure),
        discrete_laplace_pmf,
        scale=2.5,
        num_draws=400_000,
    )
    assert_discrete(
        lambda _, n: sample_discrete_gaussian(2.5, n, rng=secure),
        discrete_gaussian_pmf,
        scale=2.5,
        num_draws=400_000,
    )
