import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.report_labels import (
    BinReports,
    channel_of_rates,
    closed_sources,
    count_reports,
    debias_counts,
    debias_values,
    label_sources,
    spec_of_registration,
)
from tulle.lab.browser_reports.report_states import ReportSpec, TriggerData
from tulle.lab.browser_reports.source_noise import SourceNoise, noise_sources
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.randomized_response import RandomizedResponseConfig

SPEC = ReportSpec(
    max_reports=3,
    trigger_data=(
        TriggerData(num_windows=2, num_buckets=2),
        TriggerData(num_windows=1, num_buckets=3),
    ),
)
NOISE = SourceNoise(spec=SPEC, epsilon=1.5)
CELL_VALUES = (5, 7, 11)


def test_counts_and_values_use_the_means_over_all_states() -> None:
    states = SPEC.states_at(np.arange(SPEC.num_states))
    values = states @ np.array(CELL_VALUES)
    flip = NOISE.flip_prob
    expected_counts = (states.sum(1) - flip * states.sum(1).mean()) / (1 - flip)
    expected_values = (values - flip * values.mean()) / (1 - flip)
    np.testing.assert_allclose(debias_counts(states.sum(1), NOISE), expected_counts, rtol=1e-12)
    np.testing.assert_allclose(
        debias_values(states, CELL_VALUES, NOISE), expected_values, rtol=1e-12
    )


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
    with pytest.raises(ConfigError, match="probabilities"):
        channel_of_rates([1.0], 3)
    with pytest.raises(DataError, match="3 numbers"):
        debias_values([[0, 0, 1]], [1.0, 2.0], NOISE)


BINS = BinReports(bin_starts=(10, 50, 200), window_seconds=604_800, epsilon=2.0)


def test_bins_are_the_states_and_the_noise_is_response_on_bins() -> None:
    assert BINS.num_bins == BINS.noise.spec.num_states == 4
    assert BINS.noise.response == RandomizedResponseConfig(epsilon=2.0, num_values=4)


@pytest.mark.parametrize("num_buckets", [1, 3, 5])
@pytest.mark.parametrize("max_reports", [1, 3, 5])
def test_states_are_one_more_than_the_buckets_that_reports_allow(
    num_buckets: int, max_reports: int
) -> None:
    data = TriggerData(num_windows=1, num_buckets=num_buckets)
    spec = ReportSpec(max_reports=max_reports, trigger_data=(data,))
    assert spec.num_states == min(num_buckets, max_reports) + 1


def test_a_value_makes_one_report_for_each_bucket_that_it_reaches() -> None:
    assert BINS.bins_of([0, 9, 10, 49, 50, 199, 200, 10_000]).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    states = BINS.bins_of([0, 60])[:, None]
    assert BINS.noise.spec.places_of(states).tolist() == [0, 2]


def test_the_registration_says_the_same() -> None:
    registration = BINS.registration()
    assert registration["max_event_level_reports"] == 3
    assert registration["event_level_epsilon"] == 2.0
    assert registration["trigger_specs"][0]["summary_buckets"] == [10, 50, 200]
    assert registration["trigger_specs"][0]["summary_operator"] == "value_sum"
    assert spec_of_registration(registration) == BINS.noise.spec


def test_a_registration_with_several_values_and_windows_is_read() -> None:
    registration = {
        "max_event_level_reports": 3,
        "destination": "https://shop.example",
        "trigger_specs": [
            {"trigger_data": [0, 5], "event_report_windows": {"end_times": [3600, 7200]}},
            {
                "trigger_data": [1],
                "event_report_windows": {"start_time": 0, "end_times": [3600]},
                "summary_buckets": [1, 10],
                "summary_operator": "count",
            },
        ],
    }
    free = TriggerData(num_windows=2, num_buckets=3)
    bucketed = TriggerData(num_windows=1, num_buckets=2)
    expected = ReportSpec(max_reports=3, trigger_data=(free, free, bucketed))
    assert spec_of_registration(registration) == expected


def test_debiased_values_have_the_mean_of_the_true_bin() -> None:
    values = [0.0, 25.0, 100.0, 300.0]
    channel = BINS.noise.response.channel_matrix()
    outputs = BINS.debiased_values(np.arange(4), values)
    np.testing.assert_allclose(channel @ outputs, values, rtol=1e-12, atol=1e-10)
    raw = BINS.bins_of(np.full(100_000, 60))[:, None]
    counts = noise_sources(raw, BINS.noise, rng=SeededNoise(1))[:, 0]
    targets = BINS.debiased_values(counts, values)
    assert abs(targets.mean() - 100.0) < 6.2 * targets.std() / len(raw) ** 0.5


def test_bins_that_reports_cannot_say_are_refused() -> None:
    for starts in ((), (5, 5), (10, 2), (0, 3)):
        with pytest.raises(ConfigError, match="bin_starts"):
            BinReports(bin_starts=starts, window_seconds=3600)
    with pytest.raises(ConfigError, match="at most 20 times"):
        BinReports(bin_starts=tuple(range(1, 22)), window_seconds=3600)
    with pytest.raises(DataError, match="from 0 to 3"):
        BINS.debiased_values([4], [0, 1, 2, 3])
    with pytest.raises(ConfigError, match="for 4 bins"):
        BINS.debiased_values([0], [0, 1])


def test_a_registration_with_a_misspelt_or_repeated_part_is_refused() -> None:
    part = {"trigger_data": [0], "event_report_windows": {"end_times": [3600]}}
    with pytest.raises(ConfigError, match="did you mean 'summary_buckets'"):
        spec_of_registration(
            {"max_event_level_reports": 1, "trigger_specs": [part | {"summary_bucket": [1]}]}
        )
    with pytest.raises(ConfigError, match="twice"):
        spec_of_registration({"max_event_level_reports": 1, "trigger_specs": [part, part]})
    with pytest.raises(ConfigError, match="max_event_level_reports"):
        spec_of_registration({"trigger_specs": [part]})
