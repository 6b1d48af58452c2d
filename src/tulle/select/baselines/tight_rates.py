"""The largest rate of noise whose exact epsilon is within the one asked for.

A rate is taken only after its exact epsilon was computed and found small enough; the search
starts from the usual rate, which is always safe. So nothing relies on epsilon rising with the
rate, and what the search leaves is utility, never privacy.
"""

import functools

import numpy as np

from tulle.select.auctions import FloatArray
from tulle.select.baselines.noisy_max_probs import NoiseKind
from tulle.select.baselines.tight_epsilon import box_epsilons, equal_box_epsilon

# Rates are solved for an epsilon that is less by this share: far more than chances round.
_SAFETY = 1e-9
LEAST_WIDTH = 1e-100
"""Where no score can change by more, the rate is 0 and all are equally likely, which is safe."""
_MAX_STEPS = 60


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

    The chance of i depends on distances to i, and no distance changes by more.
    """
    widths = np.sort(highs - lows, axis=1)
    changes = widths[:, -2:].sum(axis=1)
    rates = np.zeros(len(changes))
    np.divide(epsilon, changes, out=rates, where=changes > LEAST_WIDTH)
    return rates


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
    return safe
