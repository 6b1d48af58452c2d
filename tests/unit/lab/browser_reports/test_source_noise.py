import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from statistical.randomizer_checks import assert_follows, assert_private, assert_rejects
from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.report_states import ReportSpec, TriggerData
from tulle.lab.browser_reports.source_noise import (
    MOST_EPSILON,
    SourceKind,
    SourceNoise,
    check_gain,
    debias,
    debiased_variance,
    epsilon_for_gain,
    flip_prob,
    information_gain,
    noise_sources,
    scopes_gain,
)
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.privacy.events import RandomizedResponse

SMALL = ReportSpec(
    max_reports=2,
    trigger_data=(
        TriggerData(num_windows=2, num_buckets=1),
        TriggerData(num_windows=1, num_buckets=2),
    ),
)
NOISE = SourceNoise(spec=SMALL, epsilon=1.5)
State = tuple[int, ...]


def state_counts(raw_place: int, noise: SourceNoise, num_sources: int) -> list[int]:
    raw = noise.spec.states_at(np.full(num_sources, raw_place))
    noisy = noise_sources(raw, noise, rng=SeededNoise(5))
    places = noise.spec.places_of(noisy)
    return np.bincount(places, minlength=noise.spec.num_states).tolist()


def test_the_noise_over_all_states_is_private_for_every_pair() -> None:
    noise = SourceNoise(spec=SMALL, epsilon=1.0)
    assert_private(noise.response.realised_channel(), 1.0)
    assert noise.event() == RandomizedResponse(epsilon=1.0, num_values=SMALL.num_states)


@pytest.mark.parametrize("spec", [SMALL, ReportSpec.event(), ReportSpec.navigation()])
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 14.0])
def test_the_sampler_flips_with_the_stated_chance(spec: ReportSpec, epsilon: float) -> None:
    noise = SourceNoise(spec=spec, epsilon=epsilon)
    assert float(noise.realised_flip_prob) == pytest.approx(noise.flip_prob, rel=1e-12)
    assert noise.flip_prob == flip_prob(spec.num_states, epsilon)
    # With chance p a uniform state: each wrong state has p / k.
    lie = noise.response.support_probs.if_not_held
    assert lie * spec.num_states == noise.realised_flip_prob


@pytest.mark.parametrize("raw_place", [0, 4])
def test_noised_sources_have_uniform_states_else_the_true_one(raw_place: int) -> None:
    noise = SourceNoise(spec=SMALL, epsilon=1.0)
    counts = state_counts(raw_place, noise, 200_000)

    def law(prob: float) -> list[float]:
        chances = np.full(SMALL.num_states, prob / SMALL.num_states)
        chances[raw_place] += 1 - prob
        return chances.tolist()

    assert_follows(counts, law(noise.flip_prob))
    assert_rejects(counts, law(1.05 * noise.flip_prob))
    assert_rejects(counts, law(0.95 * noise.flip_prob))
    # Taking p for the chance of another state is off by one state in k.
    assert_rejects(counts, law(noise.flip_prob * SMALL.num_states / (SMALL.num_states - 1)))


def test_fake_reports_come_as_often_as_stated() -> None:
    noise = SourceNoise(spec=ReportSpec.navigation(), epsilon=6.0)
    silent = np.zeros((100_000, noise.spec.num_cells), np.int64)
    noisy = noise_sources(silent, noise, rng=SeededNoise(2))
    mean = float(noisy.sum(axis=1).mean())
    deviation = 3 * (noise.flip_prob / 100_000) ** 0.5
    stated = 2.88 * noise.flip_prob
    assert abs(mean - stated) < 6.2 * deviation
    assert abs(mean - 1.05 * stated) > 6.2 * deviation


def test_what_the_browser_reports_is_always_a_state() -> None:
    noise = SourceNoise(spec=SMALL, epsilon=0.1)
    raw = np.zeros((2000, 3), np.int64)
    noisy = noise_sources(raw, noise, rng=release_rng())
    assert noisy.shape == raw.shape
    assert set(SMALL.places_of(noisy).tolist()) == set(range(SMALL.num_states))


def test_a_raw_state_that_no_browser_sends_is_refused() -> None:
    with pytest.raises(DataError, match="more reports than"):
        noise_sources([[1, 1, 0]], SourceNoise(spec=SMALL), rng=release_rng())


def test_settings_beyond_the_browsers_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon=15"):
        SourceNoise(spec=SMALL, epsilon=15.0)
    with pytest.raises(ConfigError, match="epsilon=0"):
        SourceNoise(spec=SMALL, epsilon=0.0)


def test_a_view_is_noised_as_rarely_as_published() -> None:
    noise = SourceNoise(spec=ReportSpec.event())
    assert (noise.spec.num_states, noise.epsilon) == (3, 14)
    assert noise.flip_prob == pytest.approx(2.4946e-6, rel=1e-4)


def all_states() -> list[State]:
    return [tuple(state.tolist()) for state in SMALL.states_at(np.arange(SMALL.num_states))]


def expectation(of: Callable[[State], Fraction], truth: State) -> Fraction:
    """Over the noise of a source in state `truth`, exactly, with the sampler's own chances."""
    channel = NOISE.response.realised_channel()
    place = int(SMALL.places_of([truth])[0])
    states = all_states()
    return sum(
        (channel[place][other] * of(state) for other, state in enumerate(states)), Fraction(0)
    )


NUMBERS: dict[str, Callable[[State], Fraction]] = {
    "any conversion": lambda state: Fraction(int(any(state))),
    "count": lambda state: Fraction(sum(state)),
    "value": lambda state: Fraction(sum(v * n for v, n in zip((5, 7, 11), state, strict=True))),
    "square of the count": lambda state: Fraction(sum(state) ** 2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_debiased_numbers_have_no_bias_at_all(name: str) -> None:
    number, flip = NUMBERS[name], NOISE.realised_flip_prob
    mean = sum(map(number, all_states()), Fraction(0)) / SMALL.num_states
    for truth in all_states():
        found = expectation(lambda state: debias(number(state), mean, flip), truth)
        assert found == number(truth)


def test_debiasing_with_the_wrong_mean_is_seen() -> None:
    number, flip = NUMBERS["count"], NOISE.realised_flip_prob
    wrong_mean = Fraction(SMALL.max_reports, 2)
    truth = all_states()[3]
    found = expectation(lambda state: debias(number(state), wrong_mean, flip), truth)
    assert found != number(truth)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_variance_is_that_of_brute_force(name: str) -> None:
    number, flip = NUMBERS[name], NOISE.realised_flip_prob
    values = list(map(number, all_states()))
    mean = sum(values, Fraction(0)) / SMALL.num_states
    mean_square = sum((v**2 for v in values), Fraction(0)) / SMALL.num_states
    for truth in all_states():
        square = expectation(lambda state: debias(number(state), mean, flip) ** 2, truth)
        variance = square - number(truth) ** 2
        assert debiased_variance(number(truth), mean, mean_square, flip) == variance


def test_the_channel_of_any_conversion_is_that_of_the_states() -> None:
    channel = NOISE.any_conversion_channel()
    number = NUMBERS["any conversion"]
    for truth in all_states():
        expected = channel.prob_if_positive if any(truth) else channel.prob_if_negative
        assert float(expectation(number, truth)) == pytest.approx(float(expected), rel=1e-12)
    assert float(channel.gain) == pytest.approx(1 - NOISE.flip_prob, rel=1e-12)


def mutual_information(num_states: int, epsilon: float) -> float:
    """Of a uniform state and its report, term by term of the joint law, in 40 digits."""
    with mpmath.workdps(40):
        lie = 1 / (mpmath.exp(epsilon) + num_states - 1)
        truth = lie * mpmath.exp(epsilon)
        bits = truth * mpmath.log(truth * num_states, 2)
        return float(bits + (num_states - 1) * lie * mpmath.log(lie * num_states, 2))


@pytest.mark.parametrize("num_states", [2, 3, 165, 2925, 2**32 - 1])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0, 14.0])
def test_the_gain_is_the_mutual_information(num_states: int, epsilon: float) -> None:
    expected = mutual_information(num_states, epsilon)
    assert information_gain(num_states, epsilon) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_published_gains_are_met_to_all_digits() -> None:
    # Vectors of the browsers' specification.
    assert information_gain(2925, 14) == 11.461727965384876
    assert information_gain(3, 14) == 1.584926511508231
    assert information_gain(1, 14) == 0.0


def test_published_epsilons_are_met_to_all_digits() -> None:
    assert epsilon_for_gain(5545, 6.5) == pytest.approx(9.028709123768687, abs=4e-15)
    assert epsilon_for_gain(84121, 11.5) == pytest.approx(12.45087042924698, abs=4e-15)


@pytest.mark.parametrize(("num_states", "most_bits"), [(5545, 6.5), (84121, 11.5), (100, 0.01)])
def test_the_epsilon_found_is_the_largest_that_fits(num_states: int, most_bits: float) -> None:
    epsilon = epsilon_for_gain(num_states, most_bits)
    assert information_gain(num_states, epsilon) <= most_bits
    assert information_gain(num_states, epsilon + 1e-9) > most_bits


def test_few_states_keep_the_largest_epsilon() -> None:
    assert epsilon_for_gain(2925, 11.5) == MOST_EPSILON
    with pytest.raises(ConfigError, match="most_bits=0"):
        epsilon_for_gain(2925, 0)


def test_the_gain_rises_with_epsilon_to_the_bits_of_the_state() -> None:
    gains = [information_gain(2925, epsilon) for epsilon in range(1, 15)]
    assert gains == sorted(gains)
    assert information_gain(2925, 14) < math.log2(2925)
    assert information_gain(2925, 0) == pytest.approx(0, abs=1e-12)


def test_a_source_above_the_limit_is_refused_with_the_epsilon_that_fits() -> None:
    assert check_gain(2925, 14, SourceKind.NAVIGATION) == pytest.approx(11.4617, abs=1e-4)
    with pytest.raises(ConfigError, match=r"event sources may tell 6.5; use epsilon <= 9.02871"):
        check_gain(5545, 14, SourceKind.EVENT)


def test_scopes_count_the_states_of_all_other_scopes() -> None:
    assert scopes_gain(2925, max_event_states=3, scope_limit=1) == math.log2(2925)
    assert scopes_gain(2925, max_event_states=3, scope_limit=20) == math.log2(2925 + 3 * 19)


@pytest.mark.parametrize(
    ("num_states", "percent"), [(2925, 0.24263), (969, 0.08051), (165, 0.01372), (3, 2.49e-4)]
)
def test_flip_chances_are_the_published_ones(num_states: int, percent: float) -> None:
    assert 100 * flip_prob(num_states, 14) == pytest.approx(percent, rel=2e-3)


def test_an_epsilon_beyond_the_browsers_limit_is_refused() -> None:
    for epsilon in (14.1, -1, math.nan):
        with pytest.raises(ConfigError, match="epsilon"):
            flip_prob(3, epsilon)
