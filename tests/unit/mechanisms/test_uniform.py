import itertools

import numpy as np
import pytest

from statistical.randomizer_checks import ScriptedNoise, assert_follows
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.uniform import sample_below, sample_subsets


def test_words_above_the_last_full_multiple_are_drawn_again() -> None:
    first_refused = 2**64 - 2**64 % 10
    rng = ScriptedNoise([first_refused, 2**64 - 1, first_refused - 1, 3, 4])
    assert sample_below(10, 3, rng=rng).tolist() == [9, 3, 4]


@pytest.mark.parametrize("bound", [1, 2, 2**63, 2**64 - 1, 2**64])
def test_extreme_bounds_work(bound: int) -> None:
    samples = sample_below(bound, 1000, rng=SeededNoise(0))
    assert int(samples.max()) < bound
    assert len(set(samples.tolist())) == (bound if bound < 3 else 1000)


@pytest.mark.parametrize("bound", [0, -1, 2**64 + 1])
def test_bounds_that_words_cannot_reach_are_refused(bound: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 2"):
        sample_below(bound, 1, rng=SeededNoise(0))


def test_integers_below_a_bound_are_uniform() -> None:
    samples = sample_below(7, 70_000, rng=SeededNoise(5)).astype(np.int64)
    assert_follows(np.bincount(samples, minlength=7), [1 / 7] * 7)


@pytest.mark.parametrize("size", range(6))
def test_all_subsets_of_one_size_are_equally_likely(size: int) -> None:
    members = sample_subsets(5, size, 20_000, rng=SeededNoise(size))
    codes = members @ (1 << np.arange(5))
    expected = [sum(1 << i for i in subset) for subset in itertools.combinations(range(5), size)]
    counts = np.bincount(codes, minlength=32)
    assert counts[expected].sum() == 20_000
    if len(expected) > 1:
        assert_follows(counts[expected], [1 / len(expected)] * len(expected))


def test_subsets_larger_than_the_set_are_refused() -> None:
    with pytest.raises(ConfigError, match="subset_size=4"):
        sample_subsets(3, 4, 1, rng=SeededNoise(0))
