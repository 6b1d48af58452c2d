import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import ScriptedNoise, assert_follows, exceeds_exp
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.thresholds import (
    WORD_VALUES,
    absent_mass,
    exponential_bounds,
    log_ratio,
    loser_mass,
    sample_below,
    sample_subsets,
)

epsilons = st.floats(1e-3, 50.0)


@given(exponent=st.floats(-700, 700))
def test_exponential_bounds_enclose_the_exponential_tightly(exponent: float) -> None:
    low, high = exponential_bounds(exponent)
    with mpmath.workdps(120):
        true = mpmath.exp(exponent)
        assert mpmath.mpf(low.numerator) / low.denominator <= true
        assert mpmath.mpf(high.numerator) / high.denominator >= true
    assert (high - low) / low < Fraction(1, 10**50)


def test_exponential_bounds_take_exact_fractions() -> None:
    low, high = exponential_bounds(Fraction(1, 3), num_digits=100)
    assert low**3 < exponential_bounds(1.0, num_digits=100)[1]
    assert high**3 > exponential_bounds(1.0, num_digits=100)[0]


def test_exponents_beyond_reason_are_refused() -> None:
    with pytest.raises(ConfigError, match="lower epsilon"):
        exponential_bounds(1e6)


@settings(max_examples=200)
@given(epsilon=epsilons, num_values=st.integers(2, 40))
def test_the_loser_mass_is_the_smallest_that_keeps_the_ratio(
    epsilon: float, num_values: int
) -> None:
    mass = loser_mass(epsilon, num_values)

    def ratio(words: int) -> Fraction:
        return Fraction(WORD_VALUES - (num_values - 1) * words, words)

    assert ratio(mass) > 1
    assert not exceeds_exp(ratio(mass), epsilon)
    assert mass == 1 or exceeds_exp(ratio(mass - 1), epsilon)


@settings(max_examples=200)
@given(data=st.data(), epsilon=epsilons, num_values=st.integers(2, 40))
def test_the_absent_mass_is_the_smallest_that_keeps_the_ratio(
    data: st.DataObject, epsilon: float, num_values: int
) -> None:
    size = data.draw(st.integers(1, num_values - 1))
    mass = absent_mass(epsilon, num_values, size)

    def ratio(words: int) -> Fraction:
        return Fraction((WORD_VALUES - words) * (num_values - size), words * size)

    assert ratio(mass) > 1
    assert not exceeds_exp(ratio(mass), epsilon)
    assert mass == 1 or exceeds_exp(ratio(mass - 1), epsilon)


@pytest.mark.parametrize("epsilon", [44.4, 50.0, 100.0, 1e308])
def test_one_word_is_left_to_each_loser_at_huge_epsilon(epsilon: float) -> None:
    assert loser_mass(epsilon, 2) == 1
    assert absent_mass(epsilon, 10, 1) >= 1


@pytest.mark.parametrize("num_values", [2, 3, 7, 1000])
def test_an_epsilon_below_the_resolution_of_words_is_refused(num_values: int) -> None:
    with pytest.raises(ConfigError, match="too small"):
        loser_mass(1e-25, num_values)
    with pytest.raises(ConfigError, match="too small"):
        absent_mass(1e-25, num_values, 1)


@pytest.mark.parametrize("num_values", [2, 3, 7, 1000])
def test_the_way_out_of_a_refusal_works(num_values: int) -> None:
    assert loser_mass(2 * num_values**2 / WORD_VALUES, num_values) > 0


def test_golden_mass_of_binary_response_at_epsilon_one() -> None:
    # ceil(2^64 / (e + 1)), with 60 digits of mpmath.
    assert loser_mass(1.0, 2) == loser_mass(Fraction(1), 2) == 4961093570831980854


def test_epsilon_is_the_exact_number_that_the_float_is() -> None:
    # The float ln 3 exceeds ln 3 by 8e-17, so losers get fewer words than a quarter.
    assert 0 < 2**62 - loser_mass(math.log(3), 2) < 1000


def test_log_ratio_is_right_for_close_and_for_huge_ratios() -> None:
    assert log_ratio(Fraction(2**64 + 1, 2**64)) == pytest.approx(2.0**-64, rel=1e-15)
    assert log_ratio(Fraction(2**64)) == pytest.approx(64 * math.log(2), rel=1e-15)


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
