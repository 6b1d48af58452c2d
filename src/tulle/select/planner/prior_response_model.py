"""What a response with a prior brings, in expectation over devices.

A kept candidate is shown with chance 1/Z if another kept one is the winner, e^epsilon/Z if it is
the winner itself and 1/k if the winner is not kept. The last case takes the clicks of a kept
candidate where the best of all others is above all kept ones.
"""

import math

import numpy as np

from tulle.select.auctions import Auctions, BoolArray, FloatArray
from tulle.select.baselines.finalist_auctions import FinalistAuctions
from tulle.select.baselines.prior_response import PriorResponse
from tulle.select.planner.candidate_outcomes import CandidateOutcomes, outcomes_of_rows
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.ranked_rows import RankedRows
from tulle.select.planner.score_nodes import ScoreNodes, score_nodes
from tulle.select.planner.top_chances import top_chances
from tulle.select.server_ranks import ranks_of

_STEP = 0.1
"""Sums up to a node, unlike those over all nodes, err with the square of the step."""


def prior_response_outcomes(
    auctions: Auctions, mechanism: PriorResponse, prior: LogitNormalPrior
) -> CandidateOutcomes:
    """Expected impressions and clicks, to about 1e-3.

    Args:
      auctions: The public side.
      mechanism: Its own chances of winners may differ from those of `prior`.
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
        chances, clicks = top_chances(rows, prior)
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


def _clicks_of_losers(rows: RankedRows, prior: LogitNormalPrior, kept: BoolArray) -> FloatArray:
    """[rows, candidates], mean click chance of each kept one where no kept one wins."""
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
