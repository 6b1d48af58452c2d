"""Expected impressions and clicks of each candidate, over draws and devices."""

import dataclasses
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.select.ad_prices import AdPrices, PaidEvent
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.baselines.finalist_auctions import FinalistAuctions
from tulle.select.baselines.noisy_max import NoisyMax
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.metrics import MarketMetrics
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.noisy_max_model import ScoreMixture, noisy_winners
from tulle.select.planner.ranked_rows import RankedRows, RowFunction, map_ranked_rows
from tulle.select.planner.top_chances import ROWS_PER_CHUNK, top_chances


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CandidateOutcomes:
    """What is expected of each candidate of some auctions."""

    impressions: FloatArray
    """[candidates], 1 together in an auction."""
    clicks: FloatArray
    """[candidates]"""

    def metrics(self, auctions: Auctions, prices: AdPrices) -> MarketMetrics:
        """Means over auctions."""
        paid = self.clicks if prices.paid_event is PaidEvent.CLICK else self.impressions
        return MarketMetrics(
            click_rate=float(self.clicks.sum()) / len(auctions),
            revenue=float(paid @ prices.amounts) / len(auctions),
            welfare=float(self.clicks @ auctions.bids) / len(auctions),
        )


def boosted_outcomes(
    auctions: Auctions, mechanism: FloorMechanism, prior: LogitNormalPrior
) -> CandidateOutcomes:
    """Of a response that boosts the device's few best finalists, to about 1e-4.

    Args:
      auctions: The public side.
      mechanism: Any number of boosted finalists.
      prior: What devices may find.
    """
    shrink = math.exp(-mechanism.epsilon)

    def of_rows(rows: RankedRows) -> tuple[FloatArray, FloatArray]:
        num_finalists = rows.bids.shape[1]
        if num_finalists == 1:
            return np.ones_like(rows.bids), rows.click_probs
        num_boosted = min(mechanism.num_boosted, num_finalists - 1)
        chances, clicks = top_chances(rows, prior, num_top=num_boosted)
        cap = 1 / (shrink * (num_finalists - num_boosted) + num_boosted)
        floor, boost = shrink * cap, (1 - shrink) * cap
        return floor + boost * chances, floor * rows.click_probs + boost * clicks

    finalists = FinalistAuctions.of_shortlist(auctions, mechanism.shortlist)
    return outcomes_of_rows(of_rows, auctions, finalists, prior)


def noisy_max_outcomes(
    auctions: Auctions, mechanism: NoisyMax, prior: LogitNormalPrior
) -> CandidateOutcomes:
    """Of a noisy maximum of scores that are bounded one by one, to about 1e-3.

    Args:
      auctions: The public side.
      mechanism: With clipped scores; scaled ones depend on each other.
      prior: What devices may find.
    """
    if mechanism.score_bound.is_equal_box:
        raise ConfigError(
            f"mechanism {mechanism.name!r} scales each score by the others, so its expectation "
            "over a prior is no simple integral. Give a sample of devices' predictions."
        )
    finalists = mechanism.finalists(auctions)
    rates = mechanism.rates(finalists.auctions)
    lows, highs = mechanism.score_bound.box(finalists.auctions)

    def of_rows(rows: RankedRows) -> tuple[FloatArray, FloatArray]:
        if rows.bids.shape[1] == 1:
            return np.ones_like(rows.bids), rows.click_probs
        box = lows[rows.places], highs[rows.places]
        mixture = ScoreMixture.of_box(rows, prior, box, rates[rows.auctions])
        return noisy_winners(mixture, mechanism.noise)

    return outcomes_of_rows(of_rows, auctions, finalists, prior)


def outcomes_of_rows(
    function: RowFunction[tuple[FloatArray, FloatArray]],
    auctions: Auctions,
    finalists: FinalistAuctions,
    prior: LogitNormalPrior,
) -> CandidateOutcomes:
    """Puts impressions and clicks of finalists to their places; the others have none."""
    impressions = np.zeros(auctions.num_candidates)
    clicks = np.zeros(auctions.num_candidates)
    chunks = map_ranked_rows(function, finalists.auctions, prior, rows_per_chunk=ROWS_PER_CHUNK)
    for rows, (shown, clicked) in chunks:
        places = finalists.places[rows.places]
        impressions[places], clicks[places] = shown, clicked
    return CandidateOutcomes(impressions=impressions, clicks=clicks)
