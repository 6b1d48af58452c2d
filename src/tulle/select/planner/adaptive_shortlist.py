"""As many finalists as pay off in each auction.

Randomized response over the k best by server score is worth
V_k = (sum of their server scores + (e^epsilon - 1) E max of their device scores)
/ (k - 1 + e^epsilon). A further finalist may turn out best, and takes chance from the others
if not. Only public data decide, so the choice of k costs no budget.
"""

import dataclasses
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.expected_max import best_scores
from tulle.select.planner.ranked_rows import RankedRows, map_ranked_rows
from tulle.select.planner.score_nodes import COARSE_STEP

_LARGEST_EPSILON = 500.0
"""Beyond it e^epsilon leaves the range of floats, and chances are those without privacy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveTop:
    """A shortlist of the size with the largest expected score in each auction. Public."""

    epsilon: float
    """Of the randomized response that chooses from the shortlist."""
    prior: LogitNormalPrior
    """If it is wrong the sizes are not the best ones; privacy does not depend on it."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= _LARGEST_EPSILON:
            raise ConfigError(
                f"epsilon={self.epsilon} must be > 0 and at most {_LARGEST_EPSILON}, e.g. 3.0."
            )

    @property
    def name(self) -> str:
        """With its settings."""
        return f"adaptive, private stddev {self.prior.private_stddev:g}"

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], the best number of finalists; the least among equals."""
        sizes = np.empty(len(auctions), np.int64)
        for rows, best in map_ranked_rows(self._sizes_of_rows, auctions, self.prior):
            sizes[rows.auctions] = best
        return sizes

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
      epsilon: Of the randomized response.
    """
    num_finalists = np.arange(1, best.shape[1] + 1)
    odds = math.exp(epsilon)
    sums = np.cumsum(rows.server_scores[:, : best.shape[1]], axis=1)
    return np.asarray((sums + (odds - 1) * best) / (num_finalists - 1 + odds))
