"""Who will be among a device's favourites: the chance of each candidate, and its clicks there.

Given its own score s, a candidate is among the best d if fewer than d of the others are above
s. Others are independent, so their number above s follows from a product over them, taken from
the left and from the right so that each can be left out.
"""

import itertools

import numpy as np

from tulle.select.auctions import Auctions, FloatArray
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.ranked_rows import RankedRows, map_ranked_rows
from tulle.select.planner.score_nodes import score_nodes

ROWS_PER_CHUNK = 64
"""The laws of all candidates are kept at once, so that fewer auctions fit the cache."""


def winner_chances(auctions: Auctions, prior: LogitNormalPrior) -> FloatArray:
    """[candidates], the chance that each is the device's favourite; 1 together in an auction.

    Args:
      auctions: The public side.
      prior: What devices may find.
    """
    chances = np.empty(auctions.num_candidates)

    def of_rows(rows: RankedRows) -> FloatArray:
        return top_chances(rows, prior)[0]

    for rows, row_chances in map_ranked_rows(
        of_rows, auctions, prior, rows_per_chunk=ROWS_PER_CHUNK
    ):
        chances[rows.places] = row_chances
    return chances


def top_chances(
    rows: RankedRows, prior: LogitNormalPrior, *, num_top: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Chances to be among the best few of an auction, and clicks there, to about 1e-4.

    Args:
      rows: Auctions of equal size.
      prior: What devices may find.
      num_top: How many are among the best.

    Returns:
      [rows, candidates] each: the chance, adding up to num_top, and the mean of the click chance
      where it is among them and of 0 where not.
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


def _few_others_above(cdfs: list[FloatArray], num_top: int) -> list[FloatArray]:
    """For each candidate the chance that fewer than `num_top` of the others are above a node."""
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
    """Chances that add up exactly; where no score can be above 0 the first few are best."""
    sums = chances.sum(axis=1, keepdims=True)
    is_flat = sums[:, 0] <= 0
    factor = num_top / np.where(sums > 0, sums, 1.0)
    chances, clicks = chances * factor, np.minimum(clicks * factor, rows.click_probs)
    chances[is_flat] = np.arange(chances.shape[1]) < num_top
    clicks[is_flat] = (rows.click_probs * chances)[is_flat]
    return chances, clicks
