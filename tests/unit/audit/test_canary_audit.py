"""One run with canaries: a right mechanism passes, half of its noise does not."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from statistical import faulty_training_steps as faulty
from statistical.training_runs import (
    NOISE_MULTIPLIER,
    Background,
    MakeStep,
    Trial,
    runs_side_by_side,
    sampler_of,
)
from tulle.audit.canary_audit import OneRunConfig, OneRunResult, audit_canaries
from tulle.audit.canary_guesses import Guesses, guess_surest
from tulle.errors import ConfigError, DataError
from tulle.privacy.events import Gaussian, NonPrivate
from tulle.privacy.units import Adjacency
from tulle.train.private_step import PrivateStep

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
def test_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OneRunConfig(**wrong)  # type: ignore[arg-type]
