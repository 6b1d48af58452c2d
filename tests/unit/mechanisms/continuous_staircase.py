"""The best staircase noise on real numbers (Geng and Viswanath 2016), to compare grids with."""

import math

from tulle.mechanisms.staircase_noise import best_inner_share


def continuous_variance(epsilon: float, sensitivity: float) -> float:
    """Variance of the law of least variance."""
    share, b, left = best_inner_share(epsilon), math.exp(-epsilon), -math.expm1(-epsilon)
    sums = (b / left, b**2 / left**2, b**2 * (1 + b) / left**3)
    # The integral of x^2 over the level that starts at m + share, for m >= 0.
    outer = sums[2] + (2 * share + 1) * sums[1] + (share**2 + share + 1 / 3) * sums[0]
    return sensitivity**2 * (share**3 / 3 + outer) / (share + sums[0])
