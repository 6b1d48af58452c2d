import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.labels.linear.bounded_rows import BoundedFeatures
from tulle.labels.linear.label_sums import LabelSumsConfig, SumsNoise
from tulle.labels.linear.noise_choice import best_noise, least_rows_for_sums
from tulle.labels.linear.one_hot_rows import OneHotFields
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.randomized_response import RandomizedResponseConfig


def fields(num_fields: int) -> OneHotFields:
    return OneHotFields(num_ids=(10,) * num_fields)


@pytest.mark.parametrize("cap", [None, 2])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("num_fields", [1, 5, 12, 40])
def test_the_noise_chosen_is_the_smaller_of_the_two(
    num_fields: int, epsilon: float, cap: int | None
) -> None:
    chosen = best_noise(
        fields(num_fields), epsilon=epsilon, delta=1e-6, max_conversions_per_unit=cap
    )
    deviations = [
        LabelSumsConfig.for_epsilon(
            fields(num_fields),
            epsilon=epsilon,
            delta=1e-6,
            noise=law,
            max_conversions_per_unit=cap,
        ).noise_stddev
        for law in SumsNoise
    ]
    assert chosen.noise_stddev == min(deviations)
    assert chosen.max_conversions_per_unit == cap


def test_many_fields_favour_gaussian_noise_and_few_laplace() -> None:
    assert best_noise(fields(2), epsilon=1.0, delta=1e-6).noise is SumsNoise.LAPLACE
    assert best_noise(fields(30), epsilon=1.0, delta=1e-6).noise is SumsNoise.GAUSSIAN
    assert best_noise(fields(30), epsilon=1.0).noise is SumsNoise.LAPLACE


def test_real_features_have_gaussian_noise_only() -> None:
    real = BoundedFeatures(num_columns=3, max_norm=2.0)
    assert best_noise(real, epsilon=1.0, delta=1e-6).noise is SumsNoise.GAUSSIAN
    with pytest.raises(ConfigError, match="delta=0"):
        best_noise(real, epsilon=1.0)


def test_the_crossover_with_randomized_response_is_the_published_one() -> None:
    assert least_rows_for_sums(11, 1.0) == pytest.approx(263, abs=1)
    assert least_rows_for_sums(11, 3.0) == pytest.approx(488, abs=2)
    formula = 2 * 11**2 * (math.e - 1) ** 2 / math.e
    assert least_rows_for_sums(11, 1.0) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_at_the_crossover_both_ways_have_the_same_variance(epsilon: float) -> None:
    num_rows = least_rows_for_sums(11, epsilon)
    response = BinaryChannel.of_response(RandomizedResponseConfig(epsilon=epsilon))
    of_responses = num_rows * float(response.target_variance(0))
    config = LabelSumsConfig.for_epsilon(fields(10), epsilon=epsilon, noise=SumsNoise.LAPLACE)
    assert of_responses == pytest.approx(2 * (11 / epsilon) ** 2, rel=1e-9)
    # Whole-number noise is a little smaller than the continuous one.
    assert config.noise_stddev**2 == pytest.approx(of_responses, rel=0.02)
    assert config.noise_stddev**2 < 1.1 * of_responses
    assert config.noise_stddev**2 > 0.9 * of_responses


def test_impossible_settings_are_refused() -> None:
    for epsilon in (0.0, -1.0, np.inf):
        with pytest.raises(ConfigError, match="epsilon"):
            least_rows_for_sums(11, epsilon)
    with pytest.raises(ConfigError, match="num_ones=0"):
        least_rows_for_sums(0, 1.0)
