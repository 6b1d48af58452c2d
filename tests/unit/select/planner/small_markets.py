"""Ragged auctions, and laws of device scores by another route: an integral over private parts."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, special

from tulle.select.auctions import Auctions
from tulle.select.planner.click_prior import LogitNormalPrior

Values = NDArray[np.float64]


def ragged_auctions(
    num_auctions: int,
    *,
    seed: int,
    sizes: tuple[int, int] = (1, 8),
    mean_logit: float = -3.0,
    public_stddev: float = 0.7,
    private_stddev: float = 0.6,
) -> Auctions:
    """Auctions of a calibrated server, with the stated range of sizes."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(sizes[0], sizes[1] + 1, num_auctions)
    total = int(counts.sum())
    logits = mean_logit + public_stddev * rng.standard_normal(total)
    prior = LogitNormalPrior(private_stddev=private_stddev)
    return Auctions(
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        ads=np.concatenate([np.arange(count) for count in counts]),
        bids=np.exp(0.8 * rng.standard_normal(total)),
        server_click_probs=prior.mean_click_probs(logits),
    )


def repeated_auction(bids: Sequence[float], probs: Sequence[float], times: int) -> Auctions:
    """The same auction many times, to draw many devices for."""
    return Auctions(
        offsets=np.arange(times + 1) * len(bids),
        ads=np.tile(np.arange(len(bids)), times),
        bids=np.tile(np.asarray(bids, float), times),
        server_click_probs=np.tile(np.asarray(probs, float), times),
    )


def drawn_click_probs(auctions: Auctions, private_stddev: float, seed: int) -> Values:
    """What one device finds for each auction."""
    prior = LogitNormalPrior(private_stddev=private_stddev)
    logits = prior.public_logits(auctions.server_click_probs)
    private = np.random.default_rng(seed).standard_normal(auctions.num_candidates)
    return 1 / (1 + np.exp(-(logits + private_stddev * private)))


def exact_expected_max(bids: Values, logits: Values, private_stddev: float) -> float:
    """E max of independent scores, by adaptive integration of the distribution function."""

    def above(score: float) -> float:
        return 1 - float(np.prod(_cdf(score, bids, logits, private_stddev)))

    edges = sorted({0.0, *_quantiles(bids, logits, private_stddev), float(bids.max())})
    return sum(
        integrate.quad(above, left, right, epsabs=1e-10, epsrel=1e-8)[0]
        for left, right in itertools.pairwise(edges)
    )


def exact_top(
    bids: Values, logits: Values, private_stddev: float, num_top: int = 1
) -> tuple[Values, Values]:
    """Probabilities to be among the best and clicks there, by integration over the own private
    part."""
    results = np.array(
        [
            [
                integrate.quad(
                    _at_own_part,
                    -9,
                    9,
                    args=(rank, power, num_top, bids, logits, private_stddev),
                    points=(-3, 0, 3),
                    epsabs=1e-10,
                    limit=200,
                )[0]
                for rank in range(len(bids))
            ]
            for power in (0, 1)
        ]
    )
    return results[0], results[1]


def _at_own_part(
    part: float,
    rank: int,
    power: int,
    num_top: int,
    bids: Values,
    logits: Values,
    private_stddev: float,
) -> float:
    prob = 1 / (1 + np.exp(-(logits[rank] + private_stddev * part)))
    below = np.delete(_cdf(bids[rank] * prob, bids, logits, private_stddev), rank)
    few_above = 0.0
    for num_above in range(num_top):
        for above in itertools.combinations(range(len(below)), num_above):
            is_above = np.isin(np.arange(len(below)), above)
            few_above += float(np.prod(np.where(is_above, 1 - below, below)))
    return float(np.exp(-(part**2) / 2) / np.sqrt(2 * np.pi) * prob**power * few_above)


def _cdf(score: float, bids: Values, logits: Values, private_stddev: float) -> Values:
    probs = np.clip(score / bids, 1e-300, 1 - 1e-16)
    return np.asarray(special.ndtr((np.log(probs / (1 - probs)) - logits) / private_stddev))


def _quantiles(bids: Values, logits: Values, private_stddev: float) -> list[float]:
    return [
        float((bids / (1 + np.exp(-(logits + private_stddev * part)))).max())
        for part in (-3.0, -1.0, 1.0, 3.0, 6.0)
    ]
