import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.lazy_uniform import LazyUniform
from tulle.mechanisms.rounded_normal import (
    decide_rounded_normals,
    rounded_normals_of_words,
    sample_rounded_normal,
)

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
