import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, discrete_laplace_law
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.staircase_noise import (
    StaircaseAim,
    StaircaseConfig,
    best_inner_share,
    best_inner_share_for_size,
    release_staircase,
    sample_staircase,
    staircase_level_law,
)
from unit.mechanisms.continuous_staircase import continuous_variance

CASES = [
    StaircaseConfig(epsilon=epsilon, sensitivity=sensitivity, aim=aim)
    for epsilon in (0.2, 1.0, 3.0)
    for sensitivity in (1, 2, 5, 12)
    for aim in StaircaseAim
]
each_case = pytest.mark.parametrize(
    "config", CASES, ids=lambda c: f"{c.epsilon}-{c.sensitivity}-{c.aim.value}"
)


def _support(config: StaircaseConfig) -> np.ndarray:
    reach = math.ceil(60 / config.epsilon + 2) * config.sensitivity
    return np.arange(-reach, reach + 1)


@each_case
def test_neighbours_are_never_more_than_one_level_apart(config: StaircaseConfig) -> None:
    values = np.arange(-6 * config.sensitivity, 6 * config.sensitivity + 1)
    for shift in range(config.sensitivity + 1):
        difference = config.level_of(values) - config.level_of(values + shift)
        assert np.abs(difference).max() <= 1
    assert np.abs(config.level_of(values) - config.level_of(values + config.sensitivity)).max() == 1


@each_case
def test_one_level_costs_at_most_epsilon_exactly(config: StaircaseConfig) -> None:
    exact = Fraction(config.epsilon)
    assert exact * (1 - Fraction(1, 10**14)) < config.realised_epsilon <= exact
    assert config.event().epsilon == config.epsilon
    assert config.event().delta == 0


@each_case
def test_chances_add_up_to_1_and_have_the_stated_moments(config: StaircaseConfig) -> None:
    values = _support(config)
    chances = config.pmf(values)
    assert chances.sum() == pytest.approx(1, rel=1e-12)
    assert (chances * values**2).sum() == pytest.approx(config.variance, rel=1e-11)
    assert (chances * np.abs(values)).sum() == pytest.approx(config.mean_size, rel=1e-11)
    assert config.noise_stddev**2 == pytest.approx(config.variance)


@each_case
def test_tails_are_sums_of_chances(config: StaircaseConfig) -> None:
    values = _support(config)
    chances = config.pmf(values)
    for size in (1, 2, config.sensitivity, 2 * config.sensitivity + 1):
        expected = chances[values >= size].sum()
        assert float(config.tail(size)) == pytest.approx(expected, rel=1e-9)


@each_case
def test_the_law_of_the_level_is_that_of_the_chances(config: StaircaseConfig) -> None:
    law = staircase_level_law(config)
    values = _support(config)
    levels = config.level_of(values)
    for level in (1, 2, 3):
        expected = config.pmf(values)[levels >= level].sum()
        assert math.exp(-(level - law.offset) / law.scale) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("epsilon", [1e-6, 0.2, 1.0, 30.0])
@pytest.mark.parametrize("sensitivity", [1, 7, 400])
def test_bounds_on_the_offset_enclose_it(epsilon: float, sensitivity: int) -> None:
    config = StaircaseConfig(epsilon=epsilon, sensitivity=sensitivity)
    law = staircase_level_law(config)
    inner, outer = 2 * config.inner_width - 1, 2 * sensitivity
    with mpmath.workdps(120):
        scale = mpmath.mpf(config.scale)
        exact = scale * mpmath.log(outer / (inner + (outer - inner) * mpmath.exp(-1 / scale)))
        for num_digits in (40, 61, 83):
            low, high = (mpmath.mpf(str(bound)) for bound in law.offset_bounds(num_digits))
            assert low <= exact <= high
            assert high - low < mpmath.mpf(10) ** (8 - num_digits)
        assert abs(law.offset - exact) < 2.0**-48 * (1 + config.scale)
    assert 0 <= law.offset <= 1


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_with_a_sensitivity_of_1_it_is_discrete_laplace_noise(epsilon: float) -> None:
    config = StaircaseConfig(epsilon=epsilon)
    laplace = DiscreteLaplaceConfig(scale=config.scale)
    values = np.arange(-30, 31)
    np.testing.assert_allclose(config.pmf(values), laplace.pmf(values), rtol=1e-10)
    assert config.variance == pytest.approx(laplace.variance, rel=1e-10)
    assert staircase_level_law(config).offset == discrete_laplace_law(config.scale).offset


@pytest.mark.parametrize("aim", StaircaseAim)
@pytest.mark.parametrize("sensitivity", [1, 2, 3, 10, 57, 400])
@pytest.mark.parametrize("epsilon", [0.001, 0.02, 0.5, 1.0, 2.0, 5.0, 12.0, 300.0])
def test_the_inner_width_is_the_best_of_all(
    epsilon: float, sensitivity: int, aim: StaircaseAim
) -> None:
    config = StaircaseConfig(epsilon=epsilon, sensitivity=sensitivity, aim=aim)
    power = 2 if aim is StaircaseAim.VARIANCE else 1
    best = min(config._mean_power(width, power) for width in range(1, sensitivity + 1))
    assert config._mean_power(config.inner_width, power) <= best * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.001, 0.0099, 0.0101, 0.3, 1.0, 4.0, 10.0])
def test_the_share_of_least_variance_is_that_of_a_numeric_search(epsilon: float) -> None:
    with mpmath.workdps(50):
        b = mpmath.exp(-epsilon)
        root = mpmath.cbrt((b - 2 * b**2 + 2 * b**4 - b**5) / 2)
        exact = float(-b / (1 - b) + root / (1 - b) ** 2)
    assert best_inner_share(epsilon) == pytest.approx(exact, abs=1e-7)

    def variance(share: float) -> float:
        level = np.arange(0, math.ceil(60 / epsilon))
        odds = np.exp(-epsilon * (level + 1))
        cubes = ((level + 1 + share) ** 3 - (level + share) ** 3) / 3
        return float((share**3 / 3 + odds @ cubes) / (share + odds.sum()))

    found = minimize_scalar(variance, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    assert best_inner_share(epsilon) == pytest.approx(found.x, abs=1e-3)
    assert continuous_variance(epsilon, 1.0) == pytest.approx(found.fun, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "variance"), [(1.0, 306_897), (2.0, 67_637), (4.0, 10_397), (6.0, 2_257)]
)
def test_variances_on_a_range_of_400_are_the_published_ones(epsilon: float, variance: int) -> None:
    assert round(continuous_variance(epsilon, 400)) == variance
    config = StaircaseConfig(epsilon=epsilon, sensitivity=400)
    assert config.variance == pytest.approx(continuous_variance(epsilon, 400), rel=3e-5)
    laplace = DiscreteLaplaceConfig(scale=400 / epsilon)
    assert config.variance < laplace.variance


def test_the_share_of_least_size_is_that_of_the_paper() -> None:
    assert best_inner_share_for_size(2.0) == pytest.approx(1 / (1 + math.e))
    small = StaircaseConfig(epsilon=2.0, sensitivity=400, aim=StaircaseAim.SIZE)
    assert small.inner_width == pytest.approx(400 / (1 + math.e), abs=1.5)
    assert small.mean_size < StaircaseConfig(epsilon=2.0, sensitivity=400).mean_size


def test_noise_is_added_to_integers_of_any_shape() -> None:
    config = StaircaseConfig(epsilon=1.0, sensitivity=3)
    raw = np.arange(6).reshape(2, 3)
    noise = sample_staircase(config, (2, 3), rng=SeededNoise(4))
    assert (release_staircase(raw, config, rng=SeededNoise(4)) == raw + noise).all()
    assert release_staircase(np.array([], int), config, rng=SeededNoise(0)).size == 0
    with pytest.raises(DataError, match="integers"):
        release_staircase([0.5], config, rng=SeededNoise(0))


def test_the_operating_system_does_not_repeat_noise() -> None:
    config = StaircaseConfig(epsilon=1.0, sensitivity=30)
    one, two = (sample_staircase(config, 50, rng=release_rng()) for _ in range(2))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": 1e-13},
        {"epsilon": 1e4},
        {"sensitivity": 0},
        {"sensitivity": 1.5},
        {"sensitivity": 2**41},
        {"aim": "variance"},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        StaircaseConfig(**({"epsilon": 1.0, "sensitivity": 4} | wrong))
