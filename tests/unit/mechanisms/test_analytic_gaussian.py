import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.mechanisms.analytic_gaussian import (
    calibrate_gaussian,
    gaussian_delta,
    gaussian_epsilon,
)


def exact_delta(epsilon: float, noise_multiplier: float, distance: float) -> mpmath.mpf:
    with mpmath.workdps(400):
        mu = mpmath.mpf(distance) / mpmath.mpf(noise_multiplier)
        shift = mpmath.mpf(epsilon) / mu
        return mpmath.ncdf(mu / 2 - shift) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - shift)


@settings(max_examples=100)
@given(
    st.floats(min_value=-2, max_value=5),
    st.floats(min_value=-2, max_value=2),
    st.floats(min_value=-8, max_value=35),
)
def test_delta_is_right_to_twelve_digits(
    log_noise: float, log_distance: float, deviations: float
) -> None:
    noise_multiplier, distance = 10**log_noise, 10**log_distance
    mu = distance / noise_multiplier
    epsilon = max(0.0, mu * mu / 2 + deviations * mu)
    expected = exact_delta(epsilon, noise_multiplier, distance)
    delta = gaussian_delta(epsilon, noise_multiplier, distance)
    assert delta == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, 0.126936737507), (0.0, 0.382924922548)])
def test_delta_has_the_known_values(epsilon: float, expected: float) -> None:
    # Phi(-1/2) - e Phi(-3/2) and 2 Phi(1/2) - 1, from tables of the normal law.
    assert gaussian_delta(epsilon, 1.0) == pytest.approx(expected, rel=1e-11)


def test_delta_of_extreme_settings_is_zero_or_one() -> None:
    assert gaussian_delta(1.0, 1e-300, 1e300) == 1.0
    assert gaussian_delta(1.0, 1e300, 1e-300) == 0.0
    assert gaussian_delta(1e308, 1.0) == 0.0


def test_delta_may_be_as_small_as_floats_are() -> None:
    delta = gaussian_delta(37.0, 1.0)
    assert 0 < delta < 1e-290
    assert delta == pytest.approx(float(exact_delta(37.0, 1.0, 1.0)), rel=1e-12)
    assert gaussian_delta(60.0, 1.0) == 0.0


def test_delta_falls_with_epsilon_and_noise_and_grows_with_distance() -> None:
    base = gaussian_delta(1.0, 2.0, 1.0)
    assert gaussian_delta(1.1, 2.0, 1.0) < base
    assert gaussian_delta(1.0, 2.1, 1.0) < base
    assert gaussian_delta(1.0, 2.0, 1.1) > base


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 1.0, 8.0, 500.0])
@pytest.mark.parametrize("delta", [0.4, 1e-5, 1e-12, 1e-300])
@pytest.mark.parametrize("distance", [1.0, 2.0])
def test_calibrated_noise_is_the_least_and_never_too_small(
    epsilon: float, delta: float, distance: float
) -> None:
    noise_multiplier = calibrate_gaussian(epsilon, delta, distance)
    assert exact_delta(epsilon, noise_multiplier, distance) <= delta
    assert exact_delta(epsilon, noise_multiplier * (1 - 1e-9), distance) > delta


@pytest.mark.parametrize("noise_multiplier", [0.01, 0.5, 1.0, 50.0])
@pytest.mark.parametrize("delta", [0.4, 1e-5, 1e-300])
def test_epsilon_is_the_least_and_never_too_small(noise_multiplier: float, delta: float) -> None:
    epsilon = gaussian_epsilon(delta, noise_multiplier)
    assert exact_delta(epsilon, noise_multiplier, 1.0) <= delta
    if epsilon > 0:
        assert exact_delta(epsilon * (1 - 1e-8), noise_multiplier, 1.0) > delta


def test_epsilon_is_zero_where_noise_hides_everything_up_to_delta() -> None:
    assert gaussian_epsilon(0.1, 100.0) == 0.0


def test_calibration_agrees_with_the_published_bound() -> None:
    # Dwork and Roth 2014, theorem A.1: sqrt(2 ln(1.25 / delta)) / epsilon suffices.
    assert calibrate_gaussian(0.5, 1e-5) < math.sqrt(2 * math.log(1.25e5)) / 0.5
    # delta(1, 3.73063...) = 1e-5, by bisection of the closed form with 50 digits.
    assert calibrate_gaussian(1.0, 1e-5) == pytest.approx(3.730631634, rel=1e-8)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_an_epsilon_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="epsilon="):
        gaussian_delta(bad, 1.0)
    with pytest.raises(ConfigError, match="epsilon="):
        calibrate_gaussian(bad, 1e-5)


@pytest.mark.parametrize("bad", [-1.0, 0.0, 1.0, 2.0, math.nan])
def test_a_delta_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="delta="):
        gaussian_epsilon(bad, 1.0)
    with pytest.raises(ConfigError, match="delta="):
        calibrate_gaussian(1.0, bad)


@pytest.mark.parametrize("bad", [-1.0, 0.0, math.inf, math.nan])
def test_noise_and_distance_out_of_range_are_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier="):
        gaussian_delta(1.0, bad)
    with pytest.raises(ConfigError, match="distance="):
        calibrate_gaussian(1.0, 1e-5, distance=bad)


def test_noise_too_small_for_any_epsilon_is_refused() -> None:
    with pytest.raises(ConfigError, match="raise it"):
        gaussian_epsilon(1e-5, 1e-200)
