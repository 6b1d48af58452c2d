"""How often each candidate wins by noisy score, and its clicks, in expectation over devices.

Clipped scores and their noise are independent across candidates, so a candidate wins with the
integral of its own noisy score's law times the probabilities that the others are below. The law of
a noisy score is a mixture over a few private parts: those that are clipped away count as one.
"""

import dataclasses
import itertools
import math

import numpy as np

from tulle.select.auctions import FloatArray
from tulle.select.mechanisms.noisy_max_probs import NoiseKind, unit_nodes
from tulle.select.planner.click_prior import LogitNormalPrior, RankedRows, logistic

_NUM_PARTS = 16
"""Private parts that stand for those inside the box of a score."""
_NUM_NODES = 128
"""Values at which the laws of noisy scores are taken; the error is about 1e-3."""
_FARTHEST_DEVIATE = 6.0
"""Private parts beyond it, in standard deviations, are less than 1e-8 of all."""
_LARGEST_EXPONENT = 50.0
"""Exponent beyond which exp(-exp(x)) is 0 as a float."""
_ABOVE_NOISE = 12.0
"""Noise above it, at rate 1, is less than 1e-5 of all."""
_BELOW_NOISE = {NoiseKind.GUMBEL: 4.0, NoiseKind.EXPONENTIAL: 0.0, NoiseKind.LAPLACE: 10.0}
"""Noise below the negative of it, at rate 1, is none (exponential), 2e-24 (Gumbel) or 2e-5
(Laplace) of all."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScoreMixture:
    """What a candidate's bounded score may be: a few values with their probabilities."""

    scores: FloatArray
    """[parts, rows, candidates], times the rate of the noise."""
    chances: FloatArray
    """[parts, rows, candidates], 1 together."""
    clicks: FloatArray
    """[parts, rows, candidates], mean click probability there times probability to be there."""

    @classmethod
    def of_box(
        cls,
        rows: RankedRows,
        prior: LogitNormalPrior,
        box: tuple[FloatArray, FloatArray],
        rates: FloatArray,
    ) -> "ScoreMixture":
        """Scores clipped to a box, with noise of a rate for each row.

        Args:
          rows: Auctions of equal size.
          prior: What devices may find.
          box: [rows, candidates] each, least and largest score.
          rates: [rows], one over the scale of the noise.
        """
        ends = [_deviates(rows, prior, end) for end in box]
        farthest = np.full_like(rows.bids, _FARTHEST_DEVIATE)
        edges = [-farthest, *ends, farthest]
        below, inside, above = (
            _panel(rows, prior, left, right) for left, right in itertools.pairwise(edges)
        )
        chances = np.concatenate([_sum(below[0]), inside[0], _sum(above[0])])
        clicks = np.concatenate([_sum(below[1]), inside[1], _sum(above[1])])
        probs = logistic(rows.logits + prior.private_stddev * inside[2])
        scores = np.concatenate([box[0][None], np.clip(rows.bids * probs, *box), box[1][None]])
        totals = clicks.sum(axis=0)
        return cls(
            scores=scores * rates[:, np.newaxis],
            chances=chances / chances.sum(axis=0),
            clicks=clicks * (rows.click_probs / np.where(totals > 0, totals, 1.0)),
        )


def noisy_winners(mixture: ScoreMixture, noise: NoiseKind) -> tuple[FloatArray, FloatArray]:
    """[rows, candidates] each: the probability to win, and clicks, to about 1e-3.

    Args:
      mixture: Scores times the rate of their noise.
      noise: Law of the noise, at rate 1.
    """
    num_candidates = mixture.scores.shape[2]
    lowest = mixture.scores.min(axis=0).max(axis=1) - _BELOW_NOISE[noise]
    highest = mixture.scores.max(axis=(0, 2)) + _ABOVE_NOISE + math.log(num_candidates)
    fractions = np.linspace(0.0, 1.0, _NUM_NODES)[:, np.newaxis]
    values = lowest + fractions * (highest - lowest)
    below, clicks_below = _cdfs(mixture, noise, values)
    # By part: an integral in the law itself, which may jump in its density but not in value.
    ranks = range(num_candidates)
    left, right = [np.ones_like(values)], [np.ones_like(values)]
    for rank in ranks[:-1]:
        left.append(left[-1] * below[rank])
        right.append(right[-1] * below[num_candidates - 1 - rank])
    wins = np.empty((2, *mixture.scores.shape[1:]))
    for rank in ranks:
        others = left[rank] * right[num_candidates - 1 - rank]
        between = (others[1:] + others[:-1]) / 2
        for kind, law in enumerate((below[rank], clicks_below[rank])):
            # Below the first value somebody else is above almost surely.
            wins[kind, :, rank] = (np.diff(law, axis=0) * between).sum(axis=0)
    total = wins[0].sum(axis=1, keepdims=True)
    return wins[0] / total, np.minimum(wins[1] / total, mixture.clicks.sum(axis=0))


def _cdfs(
    mixture: ScoreMixture, noise: NoiseKind, values: FloatArray
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Laws of each candidate [nodes, rows]: probability to be below, and clicks there."""
    below, clicks_below = [], []
    for rank in range(mixture.scores.shape[2]):
        law, clicks = np.zeros_like(values), np.zeros_like(values)
        for part in range(len(mixture.scores)):
            cdf = _noise_cdf(values - mixture.scores[part, :, rank], noise)
            law += mixture.chances[part, :, rank] * cdf
            clicks += mixture.clicks[part, :, rank] * cdf
        below.append(law)
        clicks_below.append(clicks)
    return below, clicks_below


def _noise_cdf(values: FloatArray, noise: NoiseKind) -> FloatArray:
    if noise is NoiseKind.GUMBEL:
        return np.asarray(np.exp(-np.exp(-np.maximum(values, -_LARGEST_EXPONENT))))
    if noise is NoiseKind.EXPONENTIAL:
        return np.asarray(1 - np.exp(-np.maximum(values, 0.0)))
    tails = 0.5 * np.exp(-np.abs(values))
    return np.where(values < 0, tails, 1 - tails)


def _deviates(rows: RankedRows, prior: LogitNormalPrior, scores: FloatArray) -> FloatArray:
    """[rows, candidates], the private part that leads to a score, within the farthest."""
    limit = _FARTHEST_DEVIATE
    with np.errstate(divide="ignore", invalid="ignore"):
        deviates = prior.deviates(np.maximum(scores, 0.0), rows.bids_above_zero, rows.logits)
    # A candidate that is never clicked has a score of 0 whatever its private part is.
    return np.clip(np.nan_to_num(deviates, nan=-limit), -limit, limit)


def _panel(
    rows: RankedRows, prior: LogitNormalPrior, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """[parts, rows, candidates] each: probabilities, clicks and parts between two private parts."""
    nodes, weights = (array[:, np.newaxis, np.newaxis] for array in unit_nodes(_NUM_PARTS))
    widths = right - left
    deviates = left + widths * nodes
    chances = weights * widths * np.exp(-(deviates**2) / 2) / math.sqrt(2 * math.pi)
    probs = logistic(rows.logits + prior.private_stddev * deviates)
    return chances, chances * probs, deviates


def _sum(values: FloatArray) -> FloatArray:
    return np.asarray(values.sum(axis=0, keepdims=True))
