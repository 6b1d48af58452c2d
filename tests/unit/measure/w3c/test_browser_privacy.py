"""What a site learns about one epoch of one browser stays within the budgets it was given.

The impressions of one epoch are taken away. Reports may then change by no more, over their
noise, than the budget of the conversion site, and those of all sites by no more than the global
budget. Draws are fixed, and the same with and without the epoch.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.measure.w3c import attribution_state
from tulle.measure.w3c.attribution_state import FixedDraws
from tulle.measure.w3c.browser import Browser
from tulle.measure.w3c.conformance import CaseSetup
from tulle.measure.w3c.options import MICROEPSILONS
from unit.measure.w3c.browser_timelines import (
    CONFIG,
    DAY,
    MAX_VALUE,
    SERVICE,
    SHOPS,
    Happening,
    busy_timelines,
    happen,
    timelines,
)

LIMITS = CaseSetup.from_json(CONFIG).limits
Timeline = list[tuple[int, Happening]]


def losses(timeline: Timeline, epoch: int, draws: FixedDraws) -> dict[str, float]:
    """By how much the reports of each site change without an epoch, as epsilon."""
    browser, neighbour = Browser(LIMITS, draws), Browser(LIMITS, draws)
    epoch_of = epochs_of(timeline, draws)
    loss = dict.fromkeys(SHOPS, 0.0)
    for now, happening in timeline:
        histogram = happen(browser, now, happening)
        if happening[0] == "save" and epoch_of(now) == epoch:
            continue
        other = happen(neighbour, now, happening)
        if histogram is not None and other is not None:
            change = sum(abs(a - b) for a, b in zip(histogram, other, strict=True))
            epsilon = happening[2].get("epsilon", 1.0)
            loss[happening[1]] += change * epsilon / (2 * MAX_VALUE)
    return loss


def epochs_of(timeline: Timeline, draws: FixedDraws) -> Callable[[int], int]:
    """The clock that both browsers have: its start depends on no impression."""
    browser = Browser(LIMITS, draws)
    for now, happening in timeline:
        if happening[0] != "save":
            happen(browser, now, happening)
    return browser.state._clock.epoch_of


@settings(max_examples=300)
@given(
    st.one_of(timelines, busy_timelines),
    st.integers(-4, 4),
    st.sampled_from([0.0, 0.5, 0.99]),
)
def test_an_epoch_loses_no_more_than_its_budgets(
    timeline: Timeline, epoch: int, fraction: float
) -> None:
    loss = losses(timeline, epoch, FixedDraws(credit_fraction=fraction))
    assert max(loss.values()) <= LIMITS.per_site_privacy_budget / MICROEPSILONS + 1e-9
    assert sum(loss.values()) <= LIMITS.global_privacy_budget_per_epoch / MICROEPSILONS + 1e-9


def two_weeks(lookback_days: int) -> Timeline:
    """An impression in each of two epochs, then one conversion a second."""
    conversion = {
        "aggregationService": SERVICE,
        "histogramSize": 5,
        "value": MAX_VALUE,
        "maxValue": MAX_VALUE,
        "lookbackDays": lookback_days,
        "epsilon": 0.25,
    }
    return [
        (1, ("save", "news.example", {"histogramIndex": 0}, None)),
        (4 * DAY, ("save", "news.example", {"histogramIndex": 1}, None)),
        *((4 * DAY + n, ("measure", SHOPS[0], conversion, None)) for n in range(1, 12)),
    ]


@pytest.mark.parametrize("lookback_days", [1, 10])
def test_a_budget_can_be_used_up(lookback_days: int) -> None:
    loss = losses(two_weeks(lookback_days), 0, FixedDraws())[SHOPS[0]]
    # The quota of the impression site takes twice what a single epoch costs, and binds first.
    assert loss == pytest.approx(0.75 if lookback_days == 1 else 1.0)


@pytest.mark.parametrize("lookback_days", [1, 10])
def test_half_the_price_is_noticed(lookback_days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    full_price = attribution_state.microepsilons
    monkeypatch.setattr(
        attribution_state,
        "microepsilons",
        lambda *args, **kwargs: full_price(*args, **kwargs) // 2,
    )
    loss = losses(two_weeks(lookback_days), 0, FixedDraws())[SHOPS[0]]
    assert loss > LIMITS.per_site_privacy_budget / MICROEPSILONS
