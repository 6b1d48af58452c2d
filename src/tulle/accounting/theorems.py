"""Textbook theorems on (epsilon, delta) pairs, for mechanisms that are known by them alone.

Where the event is known, the accountant is tighter. These are upper bounds to
check it against, and what remains when only a stated guarantee is at hand.
"""

import math
from collections.abc import Sequence

from tulle.accounting.curve import PrivacyCurve
from tulle.accounting.sampling import amplified_epsilon
from tulle.errors import ConfigError
from tulle.privacy.guarantee import group_parameters

Pair = tuple[float, float]
"""An epsilon and its delta."""


def compose_basic(pairs: Sequence[Pair]) -> Pair:
    """Sums: holds for adaptively chosen mechanisms on the same units."""
    return math.fsum(e for e, _ in pairs), min(1.0, math.fsum(d for _, d in pairs))


def compose_advanced(pair: Pair, count: int, extra_delta: float) -> Pair:
    """`count` uses of one mechanism (Kairouz, Oh, Viswanath 2015, theorem 3.4)."""
    epsilon, delta = pair
    if not 0 < extra_delta < 1:
        raise ConfigError(f"extra_delta={extra_delta} must be in (0, 1), e.g. 1e-7.")
    if delta >= 1:
        return count * epsilon, 1.0
    drift = count * epsilon * math.tanh(epsilon / 2)
    spread = min(
        math.log(1 / extra_delta), math.log(math.e + math.sqrt(count) * epsilon / extra_delta)
    )
    total = min(count * epsilon, drift + epsilon * math.sqrt(2 * count * spread))
    log_kept = count * math.log1p(-delta) + math.log1p(-extra_delta)
    return total, -math.expm1(log_kept)


def compose_parallel(pairs: Sequence[Pair]) -> Pair:
    """Mechanisms on disjoint units that cannot change their part: the worst of each."""
    if not pairs:
        return 0.0, 0.0
    return max(e for e, _ in pairs), max(d for _, d in pairs)


def amplify_by_subsampling(pair: Pair, sampling_prob: float) -> Pair:
    """Poisson sampling under add-or-remove, or a fixed-size batch under replace.

    The other two combinations are not covered by this formula.
    """
    if not 0 < sampling_prob <= 1:
        raise ConfigError(f"sampling_prob={sampling_prob} must be in (0, 1].")
    epsilon, delta = pair
    return amplified_epsilon(epsilon, sampling_prob), sampling_prob * delta


class GroupTooLargeError(ConfigError):
    """Group privacy says nothing here: one unit would need a delta that rounding hides."""


def group_epsilon(curve: PrivacyCurve, num_units: int, delta: float) -> float:
    """The least epsilon at `delta` for a group of units, from the curve of one.

    Raises:
      GroupTooLargeError: The curve does not reach down to the delta that one unit would
        need. Then nothing sound can be said by group privacy.
    """
    if not 0 < delta < 1:
        raise ConfigError(f"delta={delta} must be in (0, 1); choose e.g. 1e-7.")
    if num_units < 1:
        raise ConfigError(f"num_units={num_units} must be a whole number >= 1.")
    of_one = curve.epsilon(delta)
    if num_units == 1 or math.isinf(of_one):
        return of_one

    def fits(epsilon: float) -> bool:
        return group_parameters(epsilon, curve.delta(epsilon), num_units)[1] <= delta

    low, high = 0.0, max(of_one, 1e-6)
    while not fits(high):
        low, high = high, 1.1 * high
        # Each unit more multiplies delta by e^epsilon; past this no curve in doubles decides.
        if num_units * high > 700:
            raise GroupTooLargeError(
                f"group privacy for num_units={num_units} at delta={delta} needs a delta for one "
                "unit that rounding hides; account for rows a unit instead (max_rows_per_unit)."
            )
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return num_units * high
