"""What advertisers may object to in a private selection, measured on a sample.

Prices without private data are safe to show, but neither truthful nor rational for the choice
of a device: an ad can win where its click is worth less than the price, can gain by a lower
bid, and the platform can lose revenue. The report says how much, and what helps.

A second price is truthful only if a lower bid can lose and never change the price. A private
choice breaks both: no finalist falls below its floor, so a low bid still wins impressions, and
the price falls with the rank. Expectations are exact over the draws of the mechanism, with
every probability and price computed again for the changed bid.
"""

import dataclasses
import enum
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import (
    Auctions,
    BoolArray,
    DeviceClicks,
    FloatArray,
    IntArray,
    above_reserve,
    server_ranks,
)
from tulle.select.billing.prices import (
    AdPrices,
    PaidEvent,
    PricingRule,
    expected_metrics,
    price_candidates,
)
from tulle.select.mechanisms.mechanism import SelectionMechanism

BID_FACTORS = (0.0, 0.05, *(round(0.1 * step, 1) for step in range(1, 16)))
"""Factors on its bids that an advertiser tries, from not bidding to one and a half times."""
SMALL_SHADING_GAIN = 0.02
"""Share of utility below which a bid is not worth changing."""
SMALL_OVERPAID_SHARE = 0.005
"""Share of impressions sold above their worth below which nobody will object."""

_ROUNDING_NOISE = 1e-12
"""Relative difference of two sums that rounding alone may make."""
_TRIED_AUCTIONS = 10_000
"""Auctions that changed bids are tried on; each is computed once for every factor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedSelection:
    """How ads are chosen and paid for. Every field is public."""

    mechanism: SelectionMechanism
    rule: PricingRule
    reserve: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShadingCurve:
    """Outcomes of an advertiser that multiplies its bids while all others keep theirs.

    Means over its auctions, and over advertisers if there are several: each changes alone.
    """

    factors: tuple[float, ...]
    utilities: tuple[float, ...]
    """Value of its clicks less what it pays."""
    win_probs: tuple[float, ...]

    @property
    def truthful_utility(self) -> float:
        """Utility of bids that are left as they are."""
        return self.utilities[self.factors.index(1.0)]

    @property
    def best_factor(self) -> float:
        """Factor with the largest utility; 1 if none is better than truth."""
        best = int(np.argmax(self.utilities))
        is_better = self.utilities[best] > self.truthful_utility
        return self.factors[best] if is_better else 1.0

    @property
    def gain(self) -> float:
        """Gain of the best factor, as a share of the truthful utility; infinite if that is 0."""
        difference = max(self.utilities) - self.truthful_utility
        if difference <= 0:
            return 0.0
        return difference / self.truthful_utility if self.truthful_utility > 0 else math.inf


def shading_curve(
    auctions: Auctions,
    device: DeviceClicks,
    selection: PricedSelection,
    *,
    ads: IntArray,
    factors: tuple[float, ...] = BID_FACTORS,
) -> ShadingCurve:
    """Utilities of one or several advertisers for each factor on their bids.

    One factor for all auctions: who can change each bid on its own may gain more.

    Args:
      auctions: A sample, with bids that are taken for what a click is worth.
      device: Predictions that are taken as the true probabilities of a click.
      selection: How ads are chosen and paid for.
      ads: The advertisers that try a factor, one at a time.
      factors: What they try; 1 must be one of them.

    Privacy:
      None: the curve follows from private predictions. For planning samples, public data and
      synthetic markets.
    """
    if 1.0 not in factors or not all(math.isfinite(f) and f >= 0 for f in factors):
        raise ConfigError(f"factors={factors} must be finite, >= 0 and contain 1.")
    if len(ads) == 0 or not np.all(np.isin(ads, auctions.ads)):
        raise ConfigError("ads must be at least one, each a candidate of an auction of the sample.")
    tried = _tried_bids(auctions, device, ads)
    outcomes = np.array([_outcome(tried, selection, factor) for factor in factors])
    means = outcomes / len(tried[0])
    return ShadingCurve(
        factors=factors,
        utilities=tuple(means[:, 0].tolist()),
        win_probs=tuple(means[:, 1].tolist()),
    )


_TriedBids = tuple[Auctions, FloatArray, BoolArray]
"""One copy of an auction for each bid in it that is tried, so that each changes alone; the true
click probability of each candidate of the copies; and which of them is the one bid of its copy."""


def _tried_bids(auctions: Auctions, device: DeviceClicks, ads: IntArray) -> _TriedBids:
    own_places = np.flatnonzero(np.isin(auctions.ads, ads))
    rows = np.searchsorted(auctions.offsets, own_places, side="right") - 1
    places, offsets = auctions.places_of(rows)
    is_own = places == np.repeat(own_places, np.diff(offsets))
    return auctions.take(places, offsets), device.click_probs[places], is_own


def _outcome(tried: _TriedBids, selection: PricedSelection, factor: float) -> FloatArray:
    """Sums of utility and of probabilities to win over all copies."""
    auctions, all_click_probs, is_own = tried
    shaded_bids = np.where(is_own, factor * auctions.bids, auctions.bids)
    shaded = above_reserve(dataclasses.replace(auctions, bids=shaded_bids), selection.reserve)
    if not len(shaded.auctions):
        return np.zeros(2)
    kept_device = DeviceClicks(click_probs=all_click_probs[shaded.kept_candidates])
    win_probs = selection.mechanism.selection_probs(
        shaded.auctions, kept_device.scores(shaded.auctions)
    )
    prices = price_candidates(shaded.auctions, selection.rule, reserve=selection.reserve)
    is_own = is_own[shaded.kept_candidates]
    own_probs, click_probs = win_probs[is_own], kept_device.click_probs[is_own]
    values = auctions.bids[shaded.kept_candidates[is_own]] * click_probs
    is_per_click = prices.paid_event is PaidEvent.CLICK
    costs = prices.amounts[is_own] * (click_probs if is_per_click else 1.0)
    return np.array([(own_probs * (values - costs)).sum(), own_probs.sum()])


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
    auctions: Auctions, device: DeviceClicks, selection: PricedSelection
) -> IncentiveReport:
    """Measures rationality, truthfulness and revenue on a sample of auctions.

    Args:
      auctions: All candidates; those below the reserve are dropped here.
      device: Predictions that are taken as the true probabilities of a click.
      selection: How ads are chosen and paid for.

    Privacy:
      None: everything follows from private predictions. For planning samples, public data and
      synthetic markets.
    """
    eligible = above_reserve(auctions, selection.reserve)
    sample = eligible.auctions
    if not len(sample):
        raise ConfigError(f"reserve={selection.reserve} leaves no ad in any auction; lower it.")
    kept_device = DeviceClicks(click_probs=device.click_probs[eligible.kept_candidates])
    prices = price_candidates(sample, selection.rule, reserve=selection.reserve)
    probs = selection.mechanism.selection_probs(sample, kept_device.scores(sample))
    by_server = (server_ranks(sample) == 0).astype(np.float64)
    report = IncentiveReport(
        overpaid_share=overpaid_share(sample, kept_device, probs, prices),
        shading=shading_curve(auctions, device, selection, ads=_most_seen(sample)),
        revenue=expected_metrics(sample, kept_device, probs, prices).revenue,
        non_personalised_revenue=expected_metrics(sample, kept_device, by_server, prices).revenue,
        findings=(),
    )
    return dataclasses.replace(report, findings=_findings(report, selection))


def _most_seen(auctions: Auctions) -> IntArray:
    """The ads in most auctions, as many as it takes for thousands: a few flatter their best bid."""
    names, counts = np.unique(auctions.ads, return_counts=True)
    order = np.argsort(-counts, kind="stable")
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
    values = device.scores(auctions)
    is_per_click = prices.paid_event is PaidEvent.CLICK
    costs = prices.amounts * (device.click_probs if is_per_click else 1.0)
    is_overpaid = costs > values * (1 + _ROUNDING_NOISE)
    return float(selection_probs[is_overpaid].sum()) / len(auctions)


def _findings(report: IncentiveReport, selection: PricedSelection) -> tuple[Finding, ...]:
    return (
        _rationality(report, selection.rule),
        _truthfulness(report, selection),
        _free_impressions(report, selection),
        _revenue(report, selection.rule),
        *((_CLICKS_ARE_SEEN,) if selection.rule.paid_event is PaidEvent.CLICK else ()),
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
    severity = Severity.CAUTION if share <= SMALL_OVERPAID_SHARE else Severity.PROBLEM
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
    share = f"{gain:.1%} of its utility"
    if math.isinf(gain):
        share = "all it has, since truth leaves it no utility,"
    return Finding(
        topic="truthfulness",
        severity=severity,
        text=f"An advertiser gains {share} by bidding {report.shading.best_factor:g} "
        f"times its value at epsilon={selection.mechanism.epsilon:g} and "
        f"reserve={selection.reserve:g}.",
        way_out=way_out,
    )


def _free_impressions(report: IncentiveReport, selection: PricedSelection) -> Finding:
    least = int(np.argmin(report.shading.factors))
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
    reason = ""
    if rule.paid_event is PaidEvent.IMPRESSION:
        reason = " It can't be more: the server's winner has the highest price of an impression."
    return Finding(
        topic="revenue",
        severity=Severity.FINE if change >= 0 else Severity.CAUTION,
        text=f"Revenue is {change:+.1%} against a selection that is not personalised.{reason}",
        way_out=""
        if change >= 0
        else "Shorten the list of finalists, or charge for clicks: then a better choice pays more.",
    )
