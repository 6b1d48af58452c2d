import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.bin_reports import BinReports, spec_of_registration
from tulle.lab.browser_reports.report_states import ReportSpec, TriggerData
from tulle.lab.browser_reports.source_noise import noise_sources
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.randomized_response import RandomizedResponseConfig

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
