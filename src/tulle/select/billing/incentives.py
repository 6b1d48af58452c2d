"""What advertisers may object to in a private selection, measured on a sample.

Prices without private data are safe to show, but neither truthful nor rational for the choice
of a device: an ad can win where its click is worth less than the price, can gain by a lower
bid, and the platform can lose revenue. The report says how much, and what helps.
"""

import dataclasses
import enum
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.select.auctions import (
    Auctions,
    DeviceClicks,
    FloatArray,
    IntArray,
    above_reserve,
    server_ranks,
)
from tulle.select.billing.bid_shading import PricedSelection, ShadingCurve, shading_curve
from tulle.select.billing.metrics import expected_metrics
from tulle.select.billing.prices import AdPrices, PaidEvent, PricingRule, price_candidates

SMALL_SHADING_GAIN = 0.02
"""Share of utility below which a bid is not worth changing."""
SMALL_OVERPAID_SHARE = 0.005
"""Share of impressions sold above their worth below which nobody will object."""

_ROUNDING_NOISE = 1e-12
"""Relative difference of two sums that rounding alone may make."""
_TRIED_AUCTIONS = 10_000
"""Auctions that changed bids are tried on; each is computed once for every factor."""


class Severity(enum.Enum):
    """How much a finding matters."""

    FINE = "fine"
    CAUTION = "caution"
    PROBLEM = "problem"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer of the report."""

    topic: str
    severity: Severity
    text: str
    way_out: str
    """What to do about it; empty if nothing need be done."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class IncentiveReport:
    """What a selection does to advertisers and revenue. As sensitive as the sample."""

    overpaid_share: float
    """Share of impressions won at an expected price above the value of the impression."""
    shading: ShadingCurve
    revenue: float
    """Revenue of an impression, by the mechanism."""
    non_personalised_revenue: float
    """Revenue of an impression, if the best server score always wins."""
    findings: tuple[Finding, ...]

    @property
    def revenue_change(self) -> float:
        """Change against the non-personalised selection, as a share of its revenue."""
        if self.non_personalised_revenue == 0:
            return 0.0 if self.revenue == 0 else math.inf
        return self.revenue / self.non_personalised_revenue - 1


def report_incentives(
    auctions: Auctions,
    device: DeviceClicks,
    selection: PricedSelection,
    *,
    num_advertisers: int | None = None,
) -> IncentiveReport:
    """Measures rationality, truthfulness and revenue on a sample of auctions.

    Args:
      auctions: All candidates; those below the reserve are dropped here.
      device: Predictions that are taken as the true probabilities of a click.
      selection: How ads are chosen and paid for.
      num_advertisers: How many ads, those in most auctions first, try other bids; None: as
        many as it takes for thousands of auctions, since a few flatter the best bid in them.

    Privacy:
      None: everything follows from private predictions. For planning samples, public data and
      synthetic markets.
    """
    if num_advertisers is not None:
        check_count("num_advertisers", num_advertisers)
    eligible = above_reserve(auctions, selection.reserve)
    if not len(eligible.auctions):
        raise ConfigError(f"reserve={selection.reserve} leaves no ad in any auction; lower it.")
    kept_device = DeviceClicks(click_probs=device.click_probs[eligible.kept_candidates])
    prices = price_candidates(eligible.auctions, selection.rule, reserve=selection.reserve)
    probs = selection.mechanism.selection_probs(
        eligible.auctions, kept_device.scores(eligible.auctions)
    )
    is_server_winner = (server_ranks(eligible.auctions) == 0).astype(np.float64)
    report = IncentiveReport(
        overpaid_share=overpaid_share(eligible.auctions, kept_device, probs, prices),
        shading=shading_curve(
            auctions, device, selection, ads=_most_seen(eligible.auctions, num_advertisers)
        ),
        revenue=expected_metrics(eligible.auctions, kept_device, probs, prices).revenue,
        non_personalised_revenue=expected_metrics(
            eligible.auctions, kept_device, is_server_winner, prices
        ).revenue,
        findings=(),
    )
    return dataclasses.replace(report, findings=_findings(report, selection))


def _most_seen(auctions: Auctions, num_ads: int | None) -> IntArray:
    names, counts = np.unique(auctions.ads, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    if num_ads is None:
        num_ads = int(np.searchsorted(np.cumsum(counts[order]), _TRIED_AUCTIONS)) + 1
    return names[order[:num_ads]]


def overpaid_share(
    auctions: Auctions, device: DeviceClicks, selection_probs: FloatArray, prices: AdPrices
) -> float:
    """Share of impressions, by their probability, whose expected price is above their value.

    The value of an impression is the bid times the device's click probability. A price of a click
    that is at most the bid is never above it.

    Args:
      auctions: The public side.
      device: Predictions that are taken as the true probabilities of a click.
      selection_probs: [candidates], adding up to 1 in each auction.
      prices: Prices of all candidates.

    Privacy:
      None: the share follows from private predictions.
    """
    if selection_probs.shape != auctions.ads.shape or prices.amounts.shape != auctions.ads.shape:
        raise ConfigError("probabilities and prices must be those of the same candidates.")
    values = device.scores(auctions)
    is_per_click = prices.paid_event is PaidEvent.CLICK
    costs = prices.amounts * (device.click_probs if is_per_click else 1.0)
    is_overpaid = costs > values * (1 + _ROUNDING_NOISE)
    return float(selection_probs[is_overpaid].sum()) / len(auctions)


def _findings(report: IncentiveReport, selection: PricedSelection) -> tuple[Finding, ...]:
    is_per_click = selection.rule.paid_event is PaidEvent.CLICK
    return (
        _rationality(report, selection.rule),
        _truthfulness(report, selection),
        _free_impressions(report, selection),
        _revenue(report, selection.rule),
        *((_CLICKS_ARE_SEEN,) if is_per_click else ()),
    )


_CLICKS_ARE_SEEN = Finding(
    topic="clicks",
    severity=Severity.CAUTION,
    text="A price of a click needs exact counts of clicks: Type II data, which the selection "
    "does not protect.",
    way_out="Charge for impressions, or protect what is reported of clicks apart.",
)


def _rationality(report: IncentiveReport, rule: PricingRule) -> Finding:
    share = report.overpaid_share
    is_small = share <= SMALL_OVERPAID_SHARE
    severity = Severity.CAUTION if is_small else Severity.PROBLEM
    return Finding(
        topic="rationality",
        severity=severity if share > 0 else Severity.FINE,
        text=f"{share:.2%} of impressions cost more than the value that the device predicts "
        f"({rule.value}).",
        way_out="Charge for clicks: the price of a click is never above the bid."
        if share > 0
        else "",
    )


def _truthfulness(report: IncentiveReport, selection: PricedSelection) -> Finding:
    gain = report.shading.gain
    if gain <= SMALL_SHADING_GAIN:
        severity, way_out = Severity.FINE, ""
    else:
        severity = Severity.CAUTION if gain <= 5 * SMALL_SHADING_GAIN else Severity.PROBLEM
        way_out = (
            "Shorten the list of finalists (gamma < 1), set a positive reserve or raise epsilon, "
            "and do not take bids for values in evaluations."
        )
    return Finding(
        topic="truthfulness",
        severity=severity,
        text=f"An advertiser gains {_share_text(gain)} by bidding {report.shading.best_factor:g} "
        f"times its value at epsilon={selection.mechanism.epsilon:g} and "
        f"reserve={selection.reserve:g}.",
        way_out=way_out,
    )


def _share_text(gain: float) -> str:
    if math.isinf(gain):
        return "all it has, since truth leaves it no utility,"
    return f"{gain:.1%} of its utility"


def _free_impressions(report: IncentiveReport, selection: PricedSelection) -> Finding:
    least = min(range(len(report.shading.factors)), key=report.shading.factors.__getitem__)
    win_prob = report.shading.win_probs[least]
    is_free = win_prob > 0 and selection.reserve == 0
    return Finding(
        topic="reserve",
        severity=Severity.PROBLEM if is_free else Severity.FINE,
        text=f"With reserve={selection.reserve:g} an advertiser that bids "
        f"{report.shading.factors[least]:g} times its value wins {win_prob:.2%} of its auctions.",
        way_out="Set a positive reserve: it keeps bids of nothing out of the auction."
        if is_free
        else "",
    )


def _revenue(report: IncentiveReport, rule: PricingRule) -> Finding:
    change = report.revenue_change
    cannot_rise = rule.paid_event is PaidEvent.IMPRESSION
    reason = (
        " It can't be more: the server's winner has the highest price of an impression."
        if cannot_rise
        else ""
    )
    return Finding(
        topic="revenue",
        severity=Severity.FINE if change >= 0 else Severity.CAUTION,
        text=f"Revenue is {change:+.1%} against a selection that is not personalised.{reason}",
        way_out=""
        if change >= 0
        else "Shorten the list of finalists, or charge for clicks: then a better choice pays more.",
    )
