import math

import mpmath
import numpy as np
import pytest

from statistical.randomizer_checks import ScriptedNoise, assert_discrete_laplace
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.polya import (
    NoiseShareConfig,
    polya_thresholds,
    sample_noise_shares,
    sample_polya,
)


def _cumulative(scale: float, num_shares: int, value: int) -> mpmath.mpf:
    """The law by its definition, with mpmath's gamma function."""
    odds, shape = mpmath.exp(-1 / mpmath.mpf(scale)), 1 / mpmath.mpf(num_shares)
    terms = (mpmath.rf(shape, k) / mpmath.factorial(k) * odds**k for k in range(value + 1))
    return (1 - odds) ** shape * mpmath.fsum(terms)


@pytest.mark.parametrize(("scale", "num_shares"), [(0.3, 1), (1.0, 3), (2.5, 1000), (12.0, 7)])
def test_thresholds_are_the_rounded_down_cumulative_chances(scale: float, num_shares: int) -> None:
    thresholds = polya_thresholds(scale, num_shares)
    with mpmath.workdps(60):
        for value in range(0, len(thresholds), 1 + len(thresholds) // 20):
            exact = _cumulative(scale, num_shares, value) * 2**64
            assert int(thresholds[value]) == int(mpmath.floor(exact))
    assert int(thresholds[-1]) == 2**64 - 1
    assert (np.diff(thresholds.astype(object)) >= 0).all()


def test_one_share_is_the_geometric_law() -> None:
    thresholds = polya_thresholds(2.0, 1)
    for value in range(10):
        assert int(thresholds[value]) / 2**64 == pytest.approx(-math.expm1(-(value + 1) / 2))


def test_words_on_either_side_of_a_threshold_are_decided_at_once() -> None:
    config = NoiseShareConfig(scale=2.0, num_shares=5)
    thresholds = polya_thresholds(2.0, 5)
    words = [0, int(thresholds[0]) - 1, int(thresholds[0]) + 1, int(thresholds[3]) - 1]
    rng = ScriptedNoise(words)
    assert sample_polya(config, 4, rng=rng).tolist() == [0, 0, 1, 3]


def test_a_word_on_a_threshold_is_decided_by_further_words() -> None:
    config = NoiseShareConfig(scale=2.0, num_shares=5)
    tie = int(polya_thresholds(2.0, 5)[0])
    with mpmath.workdps(80):
        rest = int(mpmath.floor((_cumulative(2.0, 5, 0) * 2**64 - tie) * 2**64))
    assert sample_polya(config, 1, rng=ScriptedNoise([tie, rest - 1])).tolist() == [0]
    assert sample_polya(config, 1, rng=ScriptedNoise([tie, rest + 1])).tolist() == [1]
    # A second tie asks for a third word.
    assert sample_polya(config, 1, rng=ScriptedNoise([tie, rest, 0])).tolist() == [0]
    assert sample_polya(config, 1, rng=ScriptedNoise([tie, rest, 2**64 - 1])).tolist() == [1]


def test_the_last_word_reaches_beyond_the_table() -> None:
    config = NoiseShareConfig(scale=1.0, num_shares=2)
    far = sample_polya(config, 1, rng=ScriptedNoise([2**64 - 1, 2**64 - 2]))
    assert far[0] > len(polya_thresholds(1.0, 2))


@pytest.mark.parametrize("num_shares", [3, 5, 10])
def test_shares_sum_to_discrete_laplace_noise(num_shares: int) -> None:
    scale, num_totals = 1.7, 100_000
    config = NoiseShareConfig(scale=scale, num_shares=num_shares)
    shares = sample_noise_shares(config, num_shares * num_totals, rng=SeededNoise(num_shares))
    totals = shares.reshape(num_totals, num_shares).sum(axis=1)
    assert_discrete_laplace(totals, scale)


def test_the_stated_variance_is_that_of_a_share() -> None:
    config = NoiseShareConfig(scale=3.0, num_shares=4)
    shares = sample_noise_shares(config, 200_000, rng=SeededNoise(8))
    spread = 6.5 * np.std(shares.astype(float) ** 2) / math.sqrt(shares.size)
    assert abs(np.mean(shares.astype(float) ** 2) - config.variance) < spread


def test_no_samples_draw_no_words() -> None:
    assert (
        sample_noise_shares(NoiseShareConfig(scale=1.0, num_shares=2), 0, rng=SeededNoise(0)).size
        == 0
    )


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e9])
def test_scales_without_a_table_are_refused(scale: float) -> None:
    with pytest.raises(ConfigError, match="scale"):
        NoiseShareConfig(scale=scale, num_shares=2)
