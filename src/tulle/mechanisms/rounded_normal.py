"""Normal noise rounded to integers, exactly.

The method of Box and Muller turns two uniform reals into two independent
normals. Floats decide the rounding where they safely can, interval arithmetic
on lazily drawn bits does elsewhere, as in `exact`.
"""

import math
from fractions import Fraction

import numpy as np

from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.exact import (
    BLOCK,
    LEAST_FAST_NUMERATOR,
    UNIFORM_BITS,
    IntArray,
    Size,
    as_shape,
    check_scale,
)
from tulle.mechanisms.lazy_uniform import LazyUniform, cosine_and_sine, sqrt_bounds

# The radius errs by at most 2^-46 / radius + 2^-50 radius (the error of -ln U that
# `exact` states, through a square root), cosine and sine by 2^-48 each.
_SLACK = 2.0**-44


def sample_rounded_normal(stddev: float, size: Size, *, rng: NoiseSource) -> IntArray:
    """Continuous normal noise rounded to the nearest integers, exactly."""
    check_scale("stddev", stddev)
    shape = as_shape(size)
    num_pairs = -(-math.prod(shape) // 2)
    result = np.empty((2, num_pairs), dtype=np.int64)
    for start in range(0, num_pairs, BLOCK):
        block = result[:, start : start + BLOCK]
        block[:] = rounded_normals_of_words(rng.words(2 * block.shape[1]), stddev, rng=rng)
    return result.ravel()[: math.prod(shape)].reshape(shape)


def rounded_normals_of_words(
    words: Words, stddev: float, *, rng: NoiseSource, slack: float = _SLACK
) -> IntArray:
    """Two rows of draws from an even number of words.

    Args:
      words: Fresh uniform words: one half for the radii, one for the angles.
      stddev: Standard deviation before rounding.
      rng: Source of further bits for the draws that need them.
      slack: Relative distance from a boundary below which a float does not
        decide. A larger one changes the speed only.
    """
    numerators = (words >> np.uint64(1)).view(np.int64).reshape(2, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        radii = np.sqrt(-2.0 * np.log(numerators[0] * 2.0**-UNIFORM_BITS))
        angles = numerators[1] * (math.tau * 2.0**-UNIFORM_BITS)
        reals = stddev * radii * np.stack([np.cos(angles), np.sin(angles)])
        nearest = np.rint(reals)
        margins = slack * stddev * (radii + 1.0 / radii)
        too_close = np.abs(reals - nearest) + margins >= 0.5
        undecided = too_close.any(axis=0) | (numerators[0] < LEAST_FAST_NUMERATOR)
        result: IntArray = nearest.astype(np.int64)
    for index in np.flatnonzero(undecided):
        radius_uniform, angle_uniform = (
            LazyUniform(int(numerator), UNIFORM_BITS, rng) for numerator in numerators[:, index]
        )
        result[:, index] = decide_rounded_normals(Fraction(stddev), radius_uniform, angle_uniform)
    return result


def decide_rounded_normals(
    stddev: Fraction, radius_uniform: LazyUniform, angle_uniform: LazyUniform
) -> tuple[int, int]:
    """The two rounded normals of two uniforms, exactly. Refines both as needed."""
    while True:
        logs = radius_uniform.negative_log_bounds()
        if logs is not None:
            squares = 2 * Fraction(logs[0]), 2 * Fraction(logs[1])
            low, high = sqrt_bounds(*squares, num_bits=radius_uniform.num_bits + 32)
            cosine, sine, error = cosine_and_sine(angle_uniform)
            first = _decided_product(stddev * low, stddev * high, cosine, error)
            second = _decided_product(stddev * low, stddev * high, sine, error)
            if first is not None and second is not None:
                return first, second
        radius_uniform.refine()
        angle_uniform.refine()


def _decided_product(
    low: Fraction, high: Fraction, factor: Fraction, error: Fraction
) -> int | None:
    """The nearest integer of a number in [low, high] times one within `error` of `factor`."""
    least = min(low * (factor - error), high * (factor - error))
    most = max(low * (factor + error), high * (factor + error))
    half = Fraction(1, 2)
    nearest = math.floor(least + half)
    return nearest if nearest == math.floor(most + half) else None
