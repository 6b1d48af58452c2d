"""Samples of every local randomizer follow its channel and no channel of a wrong epsilon."""

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from contract.test_randomizers import draw_of
from statistical.randomizer_checks import assert_follows, assert_rejects
from tulle.mechanisms import randomized_response, rappor, subset_selection
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.key_selection import KeySelectionConfig, select_keys
from tulle.mechanisms.noisy_reports import count_reports, debias_counts, variance_per_report

# At epsilon 1 a 5% wrong epsilon moves chi-square by about 4e-4 a draw; 200 are needed.
NUM_DRAWS = 600_000

CASES = [
    pytest.param(
        randomized_response,
        randomized_response.RandomizedResponseConfig(epsilon=1.0),
        id="binary response",
    ),
    pytest.param(
        randomized_response,
        randomized_response.RandomizedResponseConfig(epsilon=1.0, num_values=4),
        id="4-ary response",
    ),
    pytest.param(rappor, rappor.RapporConfig(epsilon=1.5, num_values=3), id="rappor"),
    pytest.param(
        subset_selection,
        subset_selection.SubsetSelectionConfig(epsilon=1.0, num_values=5, subset_size=2),
        id="subsets",
    ),
]
each_case = pytest.mark.parametrize(("module", "config"), CASES)


@each_case
def test_reports_follow_the_channel_and_not_one_of_a_5_percent_wrong_epsilon(
    module: ModuleType, config: Any
) -> None:
    for held in (0, config.num_values - 1):
        counts = draw_report_counts(draw_of(module), config, held, rng=SeededNoise(held))
        assert_follows(counts, config.channel_matrix()[held])
        for factor in (0.95, 1.05):
            wrong = dataclasses.replace(config, epsilon=factor * config.epsilon)
            assert_rejects(counts, wrong.channel_matrix()[held])


@each_case
def test_estimates_have_the_stated_mean_and_variance(module: ModuleType, config: Any) -> None:
    num_rounds, num_units = 4000, 100
    held = np.repeat(np.arange(config.num_values), [70] + [0] * (config.num_values - 2) + [30])
    reports = draw_of(module)(np.tile(held, num_rounds), config, rng=SeededNoise(11))
    estimates = np.array(
        [
            debias_counts(count_reports(part, config), num_units, config)
            for part in reports.reshape(num_rounds, num_units, *reports.shape[1:])
        ]
    )
    for value in range(config.num_values):
        true = int((held == value).sum())
        variance = num_units * variance_per_report(config, frequency=true / num_units)
        mean_error = estimates[:, value].mean() - true
        assert abs(mean_error) < 6.5 * np.sqrt(variance / num_rounds)
        ratio = estimates[:, value].var(ddof=1) / variance
        assert abs(ratio - 1) < 6.5 * np.sqrt(2 / num_rounds)


@pytest.mark.parametrize("num_units", [1, 3, 6, 8])
def test_keys_are_kept_as_often_as_stated(num_units: int) -> None:
    config = KeySelectionConfig(epsilon=0.8, delta=0.01)
    kept = int(select_keys(np.full(200_000, num_units), config, rng=SeededNoise(num_units)).sum())
    chance = config.keep_prob(num_units)
    assert_follows([kept, 200_000 - kept], [chance, 1 - chance])
    wrong = config.keep_prob(num_units + 1)
    assert_rejects([kept, 200_000 - kept], [wrong, 1 - wrong])


def draw_report_counts(
    randomize: Any, config: Any, held: int, *, rng: NoiseSource
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How often each output comes, in the order of the channel's columns."""
    reports = randomize(np.full(NUM_DRAWS, held), config, rng=rng)
    if reports.ndim == 1:
        return np.bincount(reports, minlength=config.num_values)
    weights = 1 << np.arange(config.num_values)
    order = [int(np.dot(output, weights)) for output in config.outputs()]
    counts = np.bincount(reports @ weights, minlength=1 << config.num_values)
    assert counts[order].sum() == NUM_DRAWS
    return counts[order]
