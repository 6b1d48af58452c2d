"""Mechanisms whose one public setting is chosen on a sample: gamma, a width, a number of ads.

A setting that is tuned on private data is only public if those data are nobody's who is served
later: a panel that agreed, an earlier release, or a model. Choose on one sample and judge on
another.
"""

from collections.abc import Sequence

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions
from tulle.select.baselines.noisy_max import NoiseKind, NoisyMax
from tulle.select.baselines.score_bounds import ClippedScores
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import Cutoff
from tulle.select.market.market_sample import MarketSample, best_of


def tuned_cutoff(
    sample: MarketSample, *, epsilon: float, gammas: Sequence[float], objective: str = "welfare"
) -> FloorMechanism:
    """Randomized response with the gamma that is best on the sample.

    Privacy:
      Not a private release: the gamma depends on the sample's device predictions.
    """
    options = [FloorMechanism(epsilon=epsilon, shortlist=Cutoff(gamma=gamma)) for gamma in gammas]
    return best_of(sample, options, objective=objective)


def tuned_clipping(
    sample: MarketSample,
    *,
    epsilon: float,
    widths: Sequence[float],
    noise: NoiseKind = NoiseKind.EXPONENTIAL,
    objective: str = "welfare",
) -> NoisyMax:
    """Noisy max over clipped scores with the width that is best on the sample.

    Privacy:
      Not a private release: the width depends on the sample's device predictions.
    """
    options = [
        NoisyMax(epsilon=epsilon, noise=noise, score_bound=ClippedScores(width=width))
        for width in widths
    ]
    return best_of(sample, options, objective=objective)


def tuned_boost(
    sample: MarketSample, *, epsilon: float, nums_boosted: Sequence[int], objective: str = "welfare"
) -> FloorMechanism:
    """Top-d randomized response with the d that is best on the sample.

    Privacy:
      Not a private release: the number depends on the sample's device predictions.
    """
    options = [FloorMechanism(epsilon=epsilon, num_boosted=number) for number in nums_boosted]
    return best_of(sample, options, objective=objective)


def typical_score(auctions: Auctions) -> float:
    """Mean of the best server scores: public, and the unit in which widths are compared."""
    best = np.maximum.reduceat(auctions.server_scores, auctions.offsets[:-1])
    typical = float(best.mean())
    if not typical > 0:
        raise ConfigError("all server scores are 0; give bids and predictions that are not.")
    return typical
