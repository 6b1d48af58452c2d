"""Expected impressions and clicks of each candidate, over draws and devices.

Given its own score s, a candidate is among the best d if fewer than d of the others are above s.
Others are independent, so their number above s follows from a product over them, taken from the
left and from the right so that each can be left out.

A response with a prior shows a kept candidate with probability 1/Z if another kept one is the
winner, e^epsilon/Z if it is the winner itself, and 1/k if the winner is not kept. The last case
takes the clicks of a kept candidate where the best of all others is above all kept ones.
"""

import dataclasses
import itertools
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, BoolArray, FloatArray, ranks_of
from tulle.select.billing.prices import AdPrices, MarketMetrics, PaidEvent
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.noisy_max import NoisyMax
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.shortlists import FinalistAuctions
from tulle.select.planner.click_prior import (
    LogitNormalPrior,
    RankedRows,
    RowFunction,
    ScoreNodes,
    map_ranked_rows,
    score_nodes,
)
from tulle.select.planner.noisy_max_model import ScoreMixture, noisy_winners

ROWS_PER_CHUNK = 64
"""The laws of all candidates are kept at once, so that fewer auctions fit the cache."""
_STEP = 0.1
"""Sums up to a node, unlike those over all nodes, err with the square of the step."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CandidateOutcomes:
    """What is expected of each candidate of some auctions."""

    impressions: FloatArray
    """[candidates], 1 together in an auction."""
    clicks: FloatArray
    """[candidates], expected clicks."""

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
    """Outcomes of a response that boosts the device's few best finalists, to about 1e-4.

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
        chances, clicks = top_probs(rows, prior, num_top=num_boosted)
        cap = 1 / (shrink * (num_finalists - num_boosted) + num_boosted)
        floor, boost = shrink * cap, (1 - shrink) * cap
        return floor + boost * chances, floor * rows.click_probs + boost * clicks

    finalists = FinalistAuctions.of_shortlist(auctions, mechanism.shortlist)
    return outcomes_of_rows(of_rows, auctions, finalists, prior)


def noisy_max_outcomes(
    auctions: Auctions, mechanism: NoisyMax, prior: LogitNormalPrior
) -> CandidateOutcomes:
    """Outcomes of a noisy maximum of scores that are bounded one by one, to about 1e-3.

    Args:
      auctions: The public side.
      mechanism: Noisy maximum of clipped scores; scaled ones depend on each other.
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


def prior_choice_outcomes(
    auctions: Auctions, mechanism: PriorChoice, prior: LogitNormalPrior
) -> CandidateOutcomes:
    """Expected impressions and clicks, to about 1e-3.

    Args:
      auctions: The public side.
      mechanism: Mechanism, whose own probabilities of winners may differ from those of `prior`.
      prior: What devices may find.
    """
    given = mechanism.winner_probs
    likeliest = ranks_of(auctions, np.asarray(given(auctions) if callable(given) else given))
    sizes = mechanism.kept_sizes(auctions)
    is_kept = likeliest < np.repeat(sizes, auctions.sizes)
    shrink = math.exp(-mechanism.epsilon)

    def of_rows(rows: RankedRows) -> tuple[FloatArray, FloatArray]:
        num_kept = sizes[rows.auctions][:, np.newaxis]
        kept = is_kept[rows.places]
        chances, clicks = top_probs(rows, prior)
        other_wins = 1 - (chances * kept).sum(axis=1, keepdims=True)
        cap = 1 / (shrink * (num_kept - 1) + 1)
        floor, boost, even = shrink * cap, (1 - shrink) * cap, 1 / num_kept - shrink * cap
        impressions = floor + boost * chances + even * other_wins
        lost = _clicks_of_losers(rows, prior, kept)
        clicks = floor * rows.click_probs + boost * clicks + even * lost
        is_alone = kept & (num_kept == 1)
        return (
            np.where(is_alone, 1.0, kept * impressions),
            np.where(is_alone, rows.click_probs, kept * clicks),
        )

    everybody = FinalistAuctions(
        auctions=auctions, places=np.arange(auctions.num_candidates, dtype=np.int64)
    )
    return outcomes_of_rows(of_rows, auctions, everybody, prior)


def favourite_probs(auctions: Auctions, prior: LogitNormalPrior) -> FloatArray:
    """[candidates], the probability that each is the device's favourite; 1 together in an auction.

    Args:
      auctions: The public side.
      prior: What devices may find.
    """
    chances = np.empty(auctions.num_candidates)

    def of_rows(rows: RankedRows) -> FloatArray:
        return top_probs(rows, prior)[0]

    for rows, row_chances in map_ranked_rows(
        of_rows, auctions, prior, rows_per_chunk=ROWS_PER_CHUNK
    ):
        chances[rows.places] = row_chances
    return chances


def top_probs(
    rows: RankedRows, prior: LogitNormalPrior, *, num_top: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Probabilities to be among the best few of an auction, and clicks there, to about 1e-4.

    Args:
      rows: Auctions of equal size.
      prior: What devices may find.
      num_top: How many are among the best.

    Returns:
      [rows, candidates] each: the probability, adding up to num_top, and the mean of the click
      probability where it is among them and of 0 where not.
    """
    num_candidates = rows.bids.shape[1]
    if num_top >= num_candidates:
        return np.ones_like(rows.bids), rows.click_probs.copy()
    chances, clicks = np.empty_like(rows.bids), np.empty_like(rows.bids)
    for numbers, nodes in score_nodes(rows, prior, num_above=num_top):
        laws = [nodes.cdf_and_density(rank) for rank in range(num_candidates)]
        fewer = _few_others_above([cdf for cdf, _ in laws], num_top)
        for rank, (_, density) in enumerate(laws):
            at_node = density * fewer[rank]
            chances[numbers, rank] = nodes.integral(at_node)
            clicks[numbers, rank] = nodes.integral(at_node * nodes.click_probs(rank))
    return _corrected(rows, chances, clicks, num_top)


def outcomes_of_rows(
    function: RowFunction[tuple[FloatArray, FloatArray]],
    auctions: Auctions,
    finalists: FinalistAuctions,
    prior: LogitNormalPrior,
) -> CandidateOutcomes:
    """Puts impressions and clicks of finalists to their places; the others have none.

    Args:
      function: Gives both for auctions of equal size.
      auctions: The public side, with all candidates.
      finalists: Candidates that can be chosen.
      prior: What devices may find.
    """
    impressions = np.zeros(auctions.num_candidates)
    clicks = np.zeros(auctions.num_candidates)
    chunks = map_ranked_rows(function, finalists.auctions, prior, rows_per_chunk=ROWS_PER_CHUNK)
    for rows, (shown, clicked) in chunks:
        places = finalists.places[rows.places]
        impressions[places], clicks[places] = shown, clicked
    return CandidateOutcomes(impressions=impressions, clicks=clicks)


def _few_others_above(cdfs: list[FloatArray], num_top: int) -> list[FloatArray]:
    """The probability, by candidate, that fewer than `num_top` others are above a node."""
    zeros = np.zeros((num_top, *cdfs[0].shape))
    zeros[0] = 1.0
    left = list(itertools.accumulate(cdfs[:-1], _with_one_more, initial=zeros))
    right = list(itertools.accumulate(cdfs[:0:-1], _with_one_more, initial=zeros))
    return [
        np.asarray((before * np.cumsum(after, axis=0)[::-1]).sum(axis=0))
        for before, after in zip(left, reversed(right), strict=True)
    ]


def _with_one_more(num_above: FloatArray, cdf: FloatArray) -> FloatArray:
    """[counts, nodes, rows], law of the number above with one more candidate."""
    more = num_above * cdf
    more[1:] += num_above[:-1] * (1 - cdf)
    return more


def _corrected(
    rows: RankedRows, chances: FloatArray, clicks: FloatArray, num_top: int
) -> tuple[FloatArray, FloatArray]:
    """Probabilities that add up exactly; where no score can be above 0 the first few are best."""
    sums = chances.sum(axis=1, keepdims=True)
    is_flat = sums[:, 0] <= 0
    factor = num_top / np.where(sums > 0, sums, 1.0)
    chances, clicks = chances * factor, np.minimum(clicks * factor, rows.click_probs)
    chances[is_flat] = np.arange(chances.shape[1]) < num_top
    clicks[is_flat] = (rows.click_probs * chances)[is_flat]
    return chances, clicks


def _clicks_of_losers(rows: RankedRows, prior: LogitNormalPrior, kept: BoolArray) -> FloatArray:
    """[rows, candidates], mean click probability of each kept one where no kept one wins."""
    lost = np.zeros_like(rows.bids)
    if rows.bids.shape[1] > 1:
        for numbers, nodes in score_nodes(rows, prior, step=_STEP, num_above=1):
            lost[numbers] = _lost_at_nodes(nodes, kept[numbers])
    return lost


def _lost_at_nodes(nodes: ScoreNodes, kept: BoolArray) -> FloatArray:
    num_candidates = kept.shape[1]
    laws = [nodes.cdf_and_density(rank) for rank in range(num_candidates)]
    others_below = np.ones_like(nodes.scores)
    left, right = [others_below], [others_below]
    for rank in range(num_candidates):
        others_below = others_below * np.where(kept[:, rank], 1.0, laws[rank][0])
        last = num_candidates - 1 - rank
        left.append(left[-1] * np.where(kept[:, rank], laws[rank][0], 1.0))
        right.append(right[-1] * np.where(kept[:, last], laws[last][0], 1.0))
    steps_of_others = np.diff(others_below, axis=0)
    lost = np.empty(kept.shape)
    for rank in range(num_candidates):
        clicks_above = _integral_from(nodes, laws[rank][1] * nodes.click_probs(rank))
        clicks_below = np.maximum(nodes.rows.click_probs[:, rank] - clicks_above, 0.0)
        at_node = clicks_below * left[rank] * right[num_candidates - 1 - rank]
        lost[:, rank] = (steps_of_others * (at_node[1:] + at_node[:-1]) / 2).sum(axis=0)
    return lost


def _integral_from(nodes: ScoreNodes, values: FloatArray) -> FloatArray:
    """[nodes, rows], from each node to the last."""
    areas = (values[1:] + values[:-1]) / 2 * nodes.steps
    sums = np.cumsum(areas[::-1], axis=0)[::-1]
    return np.concatenate([sums, np.zeros_like(values[:1])])
