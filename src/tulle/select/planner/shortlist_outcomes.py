"""Clicks, payments and value of every shortlist at once, in expectation over devices.

Let B be the device's favourite among the k best by server score. What is expected of B (a click,
a price, a value) changes from k - 1 to k by what candidate k brings where it is the new
favourite, less what the former favourite would have brought there. Both are one-dimensional
integrals, and one pass over the candidates gives them for every k. Randomized response with any
epsilon and any shortlist is a mixture of B and of a uniform choice.
"""

import dataclasses
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.billing.metrics import MarketMetrics
from tulle.select.billing.prices import AdPrices, PaidEvent
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.score_nodes import RankedRows, ScoreNodes, map_ranked_rows, score_nodes

_CLICKS, _PAYMENTS, _VALUES = range(3)


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
