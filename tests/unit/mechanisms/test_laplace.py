import math

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

from tulle.errors import ConfigError
from tulle.mechanisms.laplace import LaplaceConfig
from tulle.privacy.units import Adjacency

values = st.floats(min_value=-1e6, max_value=1e6)


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


def test_an_epsilon_or_a_confidence_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon=0"):
        LaplaceConfig.for_epsilon(0.0, adjacency=Adjacency.REPLACE)
    with pytest.raises(ConfigError, match="confidence="):
        LaplaceConfig(noise_multiplier=1.0).half_width(1.5)
