"""What the best of the first k candidates is worth, in expectation over devices.

For independent scores, what candidate k adds to the best of those before it is the integral of
P(best of those before <= s) P(score of k > s) over s. The sum starts at the first candidate,
whose mean is its server score; with k = 1 nothing is integrated.
"""

import numpy as np

from tulle.select.auctions import FloatArray
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.ranked_rows import RankedRows
from tulle.select.planner.score_nodes import FINE_STEP, ScoreNodes, score_nodes


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
      step: Of the nodes.
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
