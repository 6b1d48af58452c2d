"""What a guarantee allows any attacker, whatever they know and compute; and what one reached.

An attacker who must tell two neighbouring data sets apart says "first" with probability p if it is
the first, and with probability f if it is the second. Under (epsilon, delta) both
p <= e^epsilon f + delta and 1 - f <= e^epsilon (1 - p) + delta hold (Wasserman and Zhou 2010).
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError

FloatArray = NDArray[np.float64]

NOT_PRIVATE = "not a private release: users are synthetic and noise has a seed"
"""What every result of an attack says of itself."""


def guess_ceiling(epsilon: float, delta: float = 0.0) -> float:
    """Largest probability to guess a fair bit of one unit from what was released.

    The unit's other bit value must be a neighbour under the guarantee. Knowing all other units
    does not help.

    Args:
      epsilon: Epsilon of the guarantee, at least 0; math.inf for no guarantee.
      delta: Delta of the guarantee, in [0, 1].
    """
    _check(epsilon, delta)
    # The corner p = 1 - f of the two conditions; e^-epsilon, since e^epsilon overflows.
    return 1 - (1 - delta) * _shrunk(epsilon) / (1 + _shrunk(epsilon))


def true_positive_ceilings(
    false_positive_rates: ArrayLike, epsilon: float, delta: float = 0.0
) -> FloatArray:
    """Largest true-positive rate of any attacker, for each false-positive rate.

    Args:
      false_positive_rates: Shares of non-members that are taken for members, in [0, 1].
      epsilon: Epsilon of the guarantee, at least 0; math.inf for no guarantee.
      delta: Delta of the guarantee, in [0, 1].
    """
    _check(epsilon, delta)
    rates = np.asarray(false_positive_rates, dtype=np.float64)
    if rates.size and not (rates.min() >= 0 and rates.max() <= 1):
        raise ConfigError("false_positive_rates must be in [0, 1]; give shares, not percents.")
    if math.isinf(epsilon):
        return np.ones_like(rates)
    with np.errstate(divide="ignore"):
        # By logarithms, since e^epsilon overflows; above 1 the condition says nothing.
        steep = np.exp(np.minimum(np.log(rates) + epsilon, 0.0)) + delta
    flat = 1 - _shrunk(epsilon) * np.maximum(1 - delta - rates, 0)
    return np.asarray(np.minimum(np.minimum(steep, flat), 1.0), dtype=np.float64)


def true_positive_rates(
    member_scores: FloatArray, other_scores: FloatArray, false_positive_rates: FloatArray
) -> FloatArray:
    """The largest share of members above a threshold that few enough others are above.

    Args:
      member_scores: Higher for those the attacker takes for members.
      other_scores: Scores of those who are no members.
      false_positive_rates: Largest share of others above the threshold.
    """
    if not member_scores.size or not other_scores.size:
        raise DataError("a curve needs scores of members and of others, at least one of each.")
    ordered = np.sort(other_scores)[::-1]
    num_allowed = np.floor(false_positive_rates * ordered.size + 1e-9).astype(np.int64)
    # Above the first score that may not be taken for a member.
    thresholds = np.append(ordered, -math.inf)[num_allowed]
    above = np.searchsorted(np.sort(member_scores), thresholds, side="right")
    return np.asarray(1 - above / member_scores.size, dtype=np.float64)


def area_under_curve(member_scores: FloatArray, other_scores: FloatArray) -> float:
    """Probability that a member has a higher score than another; ties count half."""
    ordered = np.sort(other_scores)
    below = np.searchsorted(ordered, member_scores, side="left")
    up_to = np.searchsorted(ordered, member_scores, side="right")
    return float(np.mean(below + up_to) / (2 * ordered.size))


def _shrunk(epsilon: float) -> float:
    return math.exp(-epsilon)


def _check(epsilon: float, delta: float) -> None:
    if not epsilon >= 0:
        raise ConfigError(f"epsilon={epsilon} must be >= 0; math.inf is no guarantee.")
    if not 0 <= delta <= 1:
        raise ConfigError(f"delta={delta} must be in [0, 1], e.g. 1e-5.")
