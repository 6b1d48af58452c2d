import math

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.discrete_laplace import (
    DiscreteLaplaceConfig,
    release_discrete_laplace,
    release_one_discrete_laplace,
    sample_discrete_laplace,
)
from tulle.mechanisms.entropy import OperatingSystemNoise, SeededNoise
from tulle.mechanisms.exact import MAX_SCALE
from tulle.privacy import events
from tulle.privacy.units import Adjacency


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 2.7, 150.0])
def test_the_chances_add_up_and_give_the_stated_variance(scale: float) -> None:
    config = DiscreteLaplaceConfig(scale=scale)
    values = np.arange(-math.ceil(60 * scale) - 2, math.ceil(60 * scale) + 3)
    chances = config.pmf(values)
    assert chances.sum() == pytest.approx(1, rel=1e-12)
    assert np.sum(values**2 * chances) == pytest.approx(config.variance, rel=1e-9)


@pytest.mark.parametrize("scale", [0.001, 0.002, 1e9, 2.0**40])
def test_the_stddev_neither_vanishes_nor_overflows(scale: float) -> None:
    assert 0 < DiscreteLaplaceConfig(scale=scale).noise_stddev < math.inf


def test_the_stddev_of_a_large_scale_is_that_of_the_continuous_law() -> None:
    config = DiscreteLaplaceConfig(scale=1e9)
    assert config.noise_stddev == pytest.approx(math.sqrt(2) * 1e9, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_neighbours_have_a_likelihood_ratio_of_at_most_e_to_the_epsilon(
    epsilon: float, adjacency: Adjacency
) -> None:
    config = DiscreteLaplaceConfig.for_epsilon(epsilon, adjacency=adjacency, max_contribution=3)
    distance = 6 if adjacency is Adjacency.REPLACE else 3
    values = np.arange(-50, 51)
    ratios = np.log(config.pmf(values) / config.pmf(values - distance))
    assert ratios.max() == pytest.approx(epsilon, rel=1e-9)
    assert distance / config.scale <= epsilon


def test_calibration_refuses_an_epsilon_that_is_no_limit() -> None:
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="epsilon="):
            DiscreteLaplaceConfig.for_epsilon(epsilon, adjacency=Adjacency.REPLACE)


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0, 80.0])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_interval_is_the_shortest_that_holds_its_confidence(
    scale: float, confidence: float
) -> None:
    config = DiscreteLaplaceConfig(scale=scale)
    half_width = config.half_width(confidence)
    covered = config.pmf(np.arange(-half_width, half_width + 1)).sum()
    assert covered >= confidence - 1e-12
    assert half_width == 0 or covered - 2 * config.pmf(half_width) < confidence


def test_the_event_carries_every_setting() -> None:
    config = DiscreteLaplaceConfig(scale=4.0, max_contribution=3, replace_factor=1.5)
    assert config.event() == events.DiscreteLaplace(
        scale=4.0, max_contribution=3, replace_factor=1.5
    )


def test_a_released_count_knows_its_noise_interval_and_cost() -> None:
    config = DiscreteLaplaceConfig(scale=4.0)
    release = release_one_discrete_laplace(100, config, rng=SeededNoise(0), confidence=0.9)
    assert release.event == config.event()
    assert release.noise_stddev == config.noise_stddev
    assert release.interval.confidence == 0.9
    assert release.interval.high - release.value == config.half_width(0.9)


def test_counts_keep_their_shape_and_get_fresh_noise() -> None:
    config = DiscreteLaplaceConfig(scale=1e6)
    raw_counts = np.full((3, 4), 7)
    rng = OperatingSystemNoise()
    first = release_discrete_laplace(raw_counts, config, rng=rng)
    second = release_discrete_laplace(raw_counts, config, rng=rng)
    assert first.shape == (3, 4)
    assert first.dtype == np.int64
    assert (first != second).any()
    assert (raw_counts == 7).all()


def test_no_counts_are_released_as_no_counts() -> None:
    config = DiscreteLaplaceConfig(scale=1.0)
    for empty in ([], np.zeros((0, 3), int), np.zeros(0)):
        released = release_discrete_laplace(empty, config, rng=SeededNoise(0))
        assert released.shape == np.shape(empty)
        assert released.dtype == np.int64


def test_a_tiny_scale_adds_no_noise() -> None:
    for scale in (0.001, 0.02):
        assert not sample_discrete_laplace(scale, 10_000, rng=SeededNoise(0)).any()


@pytest.mark.parametrize("bad", [[1.5], [True], ["many"], [2**70], [2**62 + 3], [-(2**62) - 3]])
def test_counts_that_are_not_safe_integers_are_refused_without_showing_them(bad: list) -> None:
    with pytest.raises(DataError, match="raw_counts") as refusal:
        release_discrete_laplace(bad, DiscreteLaplaceConfig(scale=1.0), rng=SeededNoise(0))
    assert str(bad[0]) not in str(refusal.value)


def test_unsigned_counts_beyond_the_limit_are_refused() -> None:
    with pytest.raises(DataError, match="larger steps"):
        release_discrete_laplace(
            np.array([2**63], np.uint64), DiscreteLaplaceConfig(scale=1.0), rng=SeededNoise(0)
        )


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-5, 2.0**41, math.inf, math.nan])
def test_a_scale_out_of_range_is_refused(scale: float) -> None:
    with pytest.raises(ConfigError, match="scale="):
        DiscreteLaplaceConfig(scale=scale)


def test_other_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_contribution=0"):
        DiscreteLaplaceConfig(scale=1.0, max_contribution=0)
    with pytest.raises(ConfigError, match="replace_factor=3"):
        DiscreteLaplaceConfig(scale=1.0, replace_factor=3)
    with pytest.raises(ConfigError, match="confidence=1"):
        DiscreteLaplaceConfig(scale=1.0).half_width(1.0)


@pytest.mark.parametrize("scale", [0.0, 1e-4, 2 * MAX_SCALE])
def test_a_scale_that_is_no_noise_is_refused_where_it_is_drawn(scale: float) -> None:
    with pytest.raises(ConfigError, match="scale"):
        sample_discrete_laplace(scale, 3, rng=SeededNoise(1))
