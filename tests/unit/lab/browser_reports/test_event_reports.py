import dataclasses
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from statistical.law_checks import worst_score_against
from tulle.errors import ConfigError
from tulle.lab.browser_reports import event_reports
from tulle.lab.browser_reports.attributed_log import AttributedLog
from tulle.lab.browser_reports.event_reports import (
    EventOutcome,
    expected_events,
    noisy_counts,
    simulate_events,
    source_groups,
)
from tulle.lab.browser_reports.event_settings import EventSettings, SourceReports
from tulle.lab.browser_reports.source_noise import SourceKind
from tulle.mechanisms.entropy import SeededNoise
from unit.lab.browser_reports.small_logs import random_log

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


STATE_CLICKS = SourceReports(
    kind=SourceKind.NAVIGATION, window_ends=(60, 300), num_trigger_data=2, max_reports=2
)
STATE_VIEWS = SourceReports(
    kind=SourceKind.EVENT, window_ends=(200,), num_trigger_data=3, max_reports=1, epsilon=14
)
STATE_SETTINGS = EventSettings(
    clicks=STATE_CLICKS, views=STATE_VIEWS, trigger_data_column="conversion_type"
)
CAMPAIGNS = ("blue", "green", "red")


@pytest.mark.parametrize("seed", range(4))
def test_reports_are_those_of_one_conversion_after_another(seed: int) -> None:
    log = random_log(seed)
    assert log.kinds is not None
    slices = np.array([CAMPAIGNS.index(name) for name in log.sources["campaign"]])
    groups = dict(zip(("click", "view"), source_groups(log, STATE_SETTINGS, slices), strict=True))
    sent: dict[int, int] = defaultdict(int)
    expected: dict[str, list[tuple[int, int, int, bool]]] = {"click": [], "view": []}
    for row, source in enumerate(log.conversion_sources.tolist()):
        kind = log.kinds[source]
        reports = STATE_CLICKS if kind == "click" else STATE_VIEWS
        datum = "abc".index(log.column("conversion_type")[row]) % reports.num_trigger_data
        windows = [end for end in reports.window_ends if log.ages[row] >= end]
        is_reported = len(windows) < len(reports.window_ends)
        if is_reported and sent[source] == reports.max_reports:
            is_reported = False
        sent[source] += is_reported
        expected[kind].append((int(slices[source]), datum, len(windows), is_reported))
    for kind, group in groups.items():
        found = zip(
            group.slices[group.sources].tolist(),
            group.data.tolist(),
            group.windows.tolist(),
            group.is_reported.tolist(),
            strict=True,
        )
        assert list(found) == expected[kind]
        assert {True, False} <= set(group.is_reported.tolist())


def test_what_arrives_at_almost_no_noise_is_what_is_true() -> None:
    log = random_log(1)
    slices = np.array([CAMPAIGNS.index(name) for name in log.sources["campaign"]])
    for group in source_groups(log, STATE_SETTINGS, slices):
        # At epsilon 14 the 200 sources stay as they are but for a chance of 0.3%.
        counts = noisy_counts(group, 3, rng=SeededNoise(1))
        cells = group.slices[group.sources] * group.reports.num_trigger_data + group.data
        true = np.bincount(cells[group.is_reported], minlength=counts.size)
        assert counts.reshape(-1).tolist() == true.tolist()


def test_a_log_that_does_not_tell_clicks_from_views_is_refused() -> None:
    log = dataclasses.replace(random_log(0), kinds=None)
    with pytest.raises(ConfigError, match=r"LogColumns\.kind"):
        source_groups(log, STATE_SETTINGS, np.zeros(len(log.sources), np.int64))


def test_a_window_ends_before_its_last_second() -> None:
    log = random_log(0)
    ages = np.array([59, 60, 299, 300])
    edges = dataclasses.replace(
        log,
        kinds=pl.Series(["click"] * len(log.sources)),
        conversion_sources=np.arange(4),
        ages=ages,
        conversions=log.conversions[:4],
    )
    clicks, views = source_groups(edges, STATE_SETTINGS, np.zeros(len(log.sources), np.int64))
    assert clicks.windows.tolist() == [0, 1, 1, 2]
    assert clicks.is_reported.tolist() == [True, True, True, False]
    assert views.sources.size == views.slices.size == 0


def test_sources_that_are_noised_in_chunks_keep_their_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = random_log(2)
    slices = np.array([CAMPAIGNS.index(name) for name in log.sources["campaign"]])
    noisier = dataclasses.replace(
        STATE_SETTINGS, clicks=dataclasses.replace(STATE_CLICKS, epsilon=1.0)
    )
    group, _ = source_groups(log, noisier, slices)
    at_once = noisy_counts(group, 3, rng=SeededNoise(6))
    monkeypatch.setattr(event_reports, "_CHUNK", 7)
    assert noisy_counts(group, 3, rng=SeededNoise(6)).tolist() == at_once.tolist()
