"""Revenue by rule and prediction is that of prices made by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.pricing_effect import BEST_OTHER, best_other_scores, pricing_effect
from tulle.lab.markets.synthetic_market import DISPLAY, SEARCH
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.billing.prices import PricingRule

SampleOf = Callable[..., MarketSample]
PER_IMPRESSION = PricingRule.SECOND_PRICE.value
PER_CLICK = PricingRule.SECOND_PRICE_PER_CLICK.value
SAMPLE = MarketSample(
    auctions=Auctions(
        offsets=np.array([0, 3, 5]),
        ads=np.array([1, 2, 3, 1, 2]),
        bids=np.array([1.0, 2.0, 4.0, 1.0, 3.0]),
        server_click_probs=np.array([0.5, 0.2, 0.05, 0.3, 0.2]),
    ),
    device=DeviceClicks(click_probs=np.array([0.3, 0.1, 0.2, 0.4, 0.1])),
    pricing=PricingRule.SECOND_PRICE,
)
"""Server scores .5 .4 .2 | .3 .6, device scores .3 .2 .8 | .4 .3: the third and the fourth win."""
MEAN_CLICKS = 1.1 / 5


def revenue(rule: str, predictions: str) -> float:
    (row,) = [r for r in pricing_effect(SAMPLE) if (r.rule, r.predictions) == (rule, predictions)]
    return row.revenue


@pytest.mark.parametrize(
    ("rule", "predictions", "expected"),
    [
        # The next device score below the winner's.
        (PER_IMPRESSION, "device", (0.3 + 0.3) / 2),
        (PER_CLICK, "device", (0.3 + 0.3) / 2),
        (BEST_OTHER, "device", (0.3 + 0.3) / 2),
        # Both winners are last for the server, which then asks for nothing.
        (PER_IMPRESSION, "server", 0.0),
        (PER_CLICK, "server", 0.0),
        (BEST_OTHER, "server", (0.5 + 0.6) / 2),
        # By bids alone the third is first, the fourth last.
        (PER_IMPRESSION, "uninformed", 2 * MEAN_CLICKS / 2),
        (PER_CLICK, "uninformed", 2 * 0.2 / 2),
        (BEST_OTHER, "uninformed", (2 + 3) * MEAN_CLICKS / 2),
    ],
)
def test_revenue_is_that_of_prices_by_hand(rule: str, predictions: str, expected: float) -> None:
    assert revenue(rule, predictions) == pytest.approx(expected, rel=1e-12)


def test_revenue_and_surplus_share_the_same_value() -> None:
    value = (0.8 + 0.4) / 2
    for row in pricing_effect(SAMPLE):
        assert row.revenue + row.surplus == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("market", [SEARCH, DISPLAY], ids=["search", "display"])
def test_only_prices_a_click_or_the_best_other_raise_revenue(
    market: object, sample_of: SampleOf
) -> None:
    rows = pricing_effect(sample_of(market, 3000))
    found = {(row.rule, row.predictions): row.revenue_lift for row in rows}
    assert found[PER_IMPRESSION, "server"] < -0.1
    assert found[PER_CLICK, "server"] > 0.03
    assert found[BEST_OTHER, "server"] > 0
    assert {lift for (_, who), lift in found.items() if who == "device"} == {0.0}


def test_the_best_other_score_leaves_out_ones_own() -> None:
    assert best_other_scores(SAMPLE.auctions) == pytest.approx([0.4, 0.5, 0.5, 0.6, 0.3])


def test_a_single_candidate_has_no_other() -> None:
    alone = MarketSample(
        auctions=Auctions(
            offsets=np.array([0, 1]),
            ads=np.array([1]),
            bids=np.array([1.0]),
            server_click_probs=np.array([0.5]),
        ),
        device=DeviceClicks(click_probs=np.array([0.4])),
        pricing=PricingRule.SECOND_PRICE,
    )
    assert best_other_scores(alone.auctions).tolist() == [0.0]
    with pytest.raises(ConfigError, match="two candidates"):
        pricing_effect(alone)
