import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import ScriptedNoise, assert_private, measured_channel
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.noisy_reports import variance_per_report
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    epsilon_share,
    release_randomized_response,
)


def _report(config: RandomizedResponseConfig, held: int, word: int) -> int:
    return int(release_randomized_response([held], config, rng=ScriptedNoise([word]))[0])


@pytest.mark.parametrize("num_values", [2, 3, 5, 9])
@pytest.mark.parametrize("epsilon", [0.001, 0.5, 3.0, 43.0, 50.0])
def test_the_sampler_has_exactly_the_realised_channel(num_values: int, epsilon: float) -> None:
    config = RandomizedResponseConfig(epsilon=epsilon, num_values=num_values)
    measured = measured_channel(
        lambda held, word: _report(config, held, word), config.outputs(), num_values
    )
    assert measured == config.realised_channel()


@settings(max_examples=60)
@given(epsilon=st.floats(1e-3, 50.0), num_values=st.integers(2, 40))
def test_the_realised_channel_is_private_for_any_settings(epsilon: float, num_values: int) -> None:
    config = RandomizedResponseConfig(epsilon=epsilon, num_values=num_values)
    assert_private(config.realised_channel(), epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_binary_variance_has_the_closed_form(epsilon: float) -> None:
    # Sometimes printed with (e^(2 eps) - 1)^2 below the line, which is wrong.
    config = RandomizedResponseConfig(epsilon=epsilon)
    expected = math.exp(epsilon) / math.expm1(epsilon) ** 2
    for frequency in (0.0, 0.3, 1.0):
        assert variance_per_report(config, frequency=frequency) == pytest.approx(expected)


def test_binary_variance_at_epsilon_one_is_0_921() -> None:
    assert variance_per_report(RandomizedResponseConfig(epsilon=1.0)) == pytest.approx(
        0.9207, abs=1e-4
    )


def test_rows_and_columns_keep_their_shape() -> None:
    values = np.zeros((3, 4), np.int8)
    reports = release_randomized_response(
        values, RandomizedResponseConfig(epsilon=1.0), rng=SeededNoise(0)
    )
    assert reports.shape == (3, 4)


def test_entries_of_a_long_array_are_drawn_independently() -> None:
    config = RandomizedResponseConfig(epsilon=0.01)
    reports = release_randomized_response(np.zeros(1 << 19, np.int64), config, rng=SeededNoise(2))
    first, second = np.split(reports, 2)
    assert abs(np.corrcoef(first, second)[0, 1]) < 6.5 / math.sqrt(1 << 18)


def test_the_truth_is_told_almost_always_at_huge_epsilon() -> None:
    config = RandomizedResponseConfig(epsilon=60.0, num_values=5)
    values = np.arange(10_000) % 5
    assert np.array_equal(release_randomized_response(values, config, rng=SeededNoise(0)), values)
    assert config.realised_epsilon == pytest.approx(64 * math.log(2))


@settings(max_examples=300)
@given(epsilon=st.floats(1e-6, 100.0), num_shares=st.integers(1, 10**6))
def test_shares_of_epsilon_never_add_up_to_more(epsilon: float, num_shares: int) -> None:
    share = epsilon_share(epsilon, num_shares)
    assert Fraction(share) * num_shares <= Fraction(epsilon)
    above = math.nextafter(math.nextafter(share, math.inf), math.inf)
    assert Fraction(above) * num_shares > Fraction(epsilon)


def test_some_shares_must_be_rounded_down() -> None:
    assert any(Fraction(1.0 / k) * k > 1 for k in range(1, 100))
    assert all(Fraction(epsilon_share(1.0, k)) * k <= 1 for k in range(1, 100))
