"""What a rule of selection is worth, in exact expectation over its draws.

The device's prediction is taken as the true probability of a click ("direct method"). All numbers
are means over auctions.
"""

import dataclasses

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray
from tulle.select.billing.prices import AdPrices, PaidEvent


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarketMetrics:
    """Means over auctions. Computed from private data: as sensitive as they are."""

    click_rate: float
    """Clicks an impression."""
    revenue: float
    """What advertisers pay an impression."""
    welfare: float
    """Value of the clicks to advertisers: surplus and revenue together."""

    @property
    def surplus(self) -> float:
        """What advertisers keep of the value."""
        return self.welfare - self.revenue

    def to_dict(self) -> dict[str, float]:
        """All four numbers by name."""
        return {
            "click_rate": self.click_rate,
            "revenue": self.revenue,
            "surplus": self.surplus,
            "welfare": self.welfare,
        }


def expected_metrics(
    auctions: Auctions, device: DeviceClicks, selection_probs: FloatArray, prices: AdPrices
) -> MarketMetrics:
    """Exact means for given probabilities of selection.

    Args:
      auctions: The public side.
      device: Predictions that are taken as the truth.
      selection_probs: [candidates], adding up to 1 in each auction.
      prices: Prices of all candidates.
    """
    if selection_probs.shape != auctions.bids.shape or prices.amounts.shape != auctions.bids.shape:
        raise ConfigError("probabilities and prices must be those of the same candidates.")
    # Sums of products, not dot products: those start threads that cost more than they save.
    clicks = selection_probs * device.click_probs
    paid = clicks if prices.paid_event is PaidEvent.CLICK else selection_probs
    return MarketMetrics(
        click_rate=float(clicks.sum()) / len(auctions),
        revenue=float((paid * prices.amounts).sum()) / len(auctions),
        welfare=float((clicks * auctions.bids).sum()) / len(auctions),
    )


def captured_share(metrics: float, *, baseline: float, ideal: float) -> float:
    """Share of the gain of personalisation that is kept.

    Args:
      metrics: What a mechanism is worth.
      baseline: What it is worth not to personalise.
      ideal: What greedy selection is worth, without privacy.
    """
    if not ideal > baseline:
        raise ConfigError(
            "there is no gain to share: devices prefer what the server does. Give predictions of "
            "devices that know more than the server."
        )
    return (metrics - baseline) / (ideal - baseline)
