"""Exact probabilities of being the largest score once noise is added to every score.

With Gumbel noise they are a softmax. With exponential noise the rule is permute-and-flip: for
q_j = exp(-rate * (best - s_j)) the probability of i is q_i times the integral over u in [0, 1] of
the product of 1 - q_j u over the others. That is a polynomial of degree n - 1, so a Gauss-Legendre
rule with ceil(n / 2) nodes is exact, and all of its terms are positive.

With Laplace noise it is the integral of the density of the noisy score of i times the other
distributions. Between two scores that is smooth and integrated by Gauss-Legendre rules on short
panels. Above the best score, v = exp(best - y) turns it into a polynomial; below the least it is
one exponential. Both tails are exact.
"""

import enum
import functools
import math
from collections.abc import Callable

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import FloatArray, IntArray

# Few enough numbers for the cache, enough that a call of numpy costs little.
_NUMBERS_PER_CHUNK = 1 << 14
# On a panel of length 8 / n the logarithm of the integrand changes by at most 8: 16 nodes leave
# a relative error far below the rounding of float64.
_NODES_PER_PANEL = 16
_CHANGE_PER_PANEL = 8.0
# Beyond, a density is 0 as a float, and so is nearly the probability.
_MOST_GAP = 690.0
_NUM_STEPS = 5
"""Newton steps to a root: the error squares in each, and further ones change nothing."""


class NoiseKind(enum.Enum):
    """The law of the noise. Its scale is one over the rate."""

    GUMBEL = "gumbel"
    """The exponential mechanism."""
    EXPONENTIAL = "exponential"
    """Permute-and-flip: at the same rate never worse than Gumbel noise."""
    LAPLACE = "laplace"


def noisy_max_probs(scores: FloatArray, rates: FloatArray | float, noise: NoiseKind) -> FloatArray:
    """[rows, candidates], the probability that each has the largest score plus noise of its row.

    Args:
      scores: [rows, candidates], finite.
      rates: One over the scale of the noise, >= 0; one for all rows or [rows].
      noise: The law of the noise.

    Privacy:
      Releases nothing: the probabilities are as sensitive as the scores. Their relative error is
      below 1e-11 for rates times distances up to 100 and 1,000 candidates.
    """
    return _by_chunks(_PROBS[noise], scores, rates).T


def first_candidate_probs(
    scores: FloatArray, rates: FloatArray | float, noise: NoiseKind
) -> FloatArray:
    """[rows], the probability of the first candidate of each row; quicker than that of all.

    Args:
      scores: [rows, candidates], finite.
      rates: Rates of the noise, as in `noisy_max_probs`.
      noise: The law of the noise.
    """
    law = _PROBS[noise]
    if noise is NoiseKind.EXPONENTIAL:
        law = _first_flip_probs
    return np.asarray(_by_chunks(lambda gaps: law(gaps)[:1], scores, rates)[0])


@functools.cache
def unit_nodes(num_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [0, 1], exact for degree 2 num_nodes - 1.

    Roots are found as angles from the nearer end: a node close to it is then as precise as one
    in the middle, which rules from eigenvalues are not.
    """
    angles = np.pi * (4 * np.arange((num_nodes + 1) // 2) + 3) / (4 * num_nodes + 2)
    for _ in range(_NUM_STEPS):
        last, value = _legendre(num_nodes, angles)
        slopes = num_nodes * (last - np.cos(angles) * value)
        angles += value * np.sin(angles) / slopes
    last, _ = _legendre(num_nodes, angles)
    weights = (np.sin(angles) / (num_nodes * last)) ** 2
    mirrored = slice(0, num_nodes // 2)
    return (
        np.concatenate([np.sin(angles / 2) ** 2, np.cos(angles[mirrored] / 2) ** 2]),
        np.concatenate([weights, weights[mirrored]]),
    )


def _by_chunks(
    law: Callable[[FloatArray], FloatArray], scores: FloatArray, rates: FloatArray | float
) -> FloatArray:
    """[candidates, rows], what a law gives for the gaps of all rows."""
    if scores.dtype != np.float64 or scores.ndim != 2 or scores.shape[1] < 1:
        raise ConfigError(
            f"scores have the type {scores.dtype} and {scores.ndim} dimensions; they must be "
            "float64 in [rows, candidates] with a candidate at least: smaller floats lose digits."
        )
    row_rates = np.broadcast_to(np.asarray(rates, np.float64), (len(scores),))
    step = max(_NUMBERS_PER_CHUNK // scores.shape[1], 1)
    starts = range(0, max(len(scores), 1), step)
    chunks = [slice(start, start + step) for start in starts]
    parts = [law(_gaps(scores[rows], row_rates[rows])) for rows in chunks]
    return np.concatenate(parts, axis=1)


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
    """Permute-and-flip, all candidates."""
    return _none_above(np.exp(-gaps))


def _none_above(odds: FloatArray) -> FloatArray:
    """[candidates, rows], odds times the integral over u of the product of 1 - odds u of others."""
    probs = np.zeros_like(odds)
    factors = np.empty_like(odds)
    products = np.empty(odds.shape[1])
    for node, weight in _pairs(len(odds)):
        np.multiply(odds, -node, out=factors)
        factors += 1
        np.multiply.reduce(factors, axis=0, out=products)
        products *= weight
        # The full product over the own factor. Nodes are below 1 and odds at most 1: none is 0.
        np.divide(products, factors, out=factors)
        probs += factors
    probs *= odds
    return probs


def _first_flip_probs(gaps: FloatArray) -> FloatArray:
    """[1, rows], permute-and-flip of the first candidate, without a division for each other."""
    odds = np.exp(-gaps)
    others = odds[1:]
    probs = np.zeros(odds.shape[1])
    factors = np.empty_like(others)
    for node, weight in _pairs(len(odds)):
        np.multiply(others, -node, out=factors)
        factors += 1
        probs += weight * np.multiply.reduce(factors, axis=0)
    return np.asarray(probs * odds[0])[np.newaxis]


@functools.cache
def _pairs(num_candidates: int) -> tuple[tuple[float, float], ...]:
    nodes, weights = unit_nodes((num_candidates + 1) // 2)
    return tuple(zip(nodes.tolist(), weights.tolist(), strict=True))


def laplace_max_probs(gaps: FloatArray) -> FloatArray:
    """[candidates, rows], the probability of each candidate of each row.

    Args:
      gaps: [candidates, rows], how far below the best of its row each score is, in scales of
        the noise. One beyond 690 counts as 690.
    """
    if len(gaps) == 1:
        return np.ones_like(gaps)
    near = np.minimum(gaps, _MOST_GAP)
    # Wins above the best score: with v = exp(best - y), half the odds take the place of the odds.
    return _none_above(np.exp(-near) / 2) + _below_all(near) + _between(near)


def _below_all(gaps: FloatArray) -> FloatArray:
    """All noisy scores below the least score: every candidate is then as likely."""
    num_candidates = len(gaps)
    exponents = gaps.sum(axis=0) - num_candidates * gaps.max(axis=0)
    chance = np.exp(exponents - num_candidates * math.log(2)) / num_candidates
    return np.broadcast_to(chance, gaps.shape)


def _between(gaps: FloatArray) -> FloatArray:
    starts, lengths, rows, first_panels = _panels(gaps)
    below = gaps[:, rows]
    integrals = np.zeros_like(below)
    for node, weight in zip(*unit_nodes(_NODES_PER_PANEL), strict=True):
        depths = starts + node * lengths
        densities = np.exp(-np.abs(below - depths)) / 2
        shares = np.where(below >= depths, 1 - densities, densities)
        integrals += (weight * lengths * shares.prod(axis=0)) * (densities / shares)
    return np.add.reduceat(integrals, first_panels, axis=1)


def _panels(gaps: FloatArray) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Start, length and row of each panel between the scores, and the first panel of each row."""
    num_candidates, num_rows = gaps.shape
    edges = np.sort(gaps.T, axis=1)
    spans = np.diff(edges, axis=1)
    counts = np.ceil(spans * (num_candidates / _CHANGE_PER_PANEL)).astype(np.int64)
    # A row of equal scores keeps one panel of length 0.
    counts[:, 0] = np.maximum(counts[:, 0], 1)
    flat = counts.reshape(-1)
    ends = np.cumsum(flat)
    places = np.arange(ends[-1]) - np.repeat(ends - flat, flat)
    lengths = np.repeat(spans.reshape(-1) / np.maximum(flat, 1), flat)
    starts = np.repeat(edges[:, :-1].reshape(-1), flat) + places * lengths
    per_row = counts.sum(axis=1)
    return starts, lengths, np.repeat(np.arange(num_rows), per_row), np.cumsum(per_row) - per_row


def _legendre(degree: int, angles: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Legendre polynomials of one degree less and of this degree, at the cosines of angles.

    The three-term recurrence for differences, in which the distance from 1 is a factor.
    """
    distance = 2 * np.sin(angles / 2) ** 2
    last, change = np.ones_like(angles), -distance
    for k in range(2, degree + 1):
        value = last + change
        change = ((k - 1) * change - (2 * k - 1) * distance * value) / k
        last = value
    return last, last + change


_PROBS = {
    NoiseKind.GUMBEL: _gumbel_probs,
    NoiseKind.EXPONENTIAL: _flip_probs,
    NoiseKind.LAPLACE: laplace_max_probs,
}
