"""How much noise a noisy maximum needs: its exact epsilon, and the largest rate that keeps one.

More score makes a candidate likelier and its rivals less likely, whatever the law of the noise:
with the same draws it stays the largest. So the probability of i is highest with i at the top and
all others at the bottom of their intervals, lowest the other way round, and epsilon is the largest
log ratio of these two over i. The usual rate, epsilon over twice the width, is only a bound.

A larger rate is taken only after its exact epsilon was computed and found small enough; the search
starts from the usual rate, which is always safe. So nothing relies on epsilon rising with the
rate, and what the search leaves is utility, never privacy.
"""

import functools
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import FloatArray
from tulle.select.mechanisms.noisy_max_probs import NoiseKind, first_candidate_probs

_NUMBERS_PER_CHUNK = 1 << 20
"""Numbers that are computed at once: some megabytes."""
# Probabilities beyond are no normal floats, and their ratio is not to be trusted.
_MOST_DISTANCE = 600.0
# Rates are solved for an epsilon that is less by this share: far more than probabilities round.
_SAFETY = 1e-9
LEAST_WIDTH = 1e-100
"""Largest change of scores that counts as none: the rate is then 0 and all are equally likely,
which is safe."""
_MAX_STEPS = 60
"""Most steps of a search; where it does not end by then, the last safe rate is kept."""


@functools.lru_cache(maxsize=4096)
def equal_box_spread(noise: NoiseKind, num_candidates: int, epsilon: float) -> float:
    """Largest safe rate, times the width of the interval that all scores share.

    Args:
      noise: The law of the noise.
      num_candidates: How many compete, at least 2.
      epsilon: Largest log-likelihood ratio of a choice.
    """
    target = epsilon * (1 - _SAFETY)
    low, high = target / 2, target
    while equal_box_epsilon(noise, num_candidates, high) <= target:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if equal_box_epsilon(noise, num_candidates, middle) <= target:
            low = middle
        else:
            high = middle
    return low


def box_rates(
    noise: NoiseKind,
    lows: FloatArray,
    highs: FloatArray,
    epsilon: float,
    most_rates: FloatArray | float = np.inf,
) -> FloatArray:
    """[rows], the largest safe rate found for scores that are free in their own intervals.

    At most four times the usual rate; two candidates with Gumbel noise get twice of it.

    Args:
      noise: The law of the noise.
      lows: [rows, candidates], least score of each.
      highs: [rows, candidates], largest score of each.
      epsilon: Largest log-likelihood ratio of a choice.
      most_rates: Rates not to exceed.
    """
    target = epsilon * (1 - _SAFETY)
    rates = np.minimum(usual_rates(lows, highs, target), most_rates)
    highest = np.minimum(4 * rates, most_rates)
    open_rows = np.flatnonzero(rates < highest)
    if lows.shape[1] > 1 and open_rows.size:
        rates[open_rows] = _searched(
            noise, lows[open_rows], highs[open_rows], target, (rates[open_rows], highest[open_rows])
        )
    return rates


def usual_rates(lows: FloatArray, highs: FloatArray, epsilon: float) -> FloatArray:
    """[rows], epsilon over the two largest changes together: always safe.

    The probability of i depends on distances to i, and no distance changes by more.

    Args:
      lows: [rows, candidates], least score of each.
      highs: [rows, candidates], largest score of each.
      epsilon: Largest log-likelihood ratio of a choice.
    """
    widths = np.sort(highs - lows, axis=1)
    changes = widths[:, -2:].sum(axis=1)
    rates = np.zeros(len(changes))
    np.divide(epsilon, changes, out=rates, where=changes > LEAST_WIDTH)
    return rates


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
        # Probabilities of 1 / (1 + (n - 1) e^-t) and 1 / (1 + (n - 1) e^t).
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
      ConfigError: A candidate is so far behind that its probability is below e^-600.
    """
    num_rows, num_candidates = lows.shape
    if num_candidates == 1:
        return np.zeros(num_rows)
    if np.any(rates * (highs.max(axis=1) - lows.min(axis=1)) > _MOST_DISTANCE):
        raise ConfigError(
            f"scores may be more than {_MOST_DISTANCE:g} scales of the noise apart, where no "
            "ratio of probabilities can be computed; leave out the candidates that are far behind."
        )
    epsilons = np.empty(num_rows)
    step = max(_NUMBERS_PER_CHUNK // num_candidates**2, 1)
    for start in range(0, num_rows, step):
        rows = slice(start, start + step)
        corner_rates = np.repeat(rates[rows], num_candidates)
        best = first_candidate_probs(_corners(highs[rows], lows[rows]), corner_rates, noise)
        worst = first_candidate_probs(_corners(lows[rows], highs[rows]), corner_rates, noise)
        # Corners suffice: a probability rises with its own score and falls with those of others.
        epsilons[rows] = np.log(best / worst).reshape(-1, num_candidates).max(axis=1)
    return epsilons


def _searched(
    noise: NoiseKind,
    lows: FloatArray,
    highs: FloatArray,
    target: float,
    bracket: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Regula falsi with the Illinois rule, all rows at once."""
    safe, unsafe = bracket[0].copy(), bracket[1].copy()
    # The first bound is safe by proof: a computed excess there is rounding.
    spare = np.maximum(target - box_epsilons(noise, lows, highs, safe), 0.0)
    excess = box_epsilons(noise, lows, highs, unsafe) - target
    safe = np.where(excess <= 0, unsafe, safe)
    rows = np.flatnonzero((excess > 0) & (spare > 0))
    last_side = np.zeros(len(safe), np.int64)
    for _ in range(_MAX_STEPS):
        if not rows.size:
            break
        share = spare[rows] / (spare[rows] + excess[rows])
        guess = safe[rows] + share * (unsafe[rows] - safe[rows])
        error = box_epsilons(noise, lows[rows], highs[rows], guess) - target
        is_safe = error <= 0
        side = np.where(is_safe, 1, -1)
        is_stuck = side == last_side[rows]
        last_side[rows] = side
        won, lost = rows[is_safe], rows[~is_safe]
        safe[won], spare[won] = guess[is_safe], -error[is_safe]
        unsafe[lost], excess[lost] = guess[~is_safe], error[~is_safe]
        excess[rows[is_safe & is_stuck]] /= 2
        spare[rows[~is_safe & is_stuck]] /= 2
        is_close = is_safe & (-error <= _SAFETY * target)
        rows = rows[~is_close & (unsafe[rows] - safe[rows] > _SAFETY * safe[rows])]
    # Whenever the steps end, this side was found to be within epsilon.
    return safe


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
