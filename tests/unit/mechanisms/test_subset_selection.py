import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_private,
    exact_chances,
    exceeds_exp,
)
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.noisy_reports import variance_per_report
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.mechanisms.rappor import RapporConfig
from tulle.mechanisms.subset_selection import SubsetSelectionConfig, release_subset_selection


@pytest.mark.parametrize("epsilon", [0.001, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("held", [0, 2, 4])
def test_the_sampler_shows_the_truth_with_exactly_the_realised_chance(
    epsilon: float, held: int
) -> None:
    config = SubsetSelectionConfig(epsilon=epsilon, num_values=5, subset_size=2)
    chances = exact_chances(
        lambda word: bool(
            release_subset_selection([held], config, rng=ScriptedNoise([word]))[0, held]
        )
    )
    assert chances[True] == config.support_probs.if_held


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_report_has_the_chosen_size(size: int) -> None:
    config = SubsetSelectionConfig(epsilon=0.5, num_values=5, subset_size=size)
    reports = release_subset_selection(np.arange(3000) % 5, config, rng=SeededNoise(size))
    assert set(reports.sum(axis=1).tolist()) == {size}


@settings(max_examples=100)
@given(epsilon=st.floats(1e-3, 50.0), num_values=st.integers(2, 40))
def test_the_realised_ratio_is_private_for_any_settings(epsilon: float, num_values: int) -> None:
    config = SubsetSelectionConfig(epsilon=epsilon, num_values=num_values)
    assert not exceeds_exp(config.realised_ratio, epsilon)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_realised_channel_is_private_for_every_size(size: int) -> None:
    config = SubsetSelectionConfig(epsilon=0.7, num_values=5, subset_size=size)
    assert_private(config.realised_channel(), 0.7)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("num_values", [3, 10, 37])
def test_the_default_size_has_nearly_the_least_variance(epsilon: float, num_values: int) -> None:
    best = min(
        variance_per_report(
            SubsetSelectionConfig(epsilon=epsilon, num_values=num_values, subset_size=size)
        )
        for size in range(1, num_values)
    )
    default = SubsetSelectionConfig(epsilon=epsilon, num_values=num_values)
    assert variance_per_report(default) <= best * 1.2


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_its_worst_variance_beats_randomized_response_and_rappor(epsilon: float) -> None:
    subset, response, bits = (
        config_class(epsilon=epsilon, num_values=30)
        for config_class in (SubsetSelectionConfig, RandomizedResponseConfig, RapporConfig)
    )
    # Over all 30 values of a uniform population, in total.
    total = [variance_per_report(config, frequency=1 / 30) for config in (subset, response, bits)]
    assert total[0] < min(total[1:])


def test_subsets_of_one_value_are_randomized_response() -> None:
    subset = SubsetSelectionConfig(epsilon=1.3, num_values=4, subset_size=1)
    response = RandomizedResponseConfig(epsilon=1.3, num_values=4)
    np.testing.assert_allclose(subset.channel_matrix(), response.channel_matrix(), rtol=1e-14)


def test_the_variance_has_the_published_form() -> None:
    # Ye, Barg 2018: P(v in S | x = v) = d e^eps / (d e^eps + k - d).
    config = SubsetSelectionConfig(epsilon=1.0, num_values=10, subset_size=3)
    held = 3 * math.e / (3 * math.e + 7)
    assert float(config.support_probs.if_held) == pytest.approx(held, rel=1e-14)
    other = held * 2 / 9 + (1 - held) * 3 / 9
    assert float(config.support_probs.if_not_held) == pytest.approx(other, rel=1e-14)


@pytest.mark.parametrize("size", [0, 5, 6, -1])
def test_sizes_that_say_nothing_are_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="subset_size"):
        SubsetSelectionConfig(epsilon=1.0, num_values=5, subset_size=size)


def test_a_channel_with_too_many_reports_is_not_written_out() -> None:
    with pytest.raises(ConfigError, match="support_probs"):
        SubsetSelectionConfig(epsilon=0.1, num_values=40).outputs()
