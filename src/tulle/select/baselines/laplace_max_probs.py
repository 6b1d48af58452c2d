"""Exact chances of being the largest score once Laplace noise is added to every score.

The chance of i is the integral of the density of its noisy score times the other
distributions. Between two scores that is smooth and integrated by Gauss-Legendre rules on short
panels. Above the best score, v = exp(best - y) turns it into a polynomial; below the least it is
one exponential. Both tails are exact.
"""

import math

import numpy as np

from tulle.select.auctions import FloatArray, IntArray
from tulle.select.baselines.unit_nodes import unit_nodes

# On a panel of length 8 / n the logarithm of the integrand changes by at most 8: 16 nodes leave
# a relative error far below the rounding of float64.
_NODES_PER_PANEL = 16
_CHANGE_PER_PANEL = 8.0
# Beyond, a density is 0 as a float, and so is nearly the chance.
_MOST_GAP = 690.0


def laplace_max_probs(gaps: FloatArray) -> FloatArray:
    """[candidates, rows], the chance of each candidate of each row.

    Args:
      gaps: [candidates, rows], how far below the best of its row each score is, in scales of
        the noise. One beyond 690 counts as 690.
    """
    if len(gaps) == 1:
        return np.ones_like(gaps)
    near = np.minimum(gaps, _MOST_GAP)
    return _above_all(near) + _below_all(near) + _between(near)


def _above_all(gaps: FloatArray) -> FloatArray:
    """With v = exp(best - y): half the odds times the integral of products of 1 - odds v / 2."""
    half_odds = np.exp(-gaps) / 2
    probs = np.zeros_like(gaps)
    for node, weight in zip(*unit_nodes((len(gaps) + 1) // 2), strict=True):
        factors = 1 - half_odds * node
        probs += weight * factors.prod(axis=0) / factors
    return np.asarray(probs * half_odds)


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
