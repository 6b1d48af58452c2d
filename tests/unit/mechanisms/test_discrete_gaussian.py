import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.mechanisms import discrete_gaussian
from tulle.mechanisms.discrete_gaussian import (
    DiscreteGaussianConfig,
    release_discrete_gaussian,
    release_one_discrete_gaussian,
    sample_discrete_gaussian,
)
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy import events


def exact_moments(scale: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Total weight and variance by a sum of 50 digits."""
    exact = mpmath.mpf(scale)
    weights = [
        mpmath.exp(-(mpmath.mpf(i) ** 2) / (2 * exact**2)) for i in range(int(20 * scale) + 3)
    ]
    total = 2 * mpmath.fsum(weights) - 1
    return total, 2 * mpmath.fsum(i * i * w for i, w in enumerate(weights)) / total


@pytest.mark.parametrize("scale", [0.02, 0.05, 0.4, 1.0, 3.3, 7.99, 8.0, 50.0])
def test_variance_and_chances_are_those_of_the_exact_sum(scale: float) -> None:
    config = DiscreteGaussianConfig(scale=scale)
    with mpmath.workdps(50):
        total, variance = exact_moments(scale)
        assert config.noise_stddev == pytest.approx(float(mpmath.sqrt(variance)), rel=1e-12)
        assert config.pmf(0) == pytest.approx(float(1 / total), rel=1e-12)
    values = np.arange(-math.ceil(15 * scale), math.ceil(15 * scale) + 1)
    assert config.pmf(values).sum() == pytest.approx(1, rel=1e-12)


def test_the_variance_is_the_square_of_the_stddev() -> None:
    config = DiscreteGaussianConfig(scale=0.7)
    assert config.variance == config.noise_stddev**2


@pytest.mark.parametrize("scale", [0.5, 2.0, 30.0])
def test_neighbours_obey_the_concentrated_bound(scale: float) -> None:
    # Canonne, Kamath, Steinke 2020, theorem 4: Renyi divergence <= alpha / (2 scale^2).
    config = DiscreteGaussianConfig(scale=scale)
    values = np.arange(-math.ceil(12 * scale), math.ceil(12 * scale) + 1)
    for order in (1.5, 2.0, 8.0):
        log_terms = order * np.log(config.pmf(values)) + (1 - order) * np.log(
            config.pmf(values - 1)
        )
        divergence = np.logaddexp.reduce(log_terms) / (order - 1)
        assert divergence <= order / (2 * scale**2) * (1 + 1e-9)


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0, 999.0])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_interval_is_the_shortest_that_holds_its_confidence(
    scale: float, confidence: float
) -> None:
    config = DiscreteGaussianConfig(scale=scale)
    half_width = config.half_width(confidence)
    covered = config.pmf(np.arange(-half_width, half_width + 1)).sum()
    assert covered >= confidence - 1e-12
    assert half_width == 0 or covered - 2 * config.pmf(half_width) < confidence


@pytest.mark.parametrize("scale", [1001.0, 5000.5])
def test_the_interval_of_a_large_scale_is_at_most_one_step_too_wide(scale: float) -> None:
    config = DiscreteGaussianConfig(scale=scale)
    half_width = config.half_width(0.95)
    assert config.pmf(np.arange(-half_width, half_width + 1)).sum() >= 0.95
    assert config.pmf(np.arange(2 - half_width, half_width - 1)).sum() < 0.95


def test_the_event_carries_every_setting() -> None:
    config = DiscreteGaussianConfig(scale=4.0, max_contribution=3, replace_factor=1.0)
    assert config.event() == events.DiscreteGaussian(
        scale=4.0, max_contribution=3, replace_factor=1.0
    )


def test_a_released_count_knows_its_noise_interval_and_cost() -> None:
    config = DiscreteGaussianConfig(scale=4.0)
    release = release_one_discrete_gaussian(100, config, rng=SeededNoise(0))
    assert release.event == config.event()
    assert release.noise_stddev == pytest.approx(4.0)
    assert release.interval.high - release.value == 8


@pytest.mark.parametrize("size", [0, 1, 5, (), (0, 4), (3, 5), 40_001])
def test_draws_come_in_the_asked_shape(size: int | tuple[int, ...]) -> None:
    draws = sample_discrete_gaussian(2.0, size, rng=SeededNoise(0))
    assert draws.shape == (size if isinstance(size, tuple) else (size,))
    assert draws.dtype == np.int64


def test_a_tiny_scale_adds_no_noise_and_a_huge_one_fits() -> None:
    for scale in (0.02, 0.05):
        assert not sample_discrete_gaussian(scale, 10_000, rng=SeededNoise(0)).any()
    huge = sample_discrete_gaussian(2.0**40, 20, rng=SeededNoise(0))
    assert 2.0**38 < np.abs(huge).max() < 2.0**44


@pytest.mark.parametrize("scale", [0.3, 0.7, 2.5, 40.0])
def test_what_floats_leave_open_is_decided_by_the_same_exponent(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact exponent is asked for once in 2^40 draws: no sample would show a wrong one."""
    seen = []

    def compared(exponents: np.ndarray, exact: Callable[[int], Fraction], *, rng: SeededNoise):
        seen.extend(
            (float(exact(index)), exponent) for index, exponent in enumerate(exponents.tolist())
        )
        return decide_bernoulli_exps(exponents, exact, rng=rng)

    decide_bernoulli_exps = discrete_gaussian.decide_bernoulli_exps
    monkeypatch.setattr(discrete_gaussian, "decide_bernoulli_exps", compared)
    sample_discrete_gaussian(scale, 200, rng=SeededNoise(3))
    exact, rounded = np.array(seen).T
    assert np.all(np.abs(exact - rounded) <= 2.0**-48 * (1 + exact))
    assert np.unique(exact).size >= 3


def test_counts_keep_their_shape() -> None:
    config = DiscreteGaussianConfig(scale=2.0)
    assert release_discrete_gaussian(np.zeros((2, 3), int), config, rng=SeededNoise(0)).shape == (
        2,
        3,
    )
    assert release_discrete_gaussian([], config, rng=SeededNoise(0)).shape == (0,)


def test_real_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="release_gaussian"):
        release_discrete_gaussian([0.5], DiscreteGaussianConfig(scale=2.0), rng=SeededNoise(0))


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.01, 2.0**41, math.inf, math.nan])
def test_a_scale_out_of_range_is_refused(scale: float) -> None:
    with pytest.raises(ConfigError, match="scale="):
        DiscreteGaussianConfig(scale=scale)
    with pytest.raises(ConfigError, match="scale="):
        sample_discrete_gaussian(scale, 1, rng=SeededNoise(0))


def test_a_confidence_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="confidence=0"):
        DiscreteGaussianConfig(scale=1.0).half_width(0.0)
