"""What an advertiser gains by bidding less, or more, than a click is worth to it.

A second price is truthful only if a lower bid can lose and never change the price. A private
choice breaks both: no finalist falls below its floor, so a low bid still wins impressions, and
the price falls with the rank. Expectations are exact over the draws of the mechanism, with
every probability and price computed again for the changed bid.
"""

import dataclasses
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
    check_reserve,
)
from tulle.select.billing.prices import PaidEvent, PricingRule, price_candidates
from tulle.select.mechanisms.mechanism import SelectionMechanism

BID_FACTORS = (0.0, 0.05, *(round(0.1 * step, 1) for step in range(1, 16)))
"""Factors on its bids that an advertiser tries, from not bidding to one and a half times."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedSelection:
    """How ads are chosen and paid for. Every field is public."""

    mechanism: SelectionMechanism
    rule: PricingRule
    reserve: float

    def __post_init__(self) -> None:
        check_reserve(self.reserve)


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
    means = outcomes / len(tried.auctions)
    return ShadingCurve(
        factors=factors,
        utilities=tuple(means[:, 0].tolist()),
        win_probs=tuple(means[:, 1].tolist()),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _TriedBids:
    """One copy of an auction for each bid in it that is tried, so that each changes alone."""

    auctions: Auctions
    device: DeviceClicks
    is_own: BoolArray
    """[candidates of the copies], the one bid of each copy."""


def _tried_bids(auctions: Auctions, device: DeviceClicks, ads: IntArray) -> _TriedBids:
    own_places = np.flatnonzero(np.isin(auctions.ads, ads))
    rows = np.searchsorted(auctions.offsets, own_places, side="right") - 1
    places, offsets = auctions.places_of(rows)
    return _TriedBids(
        auctions=auctions.take(places, offsets),
        device=DeviceClicks(click_probs=device.click_probs[places]),
        is_own=places == np.repeat(own_places, np.diff(offsets)),
    )


def _outcome(tried: _TriedBids, selection: PricedSelection, factor: float) -> FloatArray:
    """Sums of utility and of probabilities to win over all copies."""
    auctions = tried.auctions
    shaded_bids = np.where(tried.is_own, factor * auctions.bids, auctions.bids)
    shaded = above_reserve(dataclasses.replace(auctions, bids=shaded_bids), selection.reserve)
    if not len(shaded.auctions):
        return np.zeros(2)
    kept_device = DeviceClicks(click_probs=tried.device.click_probs[shaded.kept_candidates])
    win_probs = selection.mechanism.selection_probs(
        shaded.auctions, kept_device.scores(shaded.auctions)
    )
    prices = price_candidates(shaded.auctions, selection.rule, reserve=selection.reserve)
    is_own = tried.is_own[shaded.kept_candidates]
    own_probs, click_probs = win_probs[is_own], kept_device.click_probs[is_own]
    values = auctions.bids[shaded.kept_candidates[is_own]] * click_probs
    is_per_click = prices.paid_event is PaidEvent.CLICK
    costs = prices.amounts[is_own] * (click_probs if is_per_click else 1.0)
    return np.array([(own_probs * (values - costs)).sum(), own_probs.sum()])
