"""Shuffled K-ary randomized response: the privacy blanket.

A report is uniform, whatever the data, with chance K / (e^local_epsilon + K - 1).
Those reports hide the others (Balle, Bell, Gascón, Nissim 2019). From 10,000
reports on, a lower bound with three values or more agrees to three digits.

The guarantee is for one report under replace: its unit may have held any other
value. Reports hide one another only if all could have had the same values.
"""

import math

from tulle.accounting.shuffle_profile import (
    Blanket,
    Epsilons,
    check_local_epsilon,
    profile_delta,
    profile_epsilon,
)
from tulle.privacy.fields import check_count


def blanket_delta(
    epsilon: Epsilons, *, local_epsilon: float, num_values: int, num_reports: int
) -> Epsilons:
    """An upper bound of delta at each epsilon >= 0, for one value or an array.

    Args:
      epsilon: Where to evaluate the profile; 0 is answered from `local_epsilon` on.
      local_epsilon: Protection of one report before the shuffle.
      num_values: Values that a report can have (K).
      num_reports: Reports that are shuffled together, this unit's included.
    """
    blanket = _randomized_response(local_epsilon, num_values, num_reports)
    return profile_delta(blanket, epsilon)


def blanket_epsilon(
    delta: float, *, local_epsilon: float, num_values: int, num_reports: int
) -> float:
    """The least epsilon that the blanket proves at `delta`.

    Never above `local_epsilon`, and equal to it for a single report.
    """
    blanket = _randomized_response(local_epsilon, num_values, num_reports)
    return profile_epsilon(blanket, delta)


def _randomized_response(local_epsilon: float, num_values: int, num_reports: int) -> Blanket:
    check_local_epsilon(local_epsilon)
    check_count("num_values", num_values, least=2)
    lie = math.exp(-local_epsilon)
    total = 1 + (num_values - 1) * lie
    return Blanket(
        local_epsilon=local_epsilon,
        num_reports=num_reports,
        truth_prob=1 / total,
        value_prob=lie / total,
        rest_prob=(num_values - 2) * lie / total,
    )
