import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.lazy_uniform import (
    LazyUniform,
    cosine_and_sine,
    decide_bernoulli_exp,
    sqrt_bounds,
)

numerators = st.integers(min_value=1, max_value=2**63 - 1)


def exact(value: object) -> mpmath.mpf:
    fraction = Fraction(value)
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def uniform_of(numerator: int, num_bits: int = 63) -> LazyUniform:
    return LazyUniform(numerator, num_bits, SeededNoise(0))


def test_refining_keeps_the_bits_that_are_drawn() -> None:
    uniform = uniform_of(5, 4)
    uniform.refine()
    assert uniform.num_bits == 68
    assert uniform.numerator >> 64 == 5
    assert uniform.numerator % 2**64 == int(SeededNoise(0).words(1)[0])


@given(numerators)
def test_the_bounds_of_a_uniform_hold_all_its_continuations(numerator: int) -> None:
    low, high = (Fraction(bound) for bound in uniform_of(numerator).bounds())
    assert low <= Fraction(numerator, 2**63)
    assert high >= Fraction(numerator + 1, 2**63)
    assert high - low < Fraction(1001, 1000) * Fraction(1, 2**63)


@given(numerators)
def test_the_bounds_of_a_logarithm_hold_and_are_tight(numerator: int) -> None:
    with mpmath.workdps(150):
        bounds = uniform_of(numerator).negative_log_bounds()
        assert bounds is not None
        ends = [-mpmath.log(mpmath.mpf(numerator + step) / 2**63) for step in (1, 0)]
        assert exact(bounds[0]) <= ends[0] <= ends[1] <= exact(bounds[1])
        assert exact(bounds[1]) - exact(bounds[0]) <= (ends[1] - ends[0]) * (1 + mpmath.mpf(1e-20))


def test_a_uniform_of_zero_bits_only_has_no_logarithm_yet() -> None:
    assert uniform_of(0).negative_log_bounds() is None


def test_the_logarithm_of_a_uniform_that_may_be_one_starts_at_zero() -> None:
    bounds = uniform_of(2**63 - 1).negative_log_bounds()
    assert bounds is not None
    assert bounds[0] == 0


@given(st.integers(min_value=0, max_value=2**63 - 1), st.integers(min_value=0, max_value=2))
def test_cosine_and_sine_are_within_their_error(numerator: int, num_refinements: int) -> None:
    uniform = uniform_of(numerator)
    for _ in range(num_refinements):
        uniform.refine()
    cosine, sine, error = cosine_and_sine(uniform)
    assert error < Fraction(8, 2**uniform.num_bits)
    with mpmath.workdps(200):
        for step in (0, 1):
            angle = 2 * mpmath.pi * (uniform.numerator + step) / mpmath.mpf(2) ** uniform.num_bits
            assert abs(mpmath.cos(angle) - exact(cosine)) <= exact(error)
            assert abs(mpmath.sin(angle) - exact(sine)) <= exact(error)


@given(st.fractions(min_value=0, max_value=100))
def test_the_bounds_of_a_square_root_hold(value: Fraction) -> None:
    low, high = sqrt_bounds(value, value, num_bits=80)
    assert low**2 <= value <= high**2
    assert high - low <= Fraction(2, 2**80)


@pytest.mark.parametrize("exponent", [Fraction(1, 3), Fraction(1), Fraction(7), Fraction(20)])
def test_an_exponential_coin_turns_exactly_at_its_chance(exponent: Fraction) -> None:
    with mpmath.workdps(80):
        chance = mpmath.exp(-exact(exponent))
        for num_bits in (63, 127, 191):
            boundary = int(mpmath.floor(chance * 2**num_bits))
            assert decide_bernoulli_exp(exponent, uniform_of(boundary - 1, num_bits))
            assert not decide_bernoulli_exp(exponent, uniform_of(boundary + 1, num_bits))


def test_an_exponential_coin_at_its_boundary_draws_more_bits() -> None:
    uniform = uniform_of(math.floor(Fraction(math.exp(-1)) * 2**40), 40)
    decide_bernoulli_exp(Fraction(1), uniform)
    assert uniform.num_bits > 40


def test_an_exponential_coin_of_exponent_zero_always_falls_true() -> None:
    assert decide_bernoulli_exp(Fraction(0), uniform_of(2**63 - 1))


def test_an_exponential_coin_of_a_huge_exponent_falls_false() -> None:
    words = SeededNoise(3).words(20)
    for word in np.asarray(words):
        assert not decide_bernoulli_exp(Fraction(10**9), uniform_of(int(word) >> 1))
