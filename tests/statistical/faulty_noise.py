"""Deliberately wrong noise. Each fault here is one that real libraries have had.

Every function is a fault that `test_planted_noise_faults` must catch; the list
grows with every bug.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tulle.mechanisms.discrete_laplace import (
    DiscreteLaplaceConfig,
    release_discrete_laplace,
    sample_discrete_laplace,
)
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.exact import sample_bernoulli, sample_geometric
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace

Values = NDArray[np.float64]
Counts = NDArray[np.int64]


def half_gaussian_noise(raw: Values, config: GaussianConfig, rng: NoiseSource) -> Values:
    return raw + (release_gaussian(np.zeros_like(raw), config, rng=rng)) / 2


def half_discrete_laplace_noise(
    raw: Counts, config: DiscreteLaplaceConfig, rng: NoiseSource
) -> Counts:
    return raw + sample_discrete_laplace(config.scale / 2, raw.shape, rng=rng)


def gaussian_for_one_value_of_many(
    raw: Values, config: GaussianConfig, rng: NoiseSource, *, num_values: int
) -> Values:
    """Bounds each value instead of the vector: the L2 contribution is sqrt(k) too small."""
    contribution = config.max_contribution / math.sqrt(num_values)
    per_value = GaussianConfig(
        noise_multiplier=config.noise_multiplier, max_contribution=contribution
    )
    return release_gaussian(raw, per_value, rng=rng)


def laplace_with_the_scale_taken_for_the_stddev(
    raw: Values, config: LaplaceConfig, rng: NoiseSource
) -> Values:
    smaller = LaplaceConfig(noise_multiplier=config.noise_multiplier / math.sqrt(2))
    return release_laplace(raw, smaller, rng=rng)


def gaussian_from_a_generator_made_anew(raw: Values, config: GaussianConfig) -> Values:
    """Every call repeats the noise of the one before; the difference of two is exact."""
    return release_gaussian(raw, config, rng=SeededNoise(0))


def discrete_laplace_with_two_zeros(
    raw: Counts, config: DiscreteLaplaceConfig, rng: NoiseSource
) -> Counts:
    """A size and a sign, without drawing -0 again: zero comes twice as often as it should."""
    sizes = sample_geometric(config.scale, raw.shape, rng=rng)
    return raw + np.where(sample_bernoulli(0.5, raw.shape, rng=rng), sizes, -sizes)


def discrete_laplace_without_zero(
    raw: Counts, config: DiscreteLaplaceConfig, rng: NoiseSource
) -> Counts:
    """Starts the geometric at 1: a noisy count never equals the raw one."""
    sizes = sample_geometric(config.scale, raw.shape, rng=rng) + 1
    return raw + np.where(sample_bernoulli(0.5, raw.shape, rng=rng), sizes, -sizes)


def laplace_in_floats(raw: Values, config: LaplaceConfig, rng: NoiseSource) -> Values:
    """The textbook formula: which floats can come out depends on the raw value."""
    uniform = (rng.words(raw.size) >> np.uint64(11)) * 2.0**-53 - 0.5
    return raw - config.noise_scale * np.sign(uniform) * np.log1p(-2 * np.abs(uniform))


def gaussian_rounded_after_the_raw_value(
    raw: Values, config: GaussianConfig, rng: NoiseSource
) -> Values:
    """Puts the noise on a grid, but not the raw value: the remainder stays readable."""
    return raw + release_gaussian(np.zeros_like(raw), config, rng=rng)


def gaussian_with_cut_tails(raw: Values, config: GaussianConfig, rng: NoiseSource) -> Values:
    noise = release_gaussian(np.zeros_like(raw), config, rng=rng)
    return raw + np.clip(noise, -3 * config.noise_stddev, 3 * config.noise_stddev)


def discrete_laplace_with_cut_tails(
    raw: Counts, config: DiscreteLaplaceConfig, rng: NoiseSource
) -> Counts:
    noise = release_discrete_laplace(np.zeros_like(raw), config, rng=rng)
    limit = round(7 * config.scale)
    return raw + np.clip(noise, -limit, limit)


def one_gaussian_for_all_values(raw: Values, config: GaussianConfig, rng: NoiseSource) -> Values:
    """One draw, broadcast: differences between values are exact."""
    return raw + release_gaussian(0.0, config, rng=rng)


def counts_without_noise_on_empty_slices(
    raw: Counts, config: DiscreteLaplaceConfig, rng: NoiseSource
) -> Counts:
    """Leaves empty slices alone: an exact zero says that nobody is there."""
    noisy = release_discrete_laplace(raw, config, rng=rng)
    return np.where(raw == 0, 0, noisy)
