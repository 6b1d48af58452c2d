"""The browser agrees with a literal reading of the specification, and never overspends."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.measure.w3c.attribution_state import FixedDraws
from tulle.measure.w3c.browser import Browser
from tulle.measure.w3c.conformance import CaseSetup
from tulle.measure.w3c.options import MICROEPSILONS, ConversionOptions, ImpressionOptions, W3cLimits
from unit.measure.w3c.browser_timelines import (
    CONFIG,
    SERVICE,
    Happening,
    busy_timelines,
    happen,
    timelines,
)
from unit.measure.w3c.literal_browser import LiteralBrowser

SETUP = CaseSetup.from_json(CONFIG)


def happen_literally(
    browser: LiteralBrowser, now: int, happening: Happening
) -> tuple[int, ...] | None:
    match happening:
        case ("save", site, options, frame):
            browser.save(now, site, options, frame)
        case ("measure", site, options, frame):
            return tuple(browser.measure(now, site, options, frame))
        case ("clear", site):
            browser.clear_for_site(site)
        case ("forget", sites, forget_visits):
            browser.clear_history(now, sites, forget_visits or not sites)
    return None


def stores(browser: Browser) -> tuple[dict[Any, int], dict[Any, int], dict[Any, int]]:
    budgets = browser.state.budgets
    return budgets._site, budgets._global, budgets._impression_site


@settings(max_examples=400)
@given(st.one_of(timelines, busy_timelines))
def test_histograms_and_budgets_are_those_of_the_specification(
    timeline: list[tuple[int, Happening]],
) -> None:
    browser, literal = Browser(SETUP.limits, SETUP.draws), LiteralBrowser(CONFIG)
    for now, happening in timeline:
        before = [dict(store) for store in stores(browser)]
        histogram = happen(browser, now, happening)
        assert histogram == happen_literally(literal, now, happening)
        assert stores(browser) == (literal.site_store, literal.global_store, literal.quota_store)
        assert all(left >= 0 for store in stores(browser) for left in store.values())
        if histogram is not None:
            assert sum(histogram) <= happening[2]["value"]
            if sum(histogram) > 0:
                assert list(stores(browser)) != before


def shown(*indices: int, limits: W3cLimits | None = None) -> Browser:
    browser = Browser(
        limits or W3cLimits(aggregation_services={SERVICE: "dap-18-histogram"}), FixedDraws()
    )
    for second, index in enumerate(indices):
        browser.save_impression(
            "news.example", ImpressionOptions(histogram_index=index), now=second
        )
    return browser


def measured(browser: Browser, now: int, **options: Any) -> tuple[int, ...]:
    return browser.measure_conversion(
        "shop.example",
        ConversionOptions(aggregation_service=SERVICE, **{"histogram_size": 3} | options),
        now=now,
    )


def left(browser: Browser) -> float:
    return browser.state.budgets.left_for_site(0, "shop.example") / MICROEPSILONS


def test_a_single_epoch_pays_for_what_is_in_the_histogram() -> None:
    browser = shown(0, 1)
    small = {"value": 4, "max_value": 8, "credit": (3.0, 1.0), "lookback_days": 1}
    large = {"value": 8, "max_value": 8, "lookback_days": 1}
    assert (measured(browser, 3, **small), left(browser)) == ((1, 3, 0), 0.75)
    assert (measured(browser, 4, **large), left(browser)) == ((0, 8, 0), 0.25)
    assert (measured(browser, 5, **large), left(browser)) == ((0, 0, 0), 0.25)
    assert (measured(browser, 6, **small), left(browser)) == ((1, 3, 0), 0.0)


def test_several_epochs_pay_for_twice_the_value() -> None:
    browser = shown(0)
    assert measured(browser, 3, value=4, max_value=8) == (4, 0, 0)
    assert left(browser) == 0.5


def test_three_touches_share_by_their_weights() -> None:
    browser = shown(0, 1, 2)
    credit = (2.0, 1.0, 1.0)
    assert measured(browser, 4, value=8, max_value=10, credit=credit, histogram_size=4) == (
        2,
        2,
        4,
        0,
    )


def test_credit_beyond_the_histogram_is_lost_and_costs_its_site_nothing() -> None:
    browser = shown(0, 9)
    options = {"value": 8, "max_value": 8, "credit": (1.0, 1.0), "lookback_days": 1}
    assert measured(browser, 3, **options) == (4, 0, 0)
    assert left(browser) == 0.75
    assert browser.state.budgets.left_for_all(0) == 7 * MICROEPSILONS


def test_what_is_released_is_what_was_paid_for_whatever_the_draws() -> None:
    class Alternating(FixedDraws):
        """Rounds the first share down once and up the next time."""

        def is_below(self, numerator: int, denominator: int) -> bool:
            seen.append(numerator / denominator)
            return len(seen) % 2 == 0

    seen: list[float] = []
    browser = shown(9, 0)
    browser.state._draws = Alternating()
    for second in range(3, 7):
        before = left(browser)
        options = {"value": 5, "max_value": 10, "credit": (1.0, 1.0), "lookback_days": 1}
        histogram = measured(browser, second, epsilon=0.5, **options)
        assert before - left(browser) == pytest.approx(sum(histogram) / 40)
    assert len(seen) == 4


def test_ten_reports_of_a_tenth_fit_into_a_budget_of_one() -> None:
    browser = shown(0)
    histograms = [measured(browser, second, epsilon=0.1)[0] for second in range(3, 14)]
    assert histograms == [1] * 10 + [0]


def test_no_matching_impression_costs_nothing() -> None:
    browser = shown(0)
    assert measured(browser, 3, match_values=(5,)) == (0, 0, 0)
    assert stores(browser) == ({}, {}, {})


def test_time_does_not_go_back() -> None:
    browser = shown(0, 1)
    with pytest.raises(ConfigError, match="order of time"):
        measured(browser, 0)


def test_clearing_budgets_needs_a_site() -> None:
    with pytest.raises(ConfigError, match="sites is empty"):
        shown().clear_browsing_history((), forget_visits=False, now=1)


def test_a_lifetime_is_cut_to_the_longest_lookback() -> None:
    browser = shown()
    options = ImpressionOptions(histogram_index=0, lifetime_days=99)
    browser.save_impression("news.example", options, now=1)
    assert browser.state.impressions[0].lifetime == 30 * 86_400


def test_an_impression_whose_last_conversion_site_is_cleared_is_for_nobody() -> None:
    browser = shown()
    sites = ("shop.example", "other.example")
    options = ImpressionOptions(histogram_index=0, conversion_sites=sites)
    browser.save_impression("news.example", options, now=1)
    browser.clear_impressions_for_site("other.example", now=2)
    assert measured(browser, 3, epsilon=0.1) == (1, 0, 0)
    browser.clear_impressions_for_site("shop.example", now=4)
    assert measured(browser, 5, epsilon=0.1) == (0, 0, 0)
    assert browser.state.impressions == []
