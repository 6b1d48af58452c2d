"""Noise on the buckets of private quantiles has the stated law, and wrong noise is caught."""

import numpy as np
import pytest

from statistical.noise_checks import assert_discrete
from tulle.data.features.number_bins import release_bucket_counts
from tulle.data.features.private_vocabulary import RowCountNoise
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource


def noise(num_columns: int, epsilon: float = 0.5) -> RowCountNoise:
    return RowCountNoise(
        noise_multiplier=None,
        epsilon=epsilon,
        delta=0.0,
        num_columns=num_columns,
        max_rows_per_unit=2,
    )


def check(made: RowCountNoise) -> None:
    """Three columns of at most two rows a unit at epsilon 0.5: the scale is 3 * 2 / 0.5."""

    def sampled(rng: NoiseSource, size: int) -> np.ndarray:
        raw_counts = np.arange(size)
        return release_bucket_counts(raw_counts, made, rng=rng) - raw_counts

    assert_discrete(
        sampled, lambda scale: DiscreteLaplaceConfig(scale=scale).pmf, scale=3 * 2 / 0.5
    )


def test_noise_on_buckets_has_the_stated_scale() -> None:
    check(noise(3))


@pytest.mark.parametrize("wrong", [noise(1), noise(3, epsilon=0.5 * 1.05)])
def test_noise_of_one_column_or_five_percent_too_small_is_caught(wrong: RowCountNoise) -> None:
    with pytest.raises(AssertionError, match="wrong"):
        check(wrong)
