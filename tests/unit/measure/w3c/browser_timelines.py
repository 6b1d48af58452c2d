"""Random timelines of one browser, as hypothesis draws them, and how they happen."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tulle.measure.w3c.browser import Browser
from tulle.measure.w3c.options import ConversionOptions, ImpressionOptions

SERVICE = "https://sums.example"
CONFIG = json.loads((Path(__file__).parent / "cases" / "CONFIG.json").read_text())
DAY = 86_400
PUBLISHERS = ["news.example", "video.example"]
SHOPS = ["shop-1.example", "shop-2.example", "shop-3.example"]
EVERYONE = [*PUBLISHERS, *SHOPS, "ads.example"]
MAX_VALUE = 9

Happening = tuple[Any, ...]


def some(values: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=2, unique=True)


impressions = st.fixed_dictionaries(
    {"histogramIndex": st.integers(0, 4)},
    optional={
        "matchValue": st.integers(0, 2),
        "conversionSites": some(SHOPS),
        "conversionCallers": some([*SHOPS, "ads.example"]),
        "lifetimeDays": st.integers(1, 12),
        "priority": st.integers(-1, 1),
    },
)
conversions = st.fixed_dictionaries(
    {
        "aggregationService": st.just(SERVICE),
        "histogramSize": st.integers(1, 5),
        "value": st.integers(1, MAX_VALUE),
        "maxValue": st.just(MAX_VALUE),
    },
    optional={
        "epsilon": st.sampled_from([0.1, 0.3, 0.5, 1.0]),
        "credit": st.lists(st.sampled_from([1, 2, 3, 0.7]), min_size=1, max_size=3),
        "lookbackDays": st.integers(1, 12),
        "matchValues": st.lists(st.integers(0, 2), max_size=2, unique=True),
        "impressionSites": some(PUBLISHERS),
        "impressionCallers": some([*PUBLISHERS, "ads.example"]),
    },
)
frames = st.sampled_from([None, None, "ads.example"])
saves = st.tuples(st.just("save"), st.sampled_from(PUBLISHERS), impressions, frames)
measures = st.tuples(st.just("measure"), st.sampled_from(SHOPS), conversions, frames)
happenings = st.one_of(
    saves,
    saves,
    measures,
    measures,
    st.tuples(st.just("clear"), st.sampled_from(EVERYONE)),
    st.tuples(st.just("forget"), some(EVERYONE), st.booleans()),
)


def with_times(timeline: list[tuple[int, Happening]]) -> list[tuple[int, Happening]]:
    now = 0
    timed = []
    for gap, happening in timeline:
        now += gap
        timed.append((now, happening))
    return timed


gaps = st.sampled_from([1, 3600, DAY, 3 * DAY])
timelines = st.lists(st.tuples(gaps, happenings), max_size=25).map(with_times)
plain_saves = st.tuples(
    st.just("save"),
    st.sampled_from(PUBLISHERS),
    st.fixed_dictionaries({"histogramIndex": st.integers(0, 4)}),
    st.none(),
)
costly_measures = st.tuples(
    st.just("measure"),
    st.sampled_from(SHOPS),
    st.fixed_dictionaries(
        {
            "aggregationService": st.just(SERVICE),
            "histogramSize": st.integers(2, 5),
            "value": st.integers(5, MAX_VALUE),
            "maxValue": st.just(MAX_VALUE),
            "epsilon": st.sampled_from([0.3, 0.5, 1.0]),
            "lookbackDays": st.sampled_from([1, 10]),
            "credit": st.sampled_from([[1], [3, 2], [2, 1, 1]]),
            "impressionSites": some(PUBLISHERS),
        }
    ),
    st.none(),
)
busy_timelines = st.lists(
    st.tuples(st.sampled_from([1, 1, DAY]), st.one_of(plain_saves, costly_measures)),
    min_size=15,
    max_size=25,
).map(with_times)
"""Long enough to use up every budget."""


def happen(browser: Browser, now: int, happening: Happening) -> tuple[int, ...] | None:
    match happening:
        case ("save", site, options, frame):
            browser.save_impression(
                site, ImpressionOptions.from_json(options), now=now, intermediary=frame
            )
        case ("measure", site, options, frame):
            return browser.measure_conversion(
                site, ConversionOptions.from_json(options), now=now, intermediary=frame
            )
        case ("clear", site):
            browser.clear_impressions_for_site(site, now=now)
        case ("forget", sites, forget_visits):
            browser.clear_browsing_history(
                tuple(sites), forget_visits=forget_visits or not sites, now=now
            )
    return None
