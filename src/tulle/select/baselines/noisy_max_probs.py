"""Exact chances of being the largest score once noise is added to every score.

With Gumbel noise they are a softmax. With exponential noise the rule is permute-and-flip: for
q_j = exp(-rate * (best - s_j)) the chance of i is q_i times the integral over u in [0, 1] of
the product of 1 - q_j u over the others. That is a polynomial of degree n - 1, so a
Gauss-Legendre rule with ceil(n / 2) nodes is exact, and all of its terms are positive.
"""

import enum
import functools

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import FloatArray
from tulle.select.baselines.laplace_max_probs import laplace_max_probs
from tulle.select.baselines.unit_nodes import unit_nodes

# Few enough numbers for the cache, enough that a call of numpy costs little.
_NUMBERS_PER_CHUNK = 1 << 14


class NoiseKind(enum.Enum):
    """The law of the noise. Its scale is one over the rate."""

    GUMBEL = "gumbel"
    """The exponential mechanism."""
    EXPONENTIAL = "exponential"
    """Permute-and-flip: at the same rate never worse than Gumbel noise."""
    LAPLACE = "laplace"


def noisy_max_probs(scores: FloatArray, rates: FloatArray | float, noise: NoiseKind) -> FloatArray:
    """[rows, candidates], the chance that each has the largest score plus noise of its row.

    Args:
      scores: [rows, candidates], finite.
      rates: One over the scale of the noise, >= 0; one for all rows or [rows].
      noise: The law of the noise.

    Privacy:
      Releases nothing: the chances are as sensitive as the scores. Their relative error is
      below 1e-11 for rates times distances up to 100 and 1,000 candidates.
    """
    num_rows, num_candidates = _checked_shape(scores)
    row_rates = np.broadcast_to(np.asarray(rates, np.float64), (num_rows,))
    probs = np.empty((num_rows, num_candidates))
    step = max(_NUMBERS_PER_CHUNK // num_candidates, 1)
    for start in range(0, num_rows, step):
        rows = slice(start, start + step)
        probs[rows] = _PROBS[noise](_gaps(scores[rows], row_rates[rows])).T
    return probs


def first_candidate_probs(
    scores: FloatArray, rates: FloatArray | float, noise: NoiseKind
) -> FloatArray:
    """[rows], the chance of the first candidate of each row; quicker than that of all.

    Args:
      scores: [rows, candidates], finite.
      rates: As in `noisy_max_probs`.
      noise: The law of the noise.
    """
    num_rows, num_candidates = _checked_shape(scores)
    row_rates = np.broadcast_to(np.asarray(rates, np.float64), (num_rows,))
    probs = np.empty(num_rows)
    step = max(_NUMBERS_PER_CHUNK // num_candidates, 1)
    for start in range(0, num_rows, step):
        rows = slice(start, start + step)
        gaps = _gaps(scores[rows], row_rates[rows])
        if noise is NoiseKind.EXPONENTIAL:
            probs[rows] = _first_flip_probs(gaps)
        else:
            probs[rows] = _PROBS[noise](gaps)[0]
    return probs


def _checked_shape(scores: FloatArray) -> tuple[int, int]:
    if scores.dtype != np.float64 or scores.ndim != 2 or scores.shape[1] < 1:
        raise ConfigError(
            f"scores have the type {scores.dtype} and {scores.ndim} dimensions; they must be "
            "float64 in [rows, candidates] with a candidate at least: smaller floats lose chances."
        )
    return scores.shape[0], scores.shape[1]


def _gaps(scores: FloatArray, rates: FloatArray) -> FloatArray:
    """[candidates, rows], how far below the best each is, in scales of the noise.

    Candidates come first, so that every step runs along many rows.
    """
    best = scores.max(axis=1)
    return np.ascontiguousarray((best[:, np.newaxis] - scores).T) * rates


def _gumbel_probs(gaps: FloatArray) -> FloatArray:
    probs = np.exp(-gaps)
    probs /= probs.sum(axis=0)
    return probs


def _flip_probs(gaps: FloatArray) -> FloatArray:
    """Permute-and-flip, all candidates: the full product at each node over its own factor."""
    odds = np.exp(-gaps)
    probs = np.zeros_like(odds)
    factors = np.empty_like(odds)
    products = np.empty(odds.shape[1])
    for node, weight in _pairs(len(odds)):
        np.multiply(odds, -node, out=factors)
        factors += 1
        np.multiply.reduce(factors, axis=0, out=products)
        products *= weight
        # Nodes are below 1 and odds at most 1: no factor is 0.
        np.divide(products, factors, out=factors)
        probs += factors
    probs *= odds
    return probs


def _first_flip_probs(gaps: FloatArray) -> FloatArray:
    odds = np.exp(-gaps)
    others = odds[1:]
    probs = np.zeros(odds.shape[1])
    factors = np.empty_like(others)
    for node, weight in _pairs(len(odds)):
        np.multiply(others, -node, out=factors)
        factors += 1
        probs += weight * np.multiply.reduce(factors, axis=0)
    return np.asarray(probs * odds[0])


@functools.cache
def _pairs(num_candidates: int) -> tuple[tuple[float, float], ...]:
    nodes, weights = unit_nodes((num_candidates + 1) // 2)
    return tuple(zip(nodes.tolist(), weights.tolist(), strict=True))


_PROBS = {
    NoiseKind.GUMBEL: _gumbel_probs,
    NoiseKind.EXPONENTIAL: _flip_probs,
    NoiseKind.LAPLACE: laplace_max_probs,
}
