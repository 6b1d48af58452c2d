"""The statistical kit accepts right noise and refuses what it must refuse.

The noise here comes from numpy, so that kit and samplers are tested apart.
"""

import numpy as np
import pytest
from scipy import stats

from statistical.noise_checks import (
    FALSE_ALARM,
    Sampler,
    assert_bernoulli,
    assert_discrete,
    assert_gaussian,
    assert_laplace,
    assert_one_lattice,
)
from tulle.mechanisms.entropy import NoiseSource


def numpy_generator(rng: NoiseSource) -> np.random.Generator:
    return np.random.default_rng(int(rng.words(1)[0]))


def normals(stddev: float) -> Sampler:
    return lambda rng, size: numpy_generator(rng).normal(0, stddev, size)


def laplaces(scale: float) -> Sampler:
    return lambda rng, size: numpy_generator(rng).laplace(0, scale, size)


def two_sided_geometrics(scale: float) -> Sampler:
    def sample(rng: NoiseSource, size: int) -> np.ndarray:
        first, second = numpy_generator(rng).geometric(-np.expm1(-1 / scale), (2, size))
        return first - second

    return sample


def two_sided_geometric_pmf(scale: float):
    return lambda values: np.tanh(0.5 / scale) * np.exp(-np.abs(values) / scale)


def coins(prob: float) -> Sampler:
    return lambda rng, size: numpy_generator(rng).random(size) < prob


def check_discrete(sampler: Sampler, scale: float, **options: int) -> None:
    assert_discrete(sampler, two_sided_geometric_pmf, scale=scale, **options)


@pytest.mark.parametrize("seed", range(5))
def test_right_noise_is_accepted(seed: int) -> None:
    assert_gaussian(normals(3.0), stddev=3.0, seed=seed)
    assert_laplace(laplaces(0.2), scale=0.2, seed=seed)
    check_discrete(two_sided_geometrics(4.0), 4.0, seed=seed)
    assert_bernoulli(coins(0.3), prob=0.3, seed=seed)


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_noise_of_a_five_percent_wrong_scale_is_refused(factor: float) -> None:
    with pytest.raises(AssertionError, match="is wrong"):
        assert_gaussian(normals(3.0 * factor), stddev=3.0)
    with pytest.raises(AssertionError, match="is wrong"):
        assert_laplace(laplaces(3.0 * factor), scale=3.0)
    with pytest.raises(AssertionError, match="is wrong"):
        check_discrete(two_sided_geometrics(3.0 * factor), 3.0)
    with pytest.raises(AssertionError, match="is wrong"):
        assert_bernoulli(coins(0.3 * factor), prob=0.3)


def test_wrong_shape_with_the_right_variance_is_refused() -> None:
    root = np.sqrt(0.5)
    with pytest.raises(AssertionError, match="shape"):
        assert_gaussian(laplaces(root), stddev=1.0)
    with pytest.raises(AssertionError, match="shape"):
        assert_laplace(normals(np.sqrt(2)), scale=1.0)
    with pytest.raises(AssertionError, match="bins"):
        check_discrete(lambda rng, size: np.rint(normals(4 * np.sqrt(2))(rng, size)), 4.0)


def test_noise_that_is_the_same_in_every_call_is_refused() -> None:
    with pytest.raises(AssertionError, match="share their noise"):
        assert_gaussian(lambda _, size: np.random.default_rng(5).normal(size=size), stddev=1.0)
    with pytest.raises(AssertionError, match="share their noise"):
        assert_laplace(lambda _, size: np.random.default_rng(5).laplace(size=size), scale=1.0)


def test_noise_that_returns_with_the_other_sign_is_refused() -> None:
    calls = []

    def sample(_: NoiseSource, size: int) -> np.ndarray:
        calls.append(size)
        return (-1) ** len(calls) * np.random.default_rng(5).normal(size=size)

    with pytest.raises(AssertionError, match="share their noise"):
        assert_gaussian(sample, stddev=1.0)


def test_constant_noise_is_refused() -> None:
    with pytest.raises(AssertionError):
        assert_gaussian(lambda _, size: np.zeros(size), stddev=1.0)
    with pytest.raises(AssertionError):
        assert_laplace(lambda _, size: np.full(size, 0.7), scale=1.0)
    with pytest.raises(AssertionError):
        check_discrete(lambda _, size: np.zeros(size, int), 1.0)


def test_shifted_noise_is_refused() -> None:
    with pytest.raises(AssertionError, match="is wrong"):
        assert_gaussian(lambda rng, size: normals(1.0)(rng, size) + 0.05, stddev=1.0)
    with pytest.raises(AssertionError, match="is wrong"):
        check_discrete(lambda rng, size: two_sided_geometrics(2.0)(rng, size) + 1, 2.0)


def test_noise_that_stops_at_three_deviations_is_refused() -> None:
    def sample(rng: NoiseSource, size: int) -> np.ndarray:
        uniform = numpy_generator(rng).random(size)
        return stats.norm.ppf(stats.norm.cdf(-3) + uniform * (1 - 2 * stats.norm.sf(3)))

    with pytest.raises(AssertionError, match="tail"):
        assert_gaussian(sample, stddev=1.0)


def test_a_sample_too_small_to_tell_five_percent_is_refused() -> None:
    with pytest.raises(AssertionError, match="cannot tell"):
        assert_gaussian(normals(1.0), stddev=1.0, num_draws=2000)
    with pytest.raises(AssertionError, match="cannot tell"):
        check_discrete(two_sided_geometrics(2.0), 2.0, num_draws=2000)
    with pytest.raises(AssertionError, match="cannot tell"):
        assert_bernoulli(coins(0.01), prob=0.01)


def test_a_sampler_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(AssertionError, match="asked for"):
        assert_gaussian(lambda rng, _: normals(1.0)(rng, 3), stddev=1.0)


def test_outputs_off_the_grid_are_refused() -> None:
    def on_grid(raw: np.ndarray, rng: NoiseSource) -> np.ndarray:
        return np.rint((raw + normals(1.0)(rng, len(raw))) * 8) / 8

    def off_grid(raw: np.ndarray, rng: NoiseSource) -> np.ndarray:
        return raw + normals(1.0)(rng, len(raw))

    assert_one_lattice(on_grid, (0.0, 0.3), width=0.125)
    with pytest.raises(AssertionError, match="not multiples"):
        assert_one_lattice(off_grid, (0.0, 0.3), width=0.125)


def test_the_false_alarm_chance_is_the_one_of_the_house_style() -> None:
    assert FALSE_ALARM <= 1e-9
