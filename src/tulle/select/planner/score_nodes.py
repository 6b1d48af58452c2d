"""Points between which the best of several device scores lies, for sums that stand for integrals.

Points are equally spaced in the logarithm of the score. What is summed falls to 0 at both ends
and is smooth, so that the error falls exponentially in the number of points. About 32 of them do
where click chances are small; chances near 1 crowd below the bid and take more. How many follows
from each auction alone, so that what is found for it does not depend on those around it.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from tulle.select.auctions import FloatArray, IntArray
from tulle.select.planner.click_prior import LogitNormalPrior, logistic
from tulle.select.planner.ranked_rows import RankedRows

FINE_STEP, COARSE_STEP = 0.3, 0.6
"""Widths of a step, in standard deviations of a score's logarithm: errors below 1e-4 and 1e-3."""

_LOWEST_DEVIATE, _HIGHEST_DEVIATE = -4.5, 4.2
_MIN_NODES, _MAX_NODES = 16, 4096
_SQRT_TAU = float(np.sqrt(2 * np.pi))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScoreNodes:
    """The points of each auction of a rectangle, and the law of each candidate at them."""

    rows: RankedRows
    prior: LogitNormalPrior
    scores: FloatArray
    """[nodes, rows]"""
    steps: FloatArray
    """[rows], in the logarithm of the score."""

    def deviates(self, rank: int) -> FloatArray:
        """[nodes, rows], the private part of one candidate that leads to each score."""
        return self.prior.deviates(
            self.scores, self.rows.bids_above_zero[:, rank], self.rows.logits[:, rank]
        )

    def cdf(self, rank: int) -> FloatArray:
        """[nodes, rows], chance that one candidate's score is at most that of the node."""
        return self.prior.score_cdf(
            self.scores, self.rows.bids_above_zero[:, rank], self.rows.logits[:, rank]
        )

    def cdf_and_density(self, rank: int) -> tuple[FloatArray, FloatArray]:
        """The same, and the density in the logarithm of the score."""
        from scipy.special import ndtr

        deviates = self.deviates(rank)
        doubts = np.maximum(1 - self.click_probs(rank), 1e-16)
        density = np.exp(-(deviates**2) / 2) / (_SQRT_TAU * self.prior.private_stddev * doubts)
        return np.asarray(ndtr(deviates)), density

    def click_probs(self, rank: int) -> FloatArray:
        """[nodes, rows], the click chance of one candidate that has the score of the node."""
        return np.minimum(self.scores / self.rows.bids_above_zero[:, rank], 1.0)

    def integral(self, values: FloatArray) -> FloatArray:
        """[rows], of values [nodes, rows] over the logarithm of the score."""
        return np.asarray(values.sum(axis=0) * self.steps)


def score_nodes(
    rows: RankedRows,
    prior: LogitNormalPrior,
    *,
    step: float = FINE_STEP,
    num_above: int | None = None,
) -> Iterator[tuple[IntArray, ScoreNodes]]:
    """Nodes from what is hardly ever undercut to what no candidate ever exceeds.

    Args:
      rows: Auctions of equal size.
      prior: What devices may find.
      step: In standard deviations of the logarithm of a score, where it varies least.
      num_above: Nodes start where more than so many candidates are above almost surely; by
        default where the first by server score is.

    Yields:
      Auctions that take equally many nodes, as numbers of rows, with their nodes.
    """
    lowest, highest = _ends(rows, prior, num_above)
    spans = np.maximum(np.log(highest) - np.log(lowest), 0.0)
    nums_nodes = _nums_nodes(spans / step, rows, prior)
    for num_nodes in np.unique(nums_nodes).tolist():
        chosen = np.flatnonzero(nums_nodes == num_nodes)
        steps = spans[chosen] / (num_nodes - 1)
        scores = lowest[chosen] * np.exp(np.arange(num_nodes)[:, np.newaxis] * steps)
        yield chosen, ScoreNodes(rows=rows.take(chosen), prior=prior, scores=scores, steps=steps)


def _ends(
    rows: RankedRows, prior: LogitNormalPrior, num_above: int | None
) -> tuple[FloatArray, FloatArray]:
    """[rows] each, the least and the largest score of a node."""
    lowest = prior.score_quantiles(_LOWEST_DEVIATE, rows.bids, rows.logits)
    if num_above is None:
        lowest = lowest[:, 0]
    else:
        lowest = -np.partition(-lowest, num_above, axis=1)[:, num_above]
    # A mean gives weight to large scores: as much as if deviates were larger by the stddev.
    farthest = _HIGHEST_DEVIATE + prior.private_stddev
    highest = prior.score_quantiles(farthest, rows.bids, rows.logits).max(axis=1)
    # Scores of 0 for sure are never reached: a single node above them, of weight 0.
    has_scores = lowest > 0
    return np.where(has_scores, lowest, 1.0), np.where(has_scores, highest, 1.0)


def _nums_nodes(num_steps: FloatArray, rows: RankedRows, prior: LogitNormalPrior) -> IntArray:
    """[rows], enough for d log score = (1 - click chance) d logit; few different numbers."""
    stddev = prior.private_stddev
    likely = logistic(rows.logits.max(axis=1) + max(2.0, 2 * stddev) * stddev)
    needed = num_steps / (stddev * np.maximum(1 - likely, 1e-6)) + 1
    doublings = np.log2(np.clip(needed, _MIN_NODES, _MAX_NODES) / _MIN_NODES)
    return np.asarray(np.ceil(_MIN_NODES * 2 ** (np.ceil(doublings * 3) / 3)), np.int64)
