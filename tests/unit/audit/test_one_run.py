"""Bounds from guesses are never above the truth, and near it where it can be known."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linprog

from statistical import faulty_training_steps as faulty
from statistical.training_runs import (
    NOISE_MULTIPLIER,
    Background,
    MakeStep,
    Trial,
    runs_side_by_side,
    sampler_of,
)
from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import NoPrivacyCurve, PrivacyCurve
from tulle.audit.one_run import (
    Guesses,
    OneRunConfig,
    OneRunResult,
    audit_canaries,
    guess_surest,
    guesses_prob,
    least_epsilon,
    least_epsilon_in_family,
    refutes_curve,
)
from tulle.errors import ConfigError, DataError
from tulle.privacy.events import EpsilonDelta, Event, Gaussian, NonPrivate, RandomizedResponse
from tulle.privacy.units import Adjacency
from tulle.train.steps.private_step import PrivateStep


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
    chance = guesses_prob(guesses(50, made, right), epsilon=epsilon, delta=0.0)
    assert chance == pytest.approx(float(tail), rel=1e-9)


@pytest.mark.parametrize("right", [15, 18, 20])
def test_no_leaking_response_is_likelier_right_than_the_bound(right: int) -> None:
    epsilon, delta, total = 1.0, 0.01, 20
    prob = 1 / (1 + math.exp(-epsilon))
    bound = guesses_prob(guesses(total, total, right), epsilon=epsilon, delta=delta)
    leaks_each = float(stats.binom.sf(right - 1, total, delta + (1 - delta) * prob))
    leaks_all = delta + (1 - delta) * float(stats.binom.sf(right - 1, total, prob))
    assert max(leaks_each, leaks_all) <= bound
    # Without the part of delta the bound would be wrong.
    without = guesses_prob(guesses(total, total, right), epsilon=epsilon, delta=0.0)
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
    assert guesses_prob(found, epsilon=bound, delta=1e-5) <= 0.05
    assert guesses_prob(found, epsilon=bound + 0.01, delta=1e-5) > 0.05


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, math.nan])
def test_a_false_alarm_that_is_no_chance_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="false_alarm_prob"):
        least_epsilon(guesses(10, 5, 5), delta=0.0, false_alarm_prob=wrong)
    with pytest.raises(ConfigError, match="false_alarm_prob"):
        refutes_curve(guesses(10, 5, 5), NoPrivacyCurve(), false_alarm_prob=wrong)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.0), (1.0, -0.1), (1.0, 1.0)])
def test_settings_without_meaning_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError):
        guesses_prob(guesses(10, 5, 5), epsilon=epsilon, delta=delta)


Scores = tuple[NDArray[np.float64], NDArray[np.int64]]


def gaussian_canaries(num_canaries: int, stddev: float, seed: int) -> Scores:
    """Each canary moves a coordinate of its own by 1 or -1, under noise of its own."""
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, num_canaries)
    return 2 * coins - 1 + stddev * rng.standard_normal(num_canaries), coins


def audit(scores: Scores, claimed: float, config: OneRunConfig | None = None) -> OneRunResult:
    return audit_canaries(*scores, Gaussian(noise_multiplier=claimed), Adjacency.REPLACE, config)


@pytest.mark.parametrize(
    ("num_canaries", "plain", "whole"), [(1000, 2.7, 4.0), (10_000, 4.0, 6.5), (100_000, 3.7, 7.5)]
)
def test_bounds_at_epsilon_ten_are_those_of_the_reference(
    num_canaries: int, plain: float, whole: float
) -> None:
    # Figures of an independent computation, one run each; how many it guessed is not known.
    result = audit(gaussian_canaries(num_canaries, 1.0, seed=1), 1.0)
    assert result.claimed_epsilon == pytest.approx(9.997, abs=0.001)
    assert result.epsilon_lower_bound == pytest.approx(plain, abs=0.6)
    assert result.curve_lower_bound == pytest.approx(whole, abs=0.8)
    assert not result.is_violated


def test_right_runs_are_refuted_no_more_often_than_stated() -> None:
    num_runs, alarm = 60, 0.05
    results = [audit(gaussian_canaries(300, 2.0, seed=seed), 2.0) for seed in range(num_runs)]
    most = stats.binom.isf(1e-9, num_runs, alarm)
    assert sum(result.is_violated for result in results) <= most
    too_high = sum(result.curve_lower_bound > result.claimed_epsilon for result in results)
    assert too_high <= most
    # The same check rejects runs with half the noise.
    halved = [audit(gaussian_canaries(1000, 1.0, seed=seed), 2.0) for seed in range(30)]
    assert sum(result.is_violated for result in halved) > stats.binom.isf(1e-9, 30, alarm)


@pytest.mark.parametrize("num_canaries", [2000, 10_000])
def test_half_the_noise_is_refuted_and_all_of_it_is_not(num_canaries: int) -> None:
    right = audit(gaussian_canaries(num_canaries, 2.0, seed=3), 2.0)
    wrong = audit(gaussian_canaries(num_canaries, 1.0, seed=3), 2.0)
    assert not right.is_violated
    assert right.curve_lower_bound < right.claimed_epsilon
    assert wrong.is_violated
    assert wrong.curve_lower_bound > wrong.claimed_epsilon


def step_scores(make_step: MakeStep, num_canaries: int) -> Scores:
    """What one real private step releases about many canaries, each with weights of its own.

    A canary's release depends on its own label alone, so one step with coins is made of two
    steps with all labels equal.
    """
    trial = Trial(background=Background.APART, make_step=make_step)
    of_label = [runs_side_by_side(trial, num_canaries, label, 1000 * label + 7) for label in (0, 1)]
    coins = np.random.default_rng(5).integers(0, 2, num_canaries)
    # Their scores are high for label 0.
    return -np.where(coins == 1, of_label[1], of_label[0]), coins


@pytest.mark.parametrize(
    ("make_step", "is_wrong"), [(PrivateStep, False), (faulty.HalfNoise, True)]
)
def test_one_real_step_with_half_its_noise_is_caught(make_step: MakeStep, is_wrong: bool) -> None:
    num_canaries = 10_000
    event = sampler_of(num_canaries, 1).event(Gaussian(noise_multiplier=NOISE_MULTIPLIER))
    scores, coins = step_scores(make_step, num_canaries)
    config = OneRunConfig(false_alarm_prob=0.01, guess_shares=(0.1,))
    result = audit_canaries(scores, coins, event, Adjacency.REPLACE, config)
    assert result.is_violated == is_wrong
    assert (result.curve_lower_bound > result.claimed_epsilon) == is_wrong
    assert result.curve_lower_bound > 1
    # To be refuted, 974 of 1,000 guesses must be right. The right step manages 867, and 974 is
    # ten standard deviations of a binomial number above that.


def test_a_run_without_privacy_has_a_bound_and_no_claim_to_violate() -> None:
    scores, coins = gaussian_canaries(1000, 0.01, seed=1)
    result = audit_canaries(scores, coins, NonPrivate(), Adjacency.REPLACE)
    assert math.isinf(result.claimed_epsilon)
    assert result.curve_lower_bound > 5
    assert not result.is_violated


def test_scores_that_know_nothing_prove_nothing() -> None:
    scores, coins = gaussian_canaries(1000, 1e9, seed=2)
    result = audit((scores, coins), 1.0)
    assert result.curve_lower_bound == 0
    assert result.epsilon_lower_bound == 0


def test_the_surest_are_guessed_from_both_ends() -> None:
    scores = [0.1, -5.0, 3.0, 0.2, 9.0, -0.3]
    coins = [1, 0, 1, 0, 0, 1]
    found = guess_surest(scores, coins, num_guesses=4)
    assert found == Guesses(num_canaries=6, num_guesses=4, num_correct=2)
    assert guess_surest(scores, coins, num_guesses=1).num_correct == 1
    assert guess_surest(scores, coins, num_guesses=6).num_correct == 2


@pytest.mark.parametrize(
    ("scores", "coins"),
    [([1.0], [0, 1]), ([[1.0]], [[1]]), ([math.nan, 1.0], [0, 1]), ([0.0, 1.0], [0, 2])],
)
def test_scores_and_coins_that_do_not_fit_are_refused(scores: object, coins: object) -> None:
    with pytest.raises(DataError):
        guess_surest(scores, coins, num_guesses=1)  # type: ignore[arg-type]


def test_numbers_of_guesses_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_guesses=3"):
        guess_surest([0.0, 1.0], [0, 1], num_guesses=3)
    with pytest.raises(ConfigError, match="num_correct=3"):
        Guesses(num_canaries=5, num_guesses=2, num_correct=3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 1.0},
        {"delta": -0.1},
        {"false_alarm_prob": 0.0},
        {"guess_shares": ()},
        {"guess_shares": (0.0,)},
        {"guess_shares": (1.5,)},
    ],
)
def test_audits_with_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OneRunConfig(**wrong)  # type: ignore[arg-type]
