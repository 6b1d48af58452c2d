"""Clicks, payments and value of every shortlist at once, in expectation over devices.

Let B be the device's favourite among the k best by server score. What is expected of B (a click,
a price, a value) changes from k - 1 to k by what candidate k brings where it is the new
favourite, less what the former favourite would have brought there. Both are one-dimensional
integrals, and one pass over the candidates gives them for every k. Randomized response with any
epsilon and any shortlist is a mixture of B and of a uniform choice.

So a shortlist may have as many finalists as pay off in each auction. Response over the k best is
worth V_k = (sum of their server scores + (e^epsilon - 1) E max of their device scores)
/ (k - 1 + e^epsilon). A further finalist may turn out best, and takes probability from the others
if not. What candidate k adds to the best of those before it is the integral of
P(best of those before <= s) P(score of k > s) over s; the first adds its server score, its mean.
Only public data decide, so the choice of k costs no budget.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.billing.prices import AdPrices, MarketMetrics, PaidEvent
from tulle.select.planner.click_prior import (
    COARSE_STEP,
    FINE_STEP,
    LogitNormalPrior,
    RankedRows,
    ScoreNodes,
    map_ranked_rows,
    score_nodes,
)

_LARGEST_EPSILON = 500.0
"""Largest epsilon; beyond it e^epsilon leaves the range of floats, and probabilities are those
without privacy."""
_CLICKS, _PAYMENTS, _VALUES = range(3)
"""Places of the three outcomes in the last axis of arrays: one array is faster to cut by rows than
three."""


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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ShortlistOutcomes:
    """What choices among the first k candidates bring, for every k. From public data."""

    offsets: IntArray
    """[auctions + 1], offsets of the auctions."""
    favourite: FloatArray
    """[candidates, 3], clicks, payments and value of the favourite of the first k candidates of
    an auction, in line k - 1 of the auction."""
    uniform: FloatArray
    """The same if each of the first k is shown equally often."""

    def response_metrics(self, sizes: IntArray, epsilon: float) -> MarketMetrics:
        """Metrics of randomized response over the first candidates of each auction.

        Args:
          sizes: [auctions], number of finalists, from 1 to all.
          epsilon: Infinite for the favourite itself.
        """
        lines = self.offsets[:-1] + sizes - 1
        # A single finalist is shown for sure, without a rounding error.
        shares = np.where(sizes == 1, 0.0, sizes / (sizes - 1 + _exponential(epsilon)))
        shares = shares[:, np.newaxis]
        means = ((1 - shares) * self.favourite[lines] + shares * self.uniform[lines]).mean(axis=0)
        return market_metrics(means)


def market_metrics(means: FloatArray) -> MarketMetrics:
    """Metrics from mean clicks, payments and value."""
    clicks, payments, values = means.tolist()
    return MarketMetrics(click_rate=clicks, revenue=payments, welfare=values)


def shortlist_outcomes(
    auctions: Auctions, prices: AdPrices, prior: LogitNormalPrior
) -> ShortlistOutcomes:
    """Exact expectations for all shortlists, to 1e-4 where the private stddev is at most 1.

    Beyond it values are still right to 1e-4, clicks and payments to 1e-3; to some percent where
    in addition clicks are more likely than not.

    Args:
      auctions: The public side.
      prices: Prices of all candidates.
      prior: What devices may find.
    """
    if prices.amounts.shape != auctions.bids.shape:
        raise ConfigError("prices must be those of the same candidates.")
    favourite = np.empty((auctions.num_candidates, 3))
    uniform = np.empty_like(favourite)

    def outcomes(rows: RankedRows) -> tuple[FloatArray, FloatArray]:
        worth = Worth.of_rows(rows, prices)
        return _favourite(rows, worth, prior), _uniform(worth)

    for rows, (best, mean) in map_ranked_rows(outcomes, auctions, prior):
        lines = auctions.offsets[rows.auctions, np.newaxis] + np.arange(rows.bids.shape[1])
        favourite[lines], uniform[lines] = best, mean
    return ShortlistOutcomes(offsets=auctions.offsets, favourite=favourite, uniform=uniform)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Worth:
    """What it brings to show a candidate: a sure part and a part for each click."""

    sure: FloatArray
    """[rows, candidates, 3], clicks, payments and value of an impression as such."""
    of_click: FloatArray
    """[rows, candidates, 3], those of a click."""
    mean: FloatArray
    """[rows, candidates, 3], expected by the server's probability of a click."""

    @classmethod
    def of_rows(cls, rows: RankedRows, prices: AdPrices) -> "Worth":
        """Worth of all candidates of some auctions."""
        amounts = prices.amounts[rows.places]
        zeros = np.zeros_like(amounts)
        is_click = prices.paid_event is PaidEvent.CLICK
        sure = np.stack([zeros, zeros if is_click else amounts, zeros], axis=2)
        of_click = np.stack([zeros + 1, amounts if is_click else zeros, rows.bids], axis=2)
        mean = sure + rows.click_probs[:, :, np.newaxis] * of_click
        return cls(sure=sure, of_click=of_click, mean=mean)

    def take(self, numbers: IntArray) -> "Worth":
        """Worth of some of the rows."""
        return Worth(
            sure=self.sure[numbers], of_click=self.of_click[numbers], mean=self.mean[numbers]
        )


def _uniform(worth: Worth) -> FloatArray:
    num_finalists = np.arange(1, worth.mean.shape[1] + 1)[:, np.newaxis]
    return np.asarray(np.cumsum(worth.mean, axis=1) / num_finalists)


def _favourite(rows: RankedRows, worth: Worth, prior: LogitNormalPrior) -> FloatArray:
    """[rows, candidates, 3], for every k."""
    outcomes = np.empty_like(worth.mean)
    for numbers, nodes in score_nodes(rows, prior):
        outcomes[numbers] = _favourite_at_nodes(nodes, worth.take(numbers))
    return outcomes


def _favourite_at_nodes(nodes: ScoreNodes, worth: Worth) -> FloatArray:
    outcomes = np.empty_like(worth.mean)
    outcomes[:, 0] = worth.mean[:, 0]
    below, density = nodes.cdf_and_density(0)
    # By node: probability that all so far are below, and density times worth of the favourite.
    all_below = below
    at_node = [density * _worth_at(nodes, worth, 0, kind) for kind in (_CLICKS, _PAYMENTS)]
    for rank in range(1, outcomes.shape[1]):
        below, density = nodes.cdf_and_density(rank)
        density = density * all_below
        above = 1 - below
        changes = outcomes[:, rank]
        changes[:, _VALUES] = nodes.integral(all_below * above * nodes.scores)
        for kind in (_CLICKS, _PAYMENTS):
            brought = density * _worth_at(nodes, worth, rank, kind)
            changes[:, kind] = nodes.integral(brought - at_node[kind] * above)
            at_node[kind] = at_node[kind] * below + brought
        all_below = all_below * below
    return np.cumsum(outcomes, axis=1)


def _worth_at(nodes: ScoreNodes, worth: Worth, rank: int, kind: int) -> FloatArray:
    of_click = worth.of_click[:, rank, kind]
    return np.asarray(worth.sure[:, rank, kind] + nodes.click_probs(rank) * of_click)


def _exponential(epsilon: float) -> float:
    return math.inf if epsilon > 700 else math.exp(epsilon)
