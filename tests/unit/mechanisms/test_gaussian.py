import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.errors import ConfigError
from tulle.mechanisms.analytic_gaussian import gaussian_delta
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.exact import BLOCK, LazyUniform
from tulle.mechanisms.gaussian import (
    GaussianConfig,
    decide_rounded_normals,
    rounded_normals_of_words,
    sample_rounded_normal,
)
from tulle.privacy.units import Adjacency

values = st.floats(min_value=-1e6, max_value=1e6)


@settings(max_examples=50)
@given(st.lists(st.tuples(values, st.floats(-1, 1)), min_size=1, max_size=5))
def test_rounded_neighbours_stay_within_the_widened_contribution(
    pairs: list[tuple[float, float]],
) -> None:
    first, change = np.array(pairs).T
    contribution = float(np.linalg.norm((first + change) - first))
    if contribution < 1e-3:
        return
    config = GaussianConfig(
        noise_multiplier=1.0,
        max_contribution=contribution,
        max_values_per_unit=len(pairs),
    )
    lattice = config.fitted.lattice
    steps = lattice.multiples(first) - lattice.multiples(first + change)
    assert np.linalg.norm(steps * lattice.width) <= config.fitted.contribution


@pytest.mark.parametrize(("num_values", "root"), [(2, 2), (8, 4), (50, 10)])
def test_a_unit_that_leaves_all_its_values_and_enters_others_stays_within_its_contribution(
    num_values: int, root: int
) -> None:
    """Rounding moves each of the twice as many values by almost a whole step."""
    settings = {"noise_multiplier": 3.0, "max_values_per_unit": num_values}
    width = GaussianConfig(**settings, max_contribution=1.5).fitted.lattice.width
    moved = math.floor(1.5 / (root * width)) - 1 + 2.0**-10
    config = GaussianConfig(**settings, max_contribution=root * moved * width)
    lattice = config.fitted.lattice
    assert lattice.width == width
    first = np.full(2 * num_values, (0.5 - 2.0**-11) * width)
    assert np.linalg.norm(np.full(2 * num_values, moved * width)) <= config.max_contribution
    steps = lattice.multiples(first + moved * width) - lattice.multiples(first)
    assert np.all(steps == math.ceil(moved))
    distance = np.linalg.norm(steps * width)
    assert config.max_contribution < distance <= config.fitted.contribution
    assert config.fitted.contribution <= distance + 0.01 * root * width


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_rounded_noise_leaks_no_more_than_the_continuous_mechanism(epsilon: float) -> None:
    stddev, distance = 4.0, 3
    law = stats.norm(scale=stddev)
    steps = np.arange(-60, 61)
    first = law.cdf(steps + 0.5) - law.cdf(steps - 0.5)
    second = law.cdf(steps - distance + 0.5) - law.cdf(steps - distance - 0.5)
    for one, other in ((first, second), (second, first)):
        delta = np.maximum(one - math.exp(epsilon) * other, 0).sum()
        assert delta <= gaussian_delta(epsilon, stddev, distance) + 1e-14


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_calibration_meets_the_guarantee(adjacency: Adjacency) -> None:
    config = GaussianConfig.for_epsilon(1.0, 1e-6, adjacency=adjacency, max_contribution=5.0)
    distance = 2.0 if adjacency is Adjacency.REPLACE else 1.0
    delta = gaussian_delta(1.0, config.noise_multiplier, distance)
    assert delta <= 1e-6
    assert delta == pytest.approx(1e-6, rel=1e-8)


def test_the_stddev_is_the_multiplier_times_the_contribution() -> None:
    config = GaussianConfig(noise_multiplier=1.5, max_contribution=3.0)
    assert config.noise_stddev == pytest.approx(4.5, rel=1e-5)
    assert config.noise_stddev > 4.5


def test_a_confidence_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="confidence="):
        GaussianConfig(noise_multiplier=1.0).half_width(0.0)


STDDEVS = [0.05, 1.0, 2.0**20, 2.0**31]


@pytest.mark.parametrize("stddev", STDDEVS)
def test_floats_decide_as_interval_arithmetic_does(stddev: float) -> None:
    words = SeededNoise(1).words(300)
    fast = rounded_normals_of_words(words, stddev, rng=SeededNoise(2))
    slow = rounded_normals_of_words(words, stddev, rng=SeededNoise(2), slack=math.inf)
    np.testing.assert_array_equal(fast, slow)


@pytest.mark.parametrize("stddev", STDDEVS)
def test_draws_are_the_rounded_normals_of_fifty_digits(stddev: float) -> None:
    words = SeededNoise(3).words(200)
    draws = rounded_normals_of_words(words, stddev, rng=SeededNoise(4))
    radii, angles = (words >> np.uint64(1)).reshape(2, -1).tolist()
    with mpmath.workdps(50):
        for index, (radius_bits, angle_bits) in enumerate(zip(radii, angles, strict=True)):
            uniform = (radius_bits + mpmath.mpf(0.5)) / 2**63
            angle = 2 * mpmath.pi * (angle_bits + mpmath.mpf(0.5)) / 2**63
            radius = stddev * mpmath.sqrt(-2 * mpmath.log(uniform))
            assert draws[0, index] == int(mpmath.nint(radius * mpmath.cos(angle)))
            assert draws[1, index] == int(mpmath.nint(radius * mpmath.sin(angle)))


def test_a_draw_at_a_boundary_takes_more_bits() -> None:
    uniforms = [LazyUniform(numerator, 8, SeededNoise(5)) for numerator in (100, 30)]
    first, second = decide_rounded_normals(Fraction(10**6), *uniforms)
    assert uniforms[0].num_bits > 8
    # 100 / 256 and 30 / 256 to the eight bits that are given.
    radius = 1e6 * math.sqrt(-2 * math.log(100.5 / 256))
    angle = math.tau * 30.5 / 256
    assert first == pytest.approx(radius * math.cos(angle), rel=0.03)
    assert second == pytest.approx(radius * math.sin(angle), rel=0.03)


@pytest.mark.parametrize("extreme", [0, 1, 2, 2**64 - 1, 2**64 - 2])
def test_extreme_words_give_draws_without_a_warning(extreme: int) -> None:
    words = np.full(4, extreme, dtype=np.uint64)
    assert rounded_normals_of_words(words, 2.0, rng=SeededNoise(0)).shape == (2, 2)


def test_cosine_and_sine_of_numpy_are_as_accurate_as_the_slack_assumes() -> None:
    for length in (1, 3, 7, 500):
        angles = (SeededNoise(length).words(length) >> np.uint64(1)) * (math.tau * 2.0**-63)
        for angle, cosine, sine in zip(angles, np.cos(angles), np.sin(angles), strict=True):
            with mpmath.workdps(40):
                assert abs(mpmath.cos(mpmath.mpf(float(angle))) - float(cosine)) < 2.0**-50
                assert abs(mpmath.sin(mpmath.mpf(float(angle))) - float(sine)) < 2.0**-50


@pytest.mark.parametrize("size", [0, 1, 2, 7, (), (0, 3), (3, 5), 40_001])
def test_draws_come_in_the_asked_shape(size: int | tuple[int, ...]) -> None:
    draws = sample_rounded_normal(1e6, size, rng=SeededNoise(0))
    assert draws.shape == (size if isinstance(size, tuple) else (size,))
    assert draws.dtype == np.int64


@pytest.mark.parametrize("stddev", [0.0, -1.0, 2.0**41, math.inf, math.nan])
def test_a_stddev_out_of_range_is_refused(stddev: float) -> None:
    with pytest.raises(ConfigError, match="stddev="):
        sample_rounded_normal(stddev, 1, rng=SeededNoise(0))


@pytest.mark.parametrize("num_draws", [1, 2, 2 * BLOCK + 1, 2 * BLOCK + 2])
def test_no_draw_is_left_out_where_a_block_ends(num_draws: int) -> None:
    # A place that is not drawn would hold what lay in memory, and a sum would leave without noise.
    draws = [
        sample_rounded_normal(2.0**26, num_draws, rng=SeededNoise(seed)) for seed in (1, 2, 3, 1)
    ]
    assert np.array_equal(draws[0], draws[3])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.any(draws[one] == draws[other])
