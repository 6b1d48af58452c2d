import dataclasses
import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.mechanisms.discrete_laplace import discrete_laplace_law
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, Words
from tulle.mechanisms.exact import (
    ExponentialFloor,
    LazyUniform,
    cosine_and_sine,
    decide_bernoulli_exp,
    decide_bernoulli_exps,
    exponential_floor,
    sample_bernoulli,
    sample_bernoulli_exp,
    sample_geometric,
    sample_signed_floors,
    signed_floors_of_words,
    sqrt_bounds,
)

SCALES = [1e-3, 0.05, 0.3, 1.0, 1.7, 123.4, 1e6, 1e9, 2.0**40]


class ScriptedNoise:
    """Gives the stated words and refuses to give more."""

    is_secure = False
    description = "a script"

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, num_words: int) -> Words:
        taken, self._words = self._words[:num_words], self._words[num_words:]
        assert len(taken) == num_words, "more bits were drawn than needed"
        return np.array(taken, dtype=np.uint64)


def laws(scale: float) -> list[ExponentialFloor]:
    return [
        discrete_laplace_law(scale),
        exponential_floor(scale, Decimal(0)),
        exponential_floor(scale, Decimal("0.5")),
    ]


def one_draw(numerator: int, law: ExponentialFloor, *further: int) -> int:
    words = np.array([numerator << 1], dtype=np.uint64)
    return int(signed_floors_of_words(words, law, rng=ScriptedNoise(*further))[0])


@pytest.mark.parametrize("scale", SCALES)
def test_floats_decide_as_interval_arithmetic_does(scale: float) -> None:
    words = SeededNoise(1).words(300)
    for law in laws(scale):
        fast = signed_floors_of_words(words, law, rng=SeededNoise(2))
        slow = signed_floors_of_words(words, law, rng=SeededNoise(2), slack=math.inf)
        np.testing.assert_array_equal(fast, slow)


def test_exponential_coins_by_floats_are_those_by_interval_arithmetic() -> None:
    exponents = np.linspace(0, 6, 300)

    def exact_exponent(index: int) -> Fraction:
        return Fraction(float(exponents[index]))

    fast = decide_bernoulli_exps(exponents, exact_exponent, rng=SeededNoise(1))
    slow = decide_bernoulli_exps(exponents, exact_exponent, rng=SeededNoise(1), slack=math.inf)
    np.testing.assert_array_equal(fast, slow)


def test_the_logarithm_of_numpy_is_as_accurate_as_the_slack_assumes() -> None:
    # Several lengths, because numpy picks other code for the ends of an array.
    for length in (1, 3, 7, 500):
        uniforms = (SeededNoise(length).words(length) >> np.uint64(1)) * 2.0**-63
        for uniform, log in zip(uniforms.tolist(), np.log(uniforms).tolist(), strict=True):
            with mpmath.workdps(40):
                assert abs(log / mpmath.log(mpmath.mpf(uniform)) - 1) < 2.0**-50


@pytest.mark.parametrize("scale", [0.3, 40.0, 1e4])
def test_floats_decide_nearly_all_draws(scale: float) -> None:
    def refuse(_num_digits: int) -> tuple[Decimal, Decimal]:
        raise AssertionError("interval arithmetic was used")

    words = SeededNoise(4).words(2**16)
    words = words[words >= np.uint64(2**47)]
    law = dataclasses.replace(discrete_laplace_law(scale), offset_bounds=refuse)
    floors = signed_floors_of_words(words, law, rng=ScriptedNoise())
    assert np.array_equal(floors < 0, ((words & np.uint64(1)) == 1) & (floors != 0))


@pytest.mark.parametrize("scale", [0.3, 1.7, 25.0, 1e6])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_size_is_reached_by_exactly_its_share_of_the_uniforms(scale: float, size: int) -> None:
    with mpmath.workdps(120):
        p = mpmath.exp(-1 / mpmath.mpf(scale))
        shares = [
            (discrete_laplace_law(scale), 2 * p**size / (1 + p)),
            (exponential_floor(scale, Decimal(0)), p**size),
            (exponential_floor(scale, Decimal("0.5")), p ** (size - mpmath.mpf(0.5))),
        ]
        for law, share in shares:
            boundary = share * 2**63
            numerator = int(mpmath.floor(boundary))
            next_bits = (boundary - numerator) * 2**64
            assert one_draw(numerator - 1, law) >= size
            assert one_draw(numerator + 1, law) < size
            assert one_draw(numerator, law, int(next_bits) - 1) >= size
            assert one_draw(numerator, law, int(next_bits) + 1) < size


def test_the_last_bit_of_a_word_is_the_sign() -> None:
    words = SeededNoise(1).words(100) & ~np.uint64(1)
    law = discrete_laplace_law(50.0)
    positive = signed_floors_of_words(words, law, rng=SeededNoise(0))
    negative = signed_floors_of_words(words | np.uint64(1), law, rng=SeededNoise(0))
    assert (positive >= 0).all()
    np.testing.assert_array_equal(negative, -positive)


@pytest.mark.parametrize("extreme", [0, 1, 2, 2**64 - 1, 2**64 - 2])
def test_extreme_words_give_draws_without_a_warning(extreme: int) -> None:
    words = np.full(4, extreme, dtype=np.uint64)
    for law in laws(2.0):
        draws = np.abs(signed_floors_of_words(words, law, rng=SeededNoise(0)))
        assert (draws >= 86).all() if extreme < 4 else (draws <= 1).all()


def test_draws_come_in_the_asked_shape() -> None:
    rng = SeededNoise(0)
    assert sample_signed_floors(discrete_laplace_law(1.0), (3, 0, 2), rng=rng).shape == (3, 0, 2)
    assert sample_geometric(2.0, (3, 4), rng=rng).shape == (3, 4)
    assert sample_geometric(2.0, (), rng=rng).shape == ()
    assert sample_geometric(2.0, 0, rng=rng).dtype == np.int64
    assert sample_bernoulli(0.5, (2, 5), rng=rng).shape == (2, 5)
    assert sample_bernoulli_exp(0.5, (2, 5), rng=rng).shape == (2, 5)
    assert (sample_geometric(3.0, 1000, rng=rng) >= 0).all()


def test_a_coin_turns_at_the_word_of_its_chance() -> None:
    threshold = 3 * 2**62
    rng: NoiseSource = ScriptedNoise(threshold - 1, threshold, 0)
    assert sample_bernoulli(0.75, 3, rng=rng).tolist() == [True, False, True]


def test_a_coin_with_a_chance_finer_than_a_word_draws_another_one() -> None:
    chance = Fraction(5, 2**64) + Fraction(1, 2**66)
    rng = ScriptedNoise(4, 5, 5, 6, 2**62 - 1, 2**62)
    assert sample_bernoulli(chance, 4, rng=rng).tolist() == [True, True, False, False]


def test_coins_of_chance_zero_and_one_never_turn() -> None:
    rng = SeededNoise(0)
    assert not sample_bernoulli(0.0, 100, rng=rng).any()
    assert sample_bernoulli(1.0, 100, rng=rng).all()
    assert sample_bernoulli_exp(0.0, 100, rng=rng).all()


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-4, 2.0**41, math.inf, math.nan])
def test_a_scale_out_of_range_is_refused_with_the_way_out(scale: float) -> None:
    with pytest.raises(ConfigError, match=r"scale=.* must be in .*larger steps"):
        sample_geometric(scale, 1, rng=SeededNoise(0))


@pytest.mark.parametrize("exponent", [-0.1, math.inf, math.nan])
def test_an_exponent_out_of_range_is_refused(exponent: float) -> None:
    with pytest.raises(ConfigError, match="exponent="):
        sample_bernoulli_exp(exponent, 1, rng=SeededNoise(0))


@pytest.mark.parametrize("prob", [-0.1, 1.1, math.nan])
def test_a_chance_out_of_range_is_refused(prob: float) -> None:
    with pytest.raises(ConfigError, match="prob="):
        sample_bernoulli(prob, 1, rng=SeededNoise(0))


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
