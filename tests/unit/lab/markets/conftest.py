"""Small samples of markets, drawn once."""

from collections.abc import Callable

import pytest

from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.synthetic_market import SyntheticMarket
from tulle.select.billing.prices import PricingRule

SampleOf = Callable[..., MarketSample]


@pytest.fixture
def sample_of() -> SampleOf:
    def draw(market: SyntheticMarket, num_auctions: int, *, seed: int = 1) -> MarketSample:
        auctions, device = market.draw(num_auctions, seed=seed)
        rule = PricingRule.SECOND_PRICE_PER_CLICK
        return MarketSample(auctions=auctions, device=device, pricing=rule)

    return draw
