import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian, release_one_gaussian
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace, release_one_laplace
from tulle.mechanisms.lattice import Lattice, check_contribution, fit_lattice
from tulle.privacy import events

values = st.floats(min_value=-1e6, max_value=1e6)
multipliers = st.floats(min_value=1e-2, max_value=1e4)
contributions = st.floats(min_value=1e-6, max_value=1e9)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=6), st.integers(-30, 10))
def test_rounding_moves_neighbours_apart_by_at_most_a_width_in_each_value(
    pairs: list[tuple[float, float]], exponent: int
) -> None:
    lattice = Lattice(exponent)
    first, second = np.array(pairs).T
    gaps = lattice.width * (lattice.multiples(first) - lattice.multiples(second))
    assert (np.abs(gaps) <= np.abs(first - second) + lattice.width).all()


@given(multipliers, contributions, st.integers(1, 10**6))
def test_the_noise_covers_the_contribution_and_the_rounding(
    noise_multiplier: float, max_contribution: float, num_values: int
) -> None:
    fitted = fit_lattice(noise_multiplier, max_contribution, 2.0 * num_values)
    widened = max_contribution + 2.0 * num_values * fitted.lattice.width
    assert fitted.contribution > widened
    assert fitted.noise > noise_multiplier * widened
    assert fitted.noise_in_steps * fitted.lattice.width == fitted.noise


@given(multipliers, contributions)
def test_the_grid_is_fine_against_noise_and_contribution(
    noise_multiplier: float, max_contribution: float
) -> None:
    fitted = fit_lattice(noise_multiplier, max_contribution, 2.0)
    assert fitted.noise_in_steps >= 2.0**20
    assert fitted.contribution <= max_contribution * (1 + 2.0**-14)


def test_many_values_get_a_finer_grid() -> None:
    one = fit_lattice(1.0, 1.0, 2.0)
    many = fit_lattice(1.0, 1.0, 200.0)
    assert many.lattice.width < one.lattice.width
    assert many.contribution <= 1 + 2.0**-19


def test_points_of_the_grid_come_back_unchanged() -> None:
    lattice = Lattice(-20)
    multiples = np.array([0, 1, -1, 2**53, -(2**53)])
    np.testing.assert_array_equal(lattice.multiples(lattice.values(multiples)), multiples)


def test_points_beyond_float_precision_stay_on_the_grid() -> None:
    lattice = Lattice(3)
    points = lattice.values(np.array([2**60 + 1, -(2**62) + 1]))
    assert (np.fmod(points, lattice.width) == 0).all()


def test_subnormal_and_tiny_values_round_to_zero() -> None:
    assert (Lattice(-10).multiples([5e-324, -1e-200, 1e-5]) == 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(DataError, match="NaN or infinity"):
        Lattice(0).multiples([0.0, bad])


@pytest.mark.parametrize("value", [1e300, -1e20])
def test_values_too_large_for_exact_sums_are_refused(value: float) -> None:
    with pytest.raises(DataError, match="noise_multiplier"):
        Lattice(-20).multiples(value)


@pytest.mark.parametrize(
    "bad", [np.array([2**53 + 1]), np.array([1], np.longdouble), np.array(["1"])]
)
def test_values_that_floats_would_move_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(DataError, match="float64"):
        Lattice(0).multiples(bad)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint64, np.bool_])
def test_values_that_floats_hold_are_accepted(dtype: type) -> None:
    assert Lattice(0).multiples(np.array([1, 0], dtype)).tolist() == [1, 0]


def test_noise_beyond_the_floats_is_refused() -> None:
    with pytest.raises(ConfigError, match="another unit"):
        fit_lattice(1.0, 1e-290, 2.0)


def test_bounds_that_bound_nothing_are_refused() -> None:
    for contribution in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="max_contribution="):
            check_contribution(contribution, 1)
    for num_values in (0, 1.5):
        with pytest.raises(ConfigError, match="max_values_per_unit="):
            check_contribution(1.0, num_values)  # type: ignore[arg-type]


LAWS: list[tuple[Any, ...]] = [
    (LaplaceConfig, release_laplace, release_one_laplace, events.Laplace, stats.laplace),
    (GaussianConfig, release_gaussian, release_one_gaussian, events.Gaussian, stats.norm),
]
each_law = pytest.mark.parametrize(
    ("config_of", "release", "release_one", "event_of", "law"), LAWS, ids=["laplace", "gaussian"]
)


@pytest.mark.parametrize(("config_of", "release"), [law[:2] for law in LAWS])
@settings(max_examples=30)
@given(first=values, second=values, noise_multiplier=st.floats(min_value=0.01, max_value=100))
def test_neighbours_are_released_on_one_grid(
    config_of: Any, release: Any, first: float, second: float, noise_multiplier: float
) -> None:
    config = config_of(noise_multiplier=noise_multiplier, max_contribution=3.0)
    width = config.fitted.lattice.width
    for raw_value in (first, second):
        noisy = release(np.full(50, raw_value), config, rng=SeededNoise(1))
        np.testing.assert_array_equal(np.fmod(noisy, width), 0)


@each_law
def test_a_released_value_knows_its_noise_interval_and_cost(
    config_of: Any, release: Any, release_one: Any, event_of: Any, law: Any
) -> None:
    config = config_of(noise_multiplier=3.0)
    # Far beyond the grid's width, the half width is that of the law alone.
    of_noise = law(scale=config.fitted.noise)
    assert 2 * of_noise.sf(config.half_width(0.9)) == pytest.approx(0.1, rel=1e-5)
    assert config.noise_stddev == pytest.approx(of_noise.std(), rel=1e-12)
    one = release_one(0.3, config, rng=SeededNoise(0), confidence=0.8)
    assert one.value == release(0.3, config, rng=SeededNoise(0))
    assert one.event == config.event() == event_of(noise_multiplier=3.0)
    assert one.interval.confidence == 0.8
    assert one.interval.low < one.value < one.interval.high
    relative = config_of(noise_multiplier=3.0, max_contribution=50.0, replace_factor=1.0)
    assert relative.event() == event_of(noise_multiplier=3.0, replace_factor=1.0)


@pytest.mark.parametrize(("config_of", "release"), [law[:2] for law in LAWS])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (3, 3, 5)])
def test_values_keep_their_shape(config_of: Any, release: Any, shape: tuple[int, ...]) -> None:
    noisy = release(np.zeros(shape), config_of(noise_multiplier=1.0), rng=SeededNoise(0))
    assert np.shape(noisy) == shape
    assert noisy.dtype == np.float64


@each_law
@pytest.mark.parametrize("contribution", [1e-200, 1e-3, 1e9, 1e200])
def test_contributions_of_any_size_get_their_noise(
    config_of: Any, release: Any, release_one: Any, event_of: Any, law: Any, contribution: float
) -> None:
    del release_one, event_of
    config = config_of(noise_multiplier=2.0, max_contribution=contribution)
    noisy = release(np.zeros(2000), config, rng=SeededNoise(0))
    assert np.abs(noisy / contribution).mean() == pytest.approx(
        2 * law.expect(abs, lb=-60, ub=60), rel=0.2
    )


@pytest.mark.parametrize(("config_of", "release"), [law[:2] for law in LAWS])
def test_values_and_settings_that_bound_nothing_are_refused(config_of: Any, release: Any) -> None:
    for value, name in ((math.nan, "NaN"), (math.inf, "infinity")):
        with pytest.raises(DataError, match=name):
            release([value], config_of(noise_multiplier=1.0), rng=SeededNoise(0))
    for options in (
        {"noise_multiplier": 0.0},
        {"noise_multiplier": 1.0, "max_contribution": 0.0},
        {"noise_multiplier": 1.0, "max_contribution": math.inf},
        {"noise_multiplier": 1.0, "max_values_per_unit": 0},
        {"noise_multiplier": 1.0, "replace_factor": 0.5},
    ):
        with pytest.raises(ConfigError):
            config_of(**options)
