import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace, release_one_laplace
from tulle.privacy import events
from tulle.privacy.units import Adjacency

values = st.floats(min_value=-1e6, max_value=1e6)


@settings(max_examples=30)
@given(values, values, st.floats(min_value=0.01, max_value=100))
def test_neighbours_are_released_on_one_grid(
    first: float, second: float, noise_multiplier: float
) -> None:
    config = LaplaceConfig(noise_multiplier=noise_multiplier, max_contribution=3.0)
    width = config.fitted.lattice.width
    for raw_value in (first, second):
        noisy = release_laplace(np.full(50, raw_value), config, rng=SeededNoise(1))
        np.testing.assert_array_equal(np.fmod(noisy, width), 0)


@pytest.mark.parametrize("num_values", [2, 5, 50])
def test_a_unit_that_leaves_all_its_values_and_enters_others_stays_within_its_contribution(
    num_values: int,
) -> None:
    """Rounding moves each of the twice as many values by almost a whole step."""
    settings = {"noise_multiplier": 3.0, "max_values_per_unit": num_values}
    width = LaplaceConfig(**settings, max_contribution=1.5).fitted.lattice.width
    num_changed = 2 * num_values
    moved = math.floor(1.5 / (num_changed * width)) - 1 + 2.0**-10
    config = LaplaceConfig(**settings, max_contribution=num_changed * moved * width)
    lattice = config.fitted.lattice
    assert lattice.width == width
    first = np.full(num_changed, (0.5 - 2.0**-11) * width)
    steps = lattice.multiples(first + moved * width) - lattice.multiples(first)
    assert np.all(steps == math.ceil(moved))
    distance = float(steps.sum()) * width
    assert config.max_contribution < distance <= config.fitted.contribution
    assert config.fitted.contribution <= distance + 0.01 * num_changed * width


@pytest.mark.parametrize("distance", [0, 1, 3])
def test_rounded_noise_has_a_likelihood_ratio_of_at_most_e_to_the_epsilon(distance: int) -> None:
    scale = 4.0
    law = stats.laplace(scale=scale)
    steps = np.arange(-60, 61)

    def chances(shift: int) -> np.ndarray:
        distances = np.abs(steps - shift)
        return np.where(
            distances == 0,
            law.cdf(0.5) - law.cdf(-0.5),
            law.sf(distances - 0.5) - law.sf(distances + 0.5),
        )

    log_ratios = np.log(chances(0) / chances(distance))
    assert np.abs(log_ratios).max() <= distance / scale + 1e-9


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_calibration_gives_the_least_noise_for_epsilon(adjacency: Adjacency) -> None:
    config = LaplaceConfig.for_epsilon(0.7, adjacency=adjacency, max_contribution=5.0)
    distance = 2.0 if adjacency is Adjacency.REPLACE else 1.0
    assert distance / config.noise_multiplier <= 0.7
    assert distance / config.noise_multiplier == pytest.approx(0.7, rel=1e-12)
    assert config.noise_scale == pytest.approx(5.0 * distance / 0.7, rel=1e-5)
    assert config.noise_scale > 5.0 * distance / 0.7


def test_the_stddev_is_root_two_times_the_scale() -> None:
    config = LaplaceConfig(noise_multiplier=3.0, max_contribution=2.0)
    assert config.noise_stddev == pytest.approx(6 * math.sqrt(2), rel=1e-5)


def test_the_half_width_has_the_stated_chance() -> None:
    config = LaplaceConfig(noise_multiplier=3.0)
    law = stats.laplace(scale=config.noise_scale)
    assert 2 * law.sf(config.half_width(0.9)) == pytest.approx(0.1, rel=1e-5)


def test_the_event_is_relative_to_the_contribution() -> None:
    config = LaplaceConfig(noise_multiplier=3.0, max_contribution=50.0, replace_factor=1.0)
    assert config.event() == events.Laplace(noise_multiplier=3.0, replace_factor=1.0)


def test_a_released_value_knows_its_noise_interval_and_cost() -> None:
    config = LaplaceConfig(noise_multiplier=3.0)
    release = release_one_laplace(0.3, config, rng=SeededNoise(0), confidence=0.8)
    assert release.event == config.event()
    assert release.interval.confidence == 0.8
    assert release.interval.low < release.value < release.interval.high


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3, 4)])
def test_values_keep_their_shape(shape: tuple[int, ...]) -> None:
    config = LaplaceConfig(noise_multiplier=1.0)
    noisy = release_laplace(np.zeros(shape), config, rng=SeededNoise(0))
    assert np.shape(noisy) == shape
    assert noisy.dtype == np.float64


@pytest.mark.parametrize("contribution", [1e-200, 1e-3, 1e9, 1e200])
def test_contributions_of_any_size_get_their_noise(contribution: float) -> None:
    config = LaplaceConfig(noise_multiplier=2.0, max_contribution=contribution)
    noisy = release_laplace(np.zeros(2000), config, rng=SeededNoise(0))
    assert np.abs(noisy).mean() == pytest.approx(2 * contribution, rel=0.2)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        release_laplace([math.nan], LaplaceConfig(noise_multiplier=1.0), rng=SeededNoise(0))


def test_settings_out_of_range_are_refused() -> None:
    for options in (
        {"noise_multiplier": 0.0},
        {"noise_multiplier": 1.0, "max_contribution": math.inf},
        {"noise_multiplier": 1.0, "max_values_per_unit": 0},
        {"noise_multiplier": 1.0, "replace_factor": 0.5},
    ):
        with pytest.raises(ConfigError):
            LaplaceConfig(**options)
    with pytest.raises(ConfigError, match="epsilon=0"):
        LaplaceConfig.for_epsilon(0.0, adjacency=Adjacency.REPLACE)
    with pytest.raises(ConfigError, match="confidence="):
        LaplaceConfig(noise_multiplier=1.0).half_width(1.5)
