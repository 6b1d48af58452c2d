"""What it does to revenue and surplus when private data leave the pricing.

The devices' favourites win, so clicks stay the same; what changes is the prediction of clicks
that prices are made from. Figures 2 and 6 of Laro et al. 2024.
"""

import dataclasses

import numpy as np

from tulle.errors import ConfigError
from tulle.lab.markets.market_sample import MarketSample
from tulle.select.auctions import Auctions, FloatArray, server_ranks
from tulle.select.billing.metrics import expected_metrics
from tulle.select.billing.prices import AdPrices, PaidEvent, PricingRule, price_candidates
from tulle.select.mechanisms.mechanism import Greedy

BEST_OTHER = "best-other-score"
"""Each candidate would pay the best score among the others, whatever its own rank."""
_RULES = (PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricingRow:
    """One rule and one prediction behind the prices."""

    rule: str
    predictions: str
    """Source of the predictions: device, server, or the same for all candidates (uninformed)."""
    revenue: float
    surplus: float
    revenue_lift: float
    """Lift over prices from the devices' predictions under the same rule."""
    surplus_lift: float

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self)


def pricing_effect(sample: MarketSample) -> tuple[PricingRow, ...]:
    """Revenue and surplus by rule and prediction, with greedy selection.

    Privacy:
      Not a private release: computed from device predictions, and prices that are made from
      them are what the comparison warns of. For simulations and panels that agreed.
    """
    predictions = {
        "device": sample.device.click_probs,
        "server": sample.auctions.server_click_probs,
        "uninformed": np.full(
            sample.auctions.num_candidates, float(sample.device.click_probs.mean())
        ),
    }
    names = [*(rule.value for rule in _RULES), BEST_OTHER]
    return tuple(row for name in names for row in _rows(sample, name, predictions))


def _rows(sample: MarketSample, rule: str, predictions: dict[str, FloatArray]) -> list[PricingRow]:
    probs = Greedy().selection_probs(sample.auctions, sample.raw_scores)
    found = {}
    for name, click_probs in predictions.items():
        priced = dataclasses.replace(sample.auctions, server_click_probs=click_probs)
        prices = _prices(priced, rule)
        found[name] = expected_metrics(sample.auctions, sample.device, probs, prices)
    before = found["device"]
    if not (before.revenue > 0 and before.surplus > 0):
        raise ConfigError(
            "prices from the devices' predictions leave no revenue or no surplus to compare "
            "with; give auctions with two candidates or more."
        )
    return [
        PricingRow(
            rule=rule,
            predictions=name,
            revenue=metrics.revenue,
            surplus=metrics.surplus,
            revenue_lift=metrics.revenue / before.revenue - 1,
            surplus_lift=metrics.surplus / before.surplus - 1,
        )
        for name, metrics in found.items()
    ]


def _prices(auctions: Auctions, rule: str) -> AdPrices:
    if rule == BEST_OTHER:
        return AdPrices(amounts=best_other_scores(auctions), paid_event=PaidEvent.IMPRESSION)
    # No reserve: it is one on the server's scores, and those of other predictions differ.
    return price_candidates(auctions, PricingRule(rule), reserve=0.0)


def best_other_scores(auctions: Auctions) -> FloatArray:
    """[candidates], the best server score among the other candidates; 0 if there is none."""
    scores = auctions.server_scores
    ranks = server_ranks(auctions)
    starts = auctions.offsets[:-1]
    best = np.maximum.reduceat(scores, starts)
    second = np.maximum.reduceat(np.where(ranks == 0, 0.0, scores), starts)
    return np.where(ranks == 0, np.repeat(second, auctions.sizes), np.repeat(best, auctions.sizes))
