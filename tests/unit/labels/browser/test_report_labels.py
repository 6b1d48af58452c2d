from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.labels.browser.flip_chance import SourceNoise, noise_sources
from tulle.labels.browser.report_labels import (
    channel_of_rates,
    closed_sources,
    count_reports,
    debias,
    debias_counts,
    debias_values,
    debiased_variance,
    label_sources,
)
from tulle.labels.browser.report_states import ReportSpec, TriggerData
from tulle.mechanisms.entropy import SeededNoise

SPEC = ReportSpec(
    max_reports=3,
    trigger_data=(
        TriggerData(num_windows=2, num_buckets=2),
        TriggerData(num_windows=1, num_buckets=3),
    ),
)
NOISE = SourceNoise(spec=SPEC, epsilon=1.5)
CELL_VALUES = (5, 7, 11)
State = tuple[int, ...]


def all_states() -> list[State]:
    return [tuple(state.tolist()) for state in SPEC.states_at(np.arange(SPEC.num_states))]


def expectation(of: Callable[[State], Fraction], truth: State) -> Fraction:
    """Over the noise of a source in state `truth`, exactly, with the sampler's own chances."""
    channel = NOISE.response.realised_channel()
    place = int(SPEC.places_of([truth])[0])
    states = all_states()
    return sum(
        (channel[place][other] * of(state) for other, state in enumerate(states)), Fraction(0)
    )


NUMBERS: dict[str, Callable[[State], Fraction]] = {
    "any conversion": lambda state: Fraction(int(any(state))),
    "count": lambda state: Fraction(sum(state)),
    "value": lambda state: Fraction(sum(v * n for v, n in zip(CELL_VALUES, state, strict=True))),
    "square of the count": lambda state: Fraction(sum(state) ** 2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_debiased_numbers_have_no_bias_at_all(name: str) -> None:
    number, flip = NUMBERS[name], NOISE.realised_flip_prob
    mean = sum(map(number, all_states()), Fraction(0)) / SPEC.num_states
    for truth in all_states():
        found = expectation(lambda state: debias(number(state), mean, flip), truth)
        assert found == number(truth)


def test_debiasing_with_the_wrong_mean_is_seen() -> None:
    number, flip = NUMBERS["count"], NOISE.realised_flip_prob
    wrong_mean = Fraction(SPEC.max_reports, 2)
    truth = all_states()[3]
    found = expectation(lambda state: debias(number(state), wrong_mean, flip), truth)
    assert found != number(truth)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_variance_is_that_of_brute_force(name: str) -> None:
    number, flip = NUMBERS[name], NOISE.realised_flip_prob
    values = list(map(number, all_states()))
    mean = sum(values, Fraction(0)) / SPEC.num_states
    mean_square = sum((v**2 for v in values), Fraction(0)) / SPEC.num_states
    for truth in all_states():
        square = expectation(lambda state: debias(number(state), mean, flip) ** 2, truth)
        variance = square - number(truth) ** 2
        assert debiased_variance(number(truth), mean, mean_square, flip) == variance


def test_counts_and_values_use_the_means_over_all_states() -> None:
    states = np.array(all_states())
    values = states @ np.array(CELL_VALUES)
    flip = NOISE.flip_prob
    expected_counts = (states.sum(1) - flip * states.sum(1).mean()) / (1 - flip)
    expected_values = (values - flip * values.mean()) / (1 - flip)
    np.testing.assert_allclose(debias_counts(states.sum(1), NOISE), expected_counts, rtol=1e-12)
    np.testing.assert_allclose(
        debias_values(states, CELL_VALUES, NOISE), expected_values, rtol=1e-12
    )


def test_the_channel_of_any_conversion_is_that_of_the_states() -> None:
    channel = NOISE.any_conversion_channel()
    number = NUMBERS["any conversion"]
    for truth in all_states():
        expected = channel.prob_if_positive if any(truth) else channel.prob_if_negative
        assert float(expectation(number, truth)) == pytest.approx(float(expected), rel=1e-12)
    assert float(channel.gain) == pytest.approx(1 - NOISE.flip_prob, rel=1e-12)


def test_labels_of_simulated_sources_have_the_right_mean() -> None:
    raw = np.zeros((200_000, SPEC.num_cells), np.int64)
    raw[:10_000, 2] = 1
    counts = noise_sources(raw, NOISE, rng=SeededNoise(4)).sum(1)
    labels = label_sources(counts, NOISE, base_rate=0.05)
    assert labels.targets is not None
    assert labels.noise_variance is not None
    deviation = (float(labels.noise_variance) / len(raw)) ** 0.5
    assert abs(labels.targets.mean() - 0.05) < 6.2 * deviation
    # What a trainer would see who takes reports for labels.
    assert abs(labels.labels.mean() - 0.05) > 60 * deviation
    assert float(np.var(labels.targets[10_000:])) == pytest.approx(
        float(labels.channel.target_variance(0)), rel=0.05
    )


def test_sources_with_their_own_rates_are_debiased_by_them() -> None:
    rates = np.array([0.0, 0.1, 0.5])
    channel = channel_of_rates(rates, num_states=4)
    np.testing.assert_allclose(channel.prob_if_negative, rates * 3 / 4)
    np.testing.assert_allclose(channel.prob_if_positive, 1 - rates / 4)
    labels = label_sources([0, 1, 2], NOISE, base_rate=0.1, randomized_trigger_rates=rates)
    own = channel_of_rates(rates, SPEC.num_states)
    np.testing.assert_allclose(labels.targets, own.debiased_targets([0, 1, 1]))
    assert labels.noise_variance.shape == (3,)
    same = label_sources(
        [0, 1], NOISE, base_rate=0.1, randomized_trigger_rates=[NOISE.flip_prob] * 2
    )
    np.testing.assert_allclose(
        same.targets, label_sources([0, 1], NOISE, base_rate=0.1).targets, rtol=1e-12
    )


def test_silence_is_a_label_of_zero() -> None:
    counts = count_reports([7, 3, 9], [9, 3, 9])
    assert counts.tolist() == [0, 1, 2]
    assert label_sources(counts, NOISE, base_rate=0.1).labels.tolist() == [0, 1, 1]
    assert count_reports(["b", "a"], np.array([], str)).tolist() == [0, 0]


def test_open_sources_are_told_from_silent_ones() -> None:
    closed = closed_sources([0, 50, 100], last_window_seconds=100, now=155, max_delay_seconds=10)
    assert closed.tolist() == [True, False, False]


def test_reports_that_do_not_fit_the_sources_are_refused() -> None:
    with pytest.raises(DataError, match="listed twice"):
        count_reports([1, 1], [1])
    with pytest.raises(DataError, match="not listed"):
        count_reports([1, 2], [3])
    with pytest.raises(DataError, match="not listed"):
        count_reports([], [3])
    with pytest.raises(DataError, match="max_reports=3"):
        label_sources([4], NOISE, base_rate=0.1)
    with pytest.raises(DataError, match="whole numbers"):
        label_sources([0.5], NOISE, base_rate=0.1)
    with pytest.raises(DataError, match="one number for each source"):
        label_sources([0, 1], NOISE, base_rate=0.1, randomized_trigger_rates=[0.1])
    with pytest.raises(ConfigError, match="chances"):
        channel_of_rates([1.0], 3)
    with pytest.raises(DataError, match="3 numbers"):
        debias_values([[0, 0, 1]], [1.0, 2.0], NOISE)
