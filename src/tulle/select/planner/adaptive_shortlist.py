"""Shortlists with as many finalists as pay off in each auction.

Randomized response over the k best by server score is worth
V_k = (sum of their server scores + (e^epsilon - 1) E max of their device scores)
/ (k - 1 + e^epsilon). A further finalist may turn out best, and takes probability from the others
if not. Only public data decide, so the choice of k costs no budget.

For independent scores, what candidate k adds to the best of those before it is the integral of
P(best of those before <= s) P(score of k > s) over s. The sum starts at the first candidate,
whose mean is its server score; with k = 1 nothing is integrated.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.score_nodes import (
    COARSE_STEP,
    FINE_STEP,
    RankedRows,
    ScoreNodes,
    map_ranked_rows,
    score_nodes,
)

_LARGEST_EPSILON = 500.0
"""Largest epsilon; beyond it e^epsilon leaves the range of floats, and probabilities are those
without privacy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveTop:
    """A shortlist of the size with the largest expected score in each auction. Public."""

    epsilon: float
    """Epsilon of the randomized response that chooses from the shortlist."""
    prior: LogitNormalPrior
    """Prior of what devices know. If it is wrong the sizes are not the best ones; privacy does not
    depend on it."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= _LARGEST_EPSILON:
            raise ConfigError(
                f"epsilon={self.epsilon} must be > 0 and at most {_LARGEST_EPSILON}, e.g. 3.0."
            )

    @property
    def name(self) -> str:
        """The shortlist with its settings."""
        return f"adaptive, private stddev {self.prior.private_stddev:g}"

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], the best number of finalists; the least among equals."""
        sizes = np.empty(len(auctions), np.int64)
        for rows, best in map_ranked_rows(self._sizes_of_rows, auctions, self.prior):
            sizes[rows.auctions] = best
        return sizes

    def settings(self, epsilon: float) -> dict[str, Any]:
        """The standard deviation of the prior; its epsilon must be that of the mechanism.

        Raises:
          ConfigError: It was planned for another epsilon.
        """
        if self.epsilon != epsilon:
            raise ConfigError(
                f"the shortlist is for epsilon={self.epsilon} and the mechanism has "
                f"epsilon={epsilon}; plan both for the same."
            )
        return {"private_stddev": self.prior.private_stddev}

    def _sizes_of_rows(self, rows: RankedRows) -> IntArray:
        # What rank k adds to V is at most e^epsilon times its server score, and V_1 is the first
        # server score: later ranks cannot pay.
        scores = rows.server_scores
        may_pay = scores * math.exp(self.epsilon) > scores[:, :1]
        num_ranks = max(int(may_pay.any(axis=0).sum()), 1)
        best = best_scores(rows, self.prior, num_ranks=num_ranks, step=COARSE_STEP)
        values = shortlist_values(rows, best, self.epsilon)
        return np.asarray(np.where(may_pay[:, :num_ranks], values, 0.0).argmax(axis=1) + 1)


def shortlist_values(rows: RankedRows, best: FloatArray, epsilon: float) -> FloatArray:
    """[rows, ranks], expected score of randomized response over the first k, for every k.

    Args:
      rows: Auctions of equal size.
      best: E max of the first k device scores.
      epsilon: Epsilon of the randomized response.
    """
    num_finalists = np.arange(1, best.shape[1] + 1)
    odds = math.exp(epsilon)
    sums = np.cumsum(rows.server_scores[:, : best.shape[1]], axis=1)
    return np.asarray((sums + (odds - 1) * best) / (num_finalists - 1 + odds))


def best_scores(
    rows: RankedRows,
    prior: LogitNormalPrior,
    *,
    num_ranks: int | None = None,
    step: float = FINE_STEP,
) -> FloatArray:
    """[rows, ranks], E max of the first k scores, for every k.

    Args:
      rows: Auctions of equal size.
      prior: What devices may find.
      num_ranks: The largest k; by default all.
      step: Distance of the nodes, see `score_nodes`.
    """
    best = np.empty((len(rows.auctions), num_ranks or rows.bids.shape[1]))
    for numbers, nodes in score_nodes(rows, prior, step=step):
        best[numbers] = _best_at_nodes(nodes, best.shape[1])
    return best


def _best_at_nodes(nodes: ScoreNodes, num_ranks: int) -> FloatArray:
    best = np.empty((len(nodes.steps), num_ranks))
    best[:, 0] = nodes.rows.server_scores[:, 0]
    all_below = nodes.cdf(0)
    for rank in range(1, num_ranks):
        below = nodes.cdf(rank)
        # d score = score d log score.
        gain = nodes.integral(all_below * (1 - below) * nodes.scores)
        best[:, rank] = best[:, rank - 1] + gain
        all_below *= below
    return best
