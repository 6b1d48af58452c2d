"""The exact epsilon of a noisy maximum when every score may be anywhere in a public interval.

More score makes a candidate likelier and its rivals less likely, whatever the law of the noise:
with the same draws it stays the largest. So the chance of i is highest with i at the top and all
others at the bottom of their intervals, lowest the other way round, and epsilon is the largest
log ratio of these two over i. The usual rate, epsilon over twice the width, is only a bound.
"""

import functools
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import FloatArray
from tulle.select.baselines.noisy_max_probs import NoiseKind, first_candidate_probs

_NUMBERS_PER_CHUNK = 1 << 20
# Chances beyond are no normal floats, and their ratio is not to be trusted.
_MOST_DISTANCE = 600.0


def equal_box_epsilon(noise: NoiseKind, num_candidates: int, spread: float) -> float:
    """Exact epsilon when all scores share one interval.

    Args:
      noise: The law of the noise.
      num_candidates: How many compete.
      spread: Length of the interval in scales of the noise.
    """
    if num_candidates == 1 or spread == 0:
        return 0.0
    others = num_candidates - 1
    if noise is NoiseKind.GUMBEL:
        # Chances of 1 / (1 + (n - 1) e^-t) and 1 / (1 + (n - 1) e^t).
        return math.log1p(others * math.exp(spread)) - math.log1p(others * math.exp(-spread))
    if noise is NoiseKind.EXPONENTIAL:
        # 2 t + log(1 - (1 - e^-t)^n), without cancellation.
        missed = num_candidates * math.log1p(-math.exp(-spread))
        return 2 * spread + math.log(-math.expm1(missed))
    corners = np.array([[1.0] + [0.0] * others, [0.0] + [1.0] * others])
    best, worst = first_candidate_probs(corners, spread, noise).tolist()
    return math.log(best / worst)


def box_epsilons(
    noise: NoiseKind, lows: FloatArray, highs: FloatArray, rates: FloatArray
) -> FloatArray:
    """[rows], exact epsilon when each score is free in its own interval.

    Args:
      noise: The law of the noise.
      lows: [rows, candidates], least score of each.
      highs: [rows, candidates], largest score of each.
      rates: [rows], one over the scale of the noise.

    Raises:
      ConfigError: A candidate is so far behind that its chance is below e^-600.
    """
    num_rows, num_candidates = lows.shape
    if num_candidates == 1:
        return np.zeros(num_rows)
    if np.any(rates * (highs.max(axis=1) - lows.min(axis=1)) > _MOST_DISTANCE):
        raise ConfigError(
            f"scores may be more than {_MOST_DISTANCE:g} scales of the noise apart, where no "
            "ratio of chances can be computed; leave out the candidates that are far behind."
        )
    epsilons = np.empty(num_rows)
    step = max(_NUMBERS_PER_CHUNK // num_candidates**2, 1)
    for start in range(0, num_rows, step):
        rows = slice(start, start + step)
        corner_rates = np.repeat(rates[rows], num_candidates)
        best = first_candidate_probs(_corners(highs[rows], lows[rows]), corner_rates, noise)
        worst = first_candidate_probs(_corners(lows[rows], highs[rows]), corner_rates, noise)
        epsilons[rows] = np.log(best / worst).reshape(-1, num_candidates).max(axis=1)
    return epsilons


def _corners(own: FloatArray, others: FloatArray) -> FloatArray:
    """[rows * candidates, candidates]: each candidate first, at its own end, then its rivals."""
    num_rows, num_candidates = own.shape
    rivals = others[:, _rivals(num_candidates)]
    corners = np.concatenate([own[:, :, np.newaxis], rivals], axis=2)
    return corners.reshape(num_rows * num_candidates, num_candidates)


@functools.cache
def _rivals(num_candidates: int) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """[candidates, candidates - 1], the numbers of all others."""
    numbers = np.arange(num_candidates)
    return np.array([np.delete(numbers, i) for i in numbers])
