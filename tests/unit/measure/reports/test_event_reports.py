import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from statistical.law_checks import worst_score_against
from tulle.measure.reports.attributed_log import AttributedLog
from tulle.measure.reports.event_reports import EventOutcome, expected_events, simulate_events
from tulle.measure.reports.event_settings import EventSettings, SourceReports
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.information_gain import SourceKind
from unit.measure.reports.small_logs import random_log

CLICKS = SourceReports(
    kind=SourceKind.NAVIGATION, window_ends=(60, 300), num_trigger_data=2, max_reports=2, epsilon=1
)
VIEWS = SourceReports(
    kind=SourceKind.EVENT, window_ends=(200,), num_trigger_data=3, max_reports=1, epsilon=2
)
SETTINGS = EventSettings(clicks=CLICKS, views=VIEWS, trigger_data_column="conversion_type")


def variance_by_states(reports: SourceReports, true_state: list[int], weights: list[int]) -> float:
    """Of one source's debiased number, from the inverse matrix and the law over all states."""
    noise = reports.noise
    states = noise.spec.states_at(np.arange(noise.spec.num_states))
    channel = np.array(noise.response.channel_matrix())
    estimates = np.linalg.solve(channel, states @ np.array(weights))
    law = channel[int(noise.spec.places_of([true_state])[0])]
    mean = float(law @ estimates)
    assert mean == pytest.approx(float(np.dot(true_state, weights)), abs=1e-9)
    return float(law @ estimates**2) - mean**2


def copied_log(num_slices: int) -> AttributedLog:
    """In every slice a silent click, a click with conversions of a and b, a view with c."""
    firsts = 3 * np.arange(num_slices)
    sources = (firsts[:, None] + np.array([1, 1, 2])).reshape(-1)
    return AttributedLog(
        sources=pl.DataFrame({"campaign": np.arange(num_slices).repeat(3)}),
        kinds=pl.Series(["click", "click", "view"] * num_slices),
        conversion_sources=sources,
        ages=np.tile([5, 100, 7], num_slices),
        conversions=pl.DataFrame({"conversion_type": ["a", "b", "c"] * num_slices}),
        num_unattributed=0,
    )


def test_the_variance_is_that_of_all_states() -> None:
    outcome = expected_events(copied_log(1), SETTINGS)
    # Cells of a click: (datum 0: window 0, 1), (datum 1: window 0, 1).
    silent, two = [0, 0, 0, 0], [1, 0, 0, 1]
    for datum, weights in ((0, [1, 1, 0, 0]), (1, [0, 0, 1, 1])):
        expected = sum(variance_by_states(CLICKS, state, weights) for state in (silent, two))
        row = outcome.trigger_data.filter(source="navigation", trigger_data=datum)
        assert row["noise_stddev"][0] ** 2 == pytest.approx(expected, rel=1e-9)
        assert row["reported"][0] == row["conversions"][0] == 1
    view = variance_by_states(VIEWS, [0, 0, 1], [0, 0, 1])
    row = outcome.trigger_data.filter(source="event", trigger_data=2)
    assert row["noise_stddev"][0] ** 2 == pytest.approx(view, rel=1e-9)
    total = sum(variance_by_states(CLICKS, state, [1] * 4) for state in (silent, two))
    total += variance_by_states(VIEWS, [0, 0, 1], [1] * 3)
    assert outcome.slices["noise_stddev"][0] ** 2 == pytest.approx(total, rel=1e-9)


def test_simulated_counts_have_the_stated_mean_and_variance() -> None:
    num_slices = 60_000
    outcome = simulate_events(copied_log(num_slices), SETTINGS, rng=SeededNoise(3))
    parts = [
        outcome.slices,
        outcome.trigger_data.filter(source="navigation", trigger_data=1),
        outcome.trigger_data.filter(source="event", trigger_data=2),
    ]
    for part, truth in zip(parts, (3.0, 1.0, 1.0), strict=True):
        sample = part["noisy"].to_numpy()[None, :]
        assert sample.size == num_slices
        variance = np.full((1, 1), part["noise_stddev"][0] ** 2)
        assert worst_score_against(sample, np.array([truth]), variance) <= 1
        for factor in (0.95, 1.05):
            wrong = worst_score_against(sample, np.array([truth]), factor**2 * variance)
            assert wrong > 1
        # Debiasing with a 5% wrong mean over the states would shift it by more than this.
        assert worst_score_against(sample, np.array([truth + 0.3]), variance) > 1


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_slices_are_those_of_the_log(seed: int) -> None:
    log = random_log(seed)
    outcome = expected_events(log, SETTINGS)
    true = log.column("campaign").value_counts().sort("campaign")
    assert outcome.slices["slice"].to_list() == true["campaign"].to_list()
    assert outcome.slices["conversions"].to_list() == true["count"].to_list()
    by_slice = outcome.trigger_data.drop("source").group_by("slice").sum().sort("slice")
    for name in ("conversions", "reported"):
        assert by_slice[name].to_list() == outcome.slices[name].to_list()
    assert outcome.slices["sources"].sum() == len(log.sources)


def test_what_the_limits_lose_is_a_bias_of_the_error() -> None:
    outcome = expected_events(random_log(2), SETTINGS)
    for row in outcome.slices.iter_rows(named=True):
        bias = row["conversions"] - row["reported"]
        floor = max(5, row["conversions"])
        error = math.hypot(bias, row["noise_stddev"]) / floor
        assert row["relative_error"] == pytest.approx(error, rel=1e-12)
        assert row["lost_share"] == bias / row["conversions"] > 0
    lost = 1 - Fraction(
        int(outcome.slices["reported"].sum()), int(outcome.slices["conversions"].sum())
    )
    assert outcome.lost_share == pytest.approx(float(lost), rel=1e-12)


def test_more_windows_lose_nothing_more_but_make_more_noise() -> None:
    def with_windows(ends: tuple[int, ...]) -> EventOutcome:
        clicks = SourceReports(
            kind=SourceKind.NAVIGATION,
            window_ends=ends,
            num_trigger_data=2,
            max_reports=2,
            epsilon=3,
        )
        return expected_events(random_log(1), EventSettings(clicks=clicks, views=VIEWS))

    one, five = with_windows((500,)), with_windows((100, 200, 300, 400, 500))
    assert one.slices["reported"].to_list() == five.slices["reported"].to_list()
    assert (one.slices["noise_stddev"] < five.slices["noise_stddev"]).all()


def test_expecting_draws_no_noise() -> None:
    log = random_log(0)
    expected = expected_events(log, SETTINGS)
    simulated = simulate_events(log, SETTINGS, rng=SeededNoise(1))
    assert simulated.slices.drop("noisy").equals(expected.slices)
    assert simulated.trigger_data.drop("noisy").equals(expected.trigger_data)
    assert simulated.rmsre == expected.rmsre
