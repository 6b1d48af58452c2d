import dataclasses
from collections import defaultdict

import numpy as np
import polars as pl
import pytest

from tulle.errors import ConfigError
from tulle.measure.reports import event_states
from tulle.measure.reports.event_settings import EventSettings, SourceReports
from tulle.measure.reports.event_states import noisy_counts, source_groups
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.information_gain import SourceKind
from unit.measure.reports.small_logs import random_log

CLICKS = SourceReports(
    kind=SourceKind.NAVIGATION, window_ends=(60, 300), num_trigger_data=2, max_reports=2
)
VIEWS = SourceReports(
    kind=SourceKind.EVENT, window_ends=(200,), num_trigger_data=3, max_reports=1, epsilon=14
)
SETTINGS = EventSettings(clicks=CLICKS, views=VIEWS, trigger_data_column="conversion_type")
CAMPAIGNS = ("blue", "green", "red")


@pytest.mark.parametrize("seed", range(4))
def test_reports_are_those_of_one_conversion_after_another(seed: int) -> None:
    log = random_log(seed)
    assert log.kinds is not None
    slices = np.array([CAMPAIGNS.index(name) for name in log.sources["campaign"]])
    groups = dict(zip(("click", "view"), source_groups(log, SETTINGS, slices), strict=True))
    sent: dict[int, int] = defaultdict(int)
    expected: dict[str, list[tuple[int, int, int, bool]]] = {"click": [], "view": []}
    for row, source in enumerate(log.conversion_sources.tolist()):
        kind = log.kinds[source]
        reports = CLICKS if kind == "click" else VIEWS
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
    for group in source_groups(log, SETTINGS, slices):
        # At epsilon 14 the 200 sources stay as they are but for a chance of 0.3%.
        counts = noisy_counts(group, 3, rng=SeededNoise(1))
        cells = group.slices[group.sources] * group.reports.num_trigger_data + group.data
        true = np.bincount(cells[group.is_reported], minlength=counts.size)
        assert counts.reshape(-1).tolist() == true.tolist()


def test_a_log_that_does_not_tell_clicks_from_views_is_refused() -> None:
    log = dataclasses.replace(random_log(0), kinds=None)
    with pytest.raises(ConfigError, match=r"LogColumns\.kind"):
        source_groups(log, SETTINGS, np.zeros(len(log.sources), np.int64))


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
    clicks, views = source_groups(edges, SETTINGS, np.zeros(len(log.sources), np.int64))
    assert clicks.windows.tolist() == [0, 1, 1, 2]
    assert clicks.is_reported.tolist() == [True, True, True, False]
    assert views.sources.size == views.slices.size == 0


def test_sources_that_are_noised_in_chunks_keep_their_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = random_log(2)
    slices = np.array([CAMPAIGNS.index(name) for name in log.sources["campaign"]])
    noisier = dataclasses.replace(SETTINGS, clicks=dataclasses.replace(CLICKS, epsilon=1.0))
    group, _ = source_groups(log, noisier, slices)
    at_once = noisy_counts(group, 3, rng=SeededNoise(6))
    monkeypatch.setattr(event_states, "_CHUNK", 7)
    assert noisy_counts(group, 3, rng=SeededNoise(6)).tolist() == at_once.tolist()
