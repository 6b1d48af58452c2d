"""Integrals over the best of several device scores, as sums over a few points of each auction.

Auctions come as rectangles small enough for the cache, each ordered by server score, so that the
first k columns are the finalists of a shortlist of k.

Points are equally spaced in the logarithm of the score. What is summed falls to 0 at both ends
and is smooth, so that the error falls exponentially in the number of points. About 32 of them do
where click probabilities are small; those near 1 crowd below the bid and take more. How many
follows from each auction alone, so that what is found for it does not depend on those around it.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np

from tulle.data.threads import map_in_order
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.planner.click_prior import LogitNormalPrior, logistic

FINE_STEP, COARSE_STEP = 0.3, 0.6
"""Widths of a step, in standard deviations of a score's logarithm: errors below 1e-4 and 1e-3."""
_LOWEST_DEVIATE, _HIGHEST_DEVIATE = -4.5, 4.2
"""Private parts, in standard deviations, beyond which too little lies to change 1e-4 of a mean."""
_MIN_NODES, _MAX_NODES = 16, 4096
"""Fewest and most points of an auction."""
_SQRT_TAU = float(np.sqrt(2 * np.pi))
_LEAST_BID = 1e-200
"""Divisor in place of a bid of 0."""
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RankedRows:
    """Auctions of equal size, one a row, best server score first; ties by their order."""

    auctions: IntArray
    """[rows], the number of each auction."""
    places: IntArray
    """[rows, candidates], where each is in the arrays of all auctions."""
    bids: FloatArray
    """[rows, candidates]"""
    click_probs: FloatArray
    """[rows, candidates], the server's."""
    logits: FloatArray
    """[rows, candidates], public parts."""

    @property
    def server_scores(self) -> FloatArray:
        """[rows, candidates], not rising along a row."""
        return self.bids * self.click_probs

    @property
    def bids_above_zero(self) -> FloatArray:
        """[rows, candidates], to divide by: a bid of 0 is as good as the least bid there is."""
        return np.maximum(self.bids, _LEAST_BID)

    def take(self, numbers: IntArray) -> "RankedRows":
        """Some of the rows."""
        fields = [field.name for field in dataclasses.fields(self)]
        return RankedRows(**{name: getattr(self, name)[numbers] for name in fields})


RowFunction: TypeAlias = Callable[[RankedRows], Result]


def map_ranked_rows(
    function: RowFunction[Result],
    auctions: Auctions,
    prior: LogitNormalPrior,
    *,
    rows_per_chunk: int = 512,
) -> Iterator[tuple[RankedRows, Result]]:
    """Applies a function to all auctions, some at a time, on all cores.

    Args:
      function: Function of auctions of equal size, safe to call from several threads.
      auctions: The public side.
      prior: What devices may find.
      rows_per_chunk: Number of auctions of a call; what the function keeps for them should fit the
        cache.
    """
    logits = prior.public_logits(auctions.server_click_probs)
    scores = auctions.server_scores

    def ranked(chunk: tuple[IntArray, IntArray]) -> tuple[RankedRows, Result]:
        numbers, places = chunk
        order = np.argsort(-scores[places], axis=1, kind="stable")
        places = np.take_along_axis(places, order, axis=1)
        rows = RankedRows(
            auctions=numbers,
            places=places,
            bids=auctions.bids[places],
            click_probs=auctions.server_click_probs[places],
            logits=logits[places],
        )
        return rows, function(rows)

    return map_in_order(ranked, _chunks(auctions, rows_per_chunk))


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
        """[nodes, rows], probability that one candidate's score is at most that of the node."""
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
        """[nodes, rows], the click probability of one candidate that has the score of the node."""
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
      step: Distance of nodes, in standard deviations of the logarithm of a score, where it varies
        least.
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
    """[rows], enough for d log score = (1 - click probability) d logit; few different numbers."""
    stddev = prior.private_stddev
    likely = logistic(rows.logits.max(axis=1) + max(2.0, 2 * stddev) * stddev)
    needed = num_steps / (stddev * np.maximum(1 - likely, 1e-6)) + 1
    doublings = np.log2(np.clip(needed, _MIN_NODES, _MAX_NODES) / _MIN_NODES)
    return np.asarray(np.ceil(_MIN_NODES * 2 ** (np.ceil(doublings * 3) / 3)), np.int64)


def _chunks(auctions: Auctions, step: int) -> Iterator[tuple[IntArray, IntArray]]:
    for group in auctions.size_groups():
        for start in range(0, len(group.auctions), step):
            part = slice(start, start + step)
            yield group.auctions[part], group.places[part]
