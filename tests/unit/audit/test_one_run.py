"""Bounds from guesses are never above the truth, and near it where it can be known."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import NoPrivacyCurve, PrivacyCurve
from tulle.audit.canary_guesses import Guesses
from tulle.audit.one_run import (
    guesses_chance,
    least_epsilon,
    least_epsilon_in_family,
    refutes_curve,
)
from tulle.errors import ConfigError
from tulle.privacy.events import EpsilonDelta, Event, Gaussian, RandomizedResponse
from tulle.privacy.units import Adjacency


def guesses(canaries: int, made: int, right: int) -> Guesses:
    return Guesses(num_canaries=canaries, num_guesses=made, num_correct=right)


def curve(event: Event) -> PrivacyCurve:
    return privacy_curve(event, Adjacency.REPLACE)


def largest_chance(found: Guesses, claim: PrivacyCurve) -> float:
    """The largest chance of so many right guesses that the claim does not forbid."""
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        is_refuted = refutes_curve(found, claim, false_alarm_prob=middle)
        low, high = (low, middle) if is_refuted else (middle, high)
    return high


def largest_chance_by_program(found: Guesses, claim: PrivacyCurve) -> float:
    """The same as a linear program over the law of the number of right guesses."""
    epsilons = np.linspace(0.0, 40.0, 801)
    deltas, ratios = claim.deltas(epsilons), np.exp(epsilons)
    total, made = found.num_canaries, found.num_guesses
    numbers = np.arange(made + 1)
    rows, limits = [], []
    for least in range(1, made + 1):
        right = np.where(numbers >= least, numbers, 0) / total
        wrong = np.where(numbers >= least - 1, made - numbers, 0) / total
        for delta, ratio in zip(deltas, ratios, strict=True):
            if ratio < 1e6:
                rows += [right - ratio * wrong, ratio * right - wrong]
                limits += [delta, delta + ratio - 1]
    objective = -(numbers >= found.num_correct).astype(float)
    solved = linprog(
        objective, A_ub=rows, b_ub=limits, A_eq=[np.ones(made + 1)], b_eq=[1], method="highs"
    )
    return -float(solved.fun)


@pytest.mark.parametrize(("made", "right"), [(1, 1), (10, 8), (40, 31), (40, 0)])
def test_without_delta_the_chance_is_a_binomial_tail(made: int, right: int) -> None:
    epsilon = math.log(3)
    prob = Fraction(3, 4)
    tail = sum(
        math.comb(made, k) * prob**k * (1 - prob) ** (made - k) for k in range(right, made + 1)
    )
    chance = guesses_chance(guesses(50, made, right), epsilon=epsilon, delta=0.0)
    assert chance == pytest.approx(float(tail), rel=1e-9)


@pytest.mark.parametrize("right", [15, 18, 20])
def test_no_leaking_response_is_likelier_right_than_the_bound(right: int) -> None:
    epsilon, delta, total = 1.0, 0.01, 20
    prob = 1 / (1 + math.exp(-epsilon))
    bound = guesses_chance(guesses(total, total, right), epsilon=epsilon, delta=delta)
    leaks_each = float(stats.binom.sf(right - 1, total, delta + (1 - delta) * prob))
    leaks_all = delta + (1 - delta) * float(stats.binom.sf(right - 1, total, prob))
    assert max(leaks_each, leaks_all) <= bound
    # Without the part of delta the bound would be wrong.
    without = guesses_chance(guesses(total, total, right), epsilon=epsilon, delta=0.0)
    assert leaks_all > without


@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0, 3.0])
def test_one_guess_of_one_coin_is_right_as_often_as_the_best_test(noise_multiplier: float) -> None:
    claim = curve(Gaussian(noise_multiplier=noise_multiplier))
    best = float(stats.norm.cdf(1 / noise_multiplier))
    assert largest_chance(guesses(1, 1, 1), claim) == pytest.approx(best, abs=2e-4)


@pytest.mark.parametrize(
    "found", [guesses(6, 6, 5), guesses(6, 6, 6), guesses(12, 5, 5), guesses(12, 8, 6)]
)
@pytest.mark.parametrize(
    "event",
    [
        Gaussian(noise_multiplier=2.0),
        RandomizedResponse(epsilon=0.7),
        EpsilonDelta(epsilon=0.5, delta=0.02),
    ],
)
def test_the_largest_chance_is_that_of_a_linear_program(found: Guesses, event: Event) -> None:
    claim = curve(event)
    program = largest_chance_by_program(found, claim)
    assert largest_chance(found, claim) == pytest.approx(program, abs=1e-4)


@pytest.mark.parametrize("right", [14, 17, 20])
@pytest.mark.parametrize("delta", [0.001, 0.05])
def test_a_whole_curve_never_forbids_a_response_that_sometimes_leaks_every_coin(
    right: int, delta: float
) -> None:
    epsilon, total = 1.0, 20
    tail = float(stats.binom.sf(right - 1, total, 1 / (1 + math.exp(-epsilon))))
    found = guesses(total, total, right)
    allowed = largest_chance(found, curve(EpsilonDelta(epsilon=epsilon, delta=delta)))
    assert delta + (1 - delta) * tail <= allowed
    # A claim without its delta would forbid it.
    if right == total:
        assert delta > largest_chance(found, curve(EpsilonDelta(epsilon=0.1, delta=0.0)))


@pytest.mark.parametrize("noise_multiplier", [1.0, 3.0])
def test_a_whole_curve_never_forbids_guesses_where_one_canary_alone_is_seen(
    noise_multiplier: float,
) -> None:
    claim = curve(Gaussian(noise_multiplier=noise_multiplier))
    one_right = float(stats.norm.cdf(1 / noise_multiplier))
    # Of 10 canaries one alone is seen, and 9 are guessed at random.
    tail = float(stats.binom.sf(7, 9, 0.5))
    next_tail = float(stats.binom.sf(6, 9, 0.5))
    chance = one_right * next_tail + (1 - one_right) * tail
    assert chance <= largest_chance(guesses(10, 10, 8), claim)


@pytest.mark.parametrize("right", [14, 17, 20])
def test_a_whole_curve_never_forbids_what_randomized_response_does(right: int) -> None:
    epsilon, total = 1.0, 20
    tail = float(stats.binom.sf(right - 1, total, 1 / (1 + math.exp(-epsilon))))
    allowed = largest_chance(guesses(total, total, right), curve(RandomizedResponse(epsilon=1.0)))
    assert tail <= allowed <= 1
    assert allowed < 4 * tail or allowed > 0.3


def test_no_guesses_refute_a_claim_of_no_privacy() -> None:
    found = guesses(1000, 1000, 1000)
    assert not refutes_curve(found, NoPrivacyCurve(), false_alarm_prob=0.05)


def test_all_guesses_right_refute_strong_privacy_and_half_of_them_do_not() -> None:
    claim = curve(Gaussian(noise_multiplier=5.0))
    assert refutes_curve(guesses(100, 100, 100), claim, false_alarm_prob=1e-3)
    assert not refutes_curve(guesses(100, 100, 50), claim, false_alarm_prob=0.5)
    assert not refutes_curve(guesses(100, 100, 0), claim, false_alarm_prob=0.5)


def test_bounds_rise_with_right_guesses_and_fall_with_certainty() -> None:
    def family(factor: float) -> PrivacyCurve:
        return curve(Gaussian(noise_multiplier=factor))

    def both(right: int, alarm: float) -> tuple[float, float]:
        found = guesses(1000, 100, right)
        plain = least_epsilon(found, delta=1e-5, false_alarm_prob=alarm)
        of_family = least_epsilon_in_family(found, family, delta=1e-5, false_alarm_prob=alarm)
        return plain, of_family

    few, many, surer = both(80, 0.05), both(97, 0.05), both(97, 1e-6)
    assert few[0] < many[0]
    assert few[1] < many[1]
    assert surer[0] < many[0]
    assert surer[1] < many[1]
    assert few[1] > few[0]
    assert both(50, 0.05) == (0.0, 0.0)


def test_the_plain_bound_is_where_the_chance_is_the_false_alarm() -> None:
    found = guesses(1000, 100, 95)
    bound = least_epsilon(found, delta=1e-5, false_alarm_prob=0.05)
    assert guesses_chance(found, epsilon=bound, delta=1e-5) <= 0.05
    assert guesses_chance(found, epsilon=bound + 0.01, delta=1e-5) > 0.05


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, math.nan])
def test_a_false_alarm_that_is_no_chance_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="false_alarm_prob"):
        least_epsilon(guesses(10, 5, 5), delta=0.0, false_alarm_prob=wrong)
    with pytest.raises(ConfigError, match="false_alarm_prob"):
        refutes_curve(guesses(10, 5, 5), NoPrivacyCurve(), false_alarm_prob=wrong)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.0), (1.0, -0.1), (1.0, 1.0)])
def test_settings_without_meaning_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError):
        guesses_chance(guesses(10, 5, 5), epsilon=epsilon, delta=delta)
