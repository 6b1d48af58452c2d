"""Single auctions are of the kind they say, and worth what the formulas say."""

import dataclasses
import math
from collections.abc import Callable

import pytest

from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.single_auctions import single_auctions
from tulle.lab.markets.synthetic_market import DISPLAY

SampleOf = Callable[..., MarketSample]
FEW = dataclasses.replace(DISPLAY, num_candidates=3, num_eligible=3)


@pytest.mark.parametrize("market", [FEW, DISPLAY], ids=["few", "many"])
def test_there_is_one_auction_of_each_kind(market: object, sample_of: SampleOf) -> None:
    sample = sample_of(market, 300)
    rows = single_auctions(sample, epsilons=[1.0, 3.0], width=0.1)
    assert {row.server_is for row in rows} == {"right", "close", "wrong"}
    assert len(rows) == 3 * 2 * 5
    size = market.num_candidates
    for row in rows:
        places = slice(size * row.auction, size * (row.auction + 1))
        device = sample.raw_scores[places]
        servers = device[sample.auctions.server_scores[places].argmax()]
        worth = servers / device.max()
        kind = "right" if worth == 1 else "close" if worth >= 0.5 else "wrong"
        assert (row.num_candidates, row.server_is) == (size, kind)
        expected = {
            "greedy": device.max(),
            "not personalised": servers,
            "randomized response": (device.sum() + (math.exp(row.epsilon) - 1) * device.max())
            / (size - 1 + math.exp(row.epsilon)),
        }
        if row.mechanism in expected:
            assert row.score == pytest.approx(expected[row.mechanism], rel=1e-12)
        assert device.min() <= row.score <= device.max() * (1 + 1e-12)


def test_auctions_between_few_and_many_are_not_shown(sample_of: SampleOf) -> None:
    between = dataclasses.replace(DISPLAY, num_candidates=6, num_eligible=6)
    assert single_auctions(sample_of(between, 50), epsilons=[1.0], width=0.1) == ()
