"""Sums of discrete Laplace noise against convolutions and negative binomials."""

import math

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError
from tulle.measure.trust.laplace_sums import (
    laplace_sum_half_width,
    laplace_sum_pmf,
    laplace_sum_stddev,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig


@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_one_noise_is_discrete_laplace(scale: float, confidence: float) -> None:
    one = DiscreteLaplaceConfig(scale=scale)
    assert laplace_sum_half_width(scale, 1.0, confidence) == one.half_width(confidence)
    assert laplace_sum_stddev(scale, 1.0) == pytest.approx(one.noise_stddev, rel=1e-12)


@pytest.mark.parametrize("num_noises", [2, 5])
def test_whole_sums_are_convolutions(num_noises: int) -> None:
    support = np.arange(-400, 401)
    one = DiscreteLaplaceConfig(scale=4.0).pmf(support)
    total = one
    for _ in range(num_noises - 1):
        total = np.convolve(total, one, mode="same")
    assert laplace_sum_pmf(4.0, num_noises, 300)[:200] == pytest.approx(total[400:600], abs=1e-12)


@pytest.mark.parametrize("shape", [0.3, 1.7, 40.0])
def test_shares_are_differences_of_negative_binomials(shape: float) -> None:
    law = stats.nbinom(shape, -math.expm1(-1 / 3))
    chances = law.pmf(np.arange(1500))
    difference = [float(np.sum(chances[k:] * chances[: 1500 - k])) for k in range(50)]
    assert laplace_sum_pmf(3.0, shape, 700)[:50] == pytest.approx(difference, abs=1e-11)


@pytest.mark.parametrize("shape", [0.5, 3.0, 1000.0])
def test_a_half_width_is_the_least_that_covers(shape: float) -> None:
    half_width = laplace_sum_half_width(5.0, shape, 0.95)
    chances = laplace_sum_pmf(5.0, shape, 20_000)
    tails = [2 * float(chances[h + 1 :].sum()) for h in (half_width, half_width - 1)]
    assert tails[0] <= 0.05 < tails[1]


def test_wide_sums_in_coarser_steps_err_on_the_safe_side() -> None:
    exact = -math.log(0.05) * 1e6  # of continuous Laplace noise
    assert exact <= laplace_sum_half_width(1e6, 1.0, 0.95) <= 1.0002 * exact + 200
    normal = stats.norm.ppf(0.975) * laplace_sum_stddev(10.0, 60e6)
    assert normal <= laplace_sum_half_width(10.0, 60e6, 0.95) <= 1.001 * normal


def test_a_confidence_beyond_float_errors_is_refused() -> None:
    with pytest.raises(ConfigError, match="confidence"):
        laplace_sum_half_width(1.0, 1.0, 1 - 1e-8)
