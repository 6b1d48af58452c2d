"""The cost of a group of units, from the curve of one: the accounting of `Grouped`.

Group privacy turns a guarantee (epsilon, delta) of one unit into one of k units,
(k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1)), at each epsilon. That is a
bound and no pair of distributions, so it composes with pure parts only, by adding.
"""

import functools
import math
from fractions import Fraction

import numpy as np

from tulle.accounting.curve import PrivacyCurve, check_epsilon
from tulle.accounting.event_rules import pure_epsilon
from tulle.accounting.profiles import FloatArray
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.events import Composed, Event, Grouped, Repeated, contains
from tulle.privacy.fields import check_prob
from tulle.privacy.guarantee import group_parameters
from tulle.privacy.units import Adjacency

_EPSILONS = np.geomspace(1e-6, 1e4, 1024)
"""Epsilons of one unit that are tried first; the search then goes on between two of them."""


class GroupCurve:
    """The curve of a group of `group_size` units."""

    def __init__(self, of_one: PrivacyCurve, group_size: int) -> None:
        self._of_one = of_one
        self._group_size = group_size

    def epsilon(self, delta: float) -> float:
        """The least epsilon at this delta by group privacy; inf if there is none.

        Raises:
          GroupTooLargeError: One unit would need a delta that rounding hides.
        """
        if self._group_size == 1 or delta == 0:
            return self._group_size * self._of_one.epsilon(delta)
        # The pure bound carries no factor on delta, so for large groups it can be the smaller one.
        pure = self._group_size * self._of_one.epsilon(0.0)
        try:
            return min(pure, group_epsilon(self._of_one, self._group_size, delta))
        except GroupTooLargeError:
            if math.isfinite(pure):
                return pure
            raise

    def delta(self, epsilon: float) -> float:
        """The delta at this epsilon by group privacy."""
        check_epsilon(epsilon)
        if self._group_size == 1:
            return self._of_one.delta(epsilon)
        # Where the bound rises with epsilon, what holds at a smaller one holds too.
        return self._bound(min(epsilon / self._group_size, self._best_epsilon))

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The delta at each epsilon by group privacy."""
        return np.array([self.delta(float(epsilon)) for epsilon in epsilons])

    def _bound(self, of_one: float) -> float:
        return group_parameters(of_one, self._of_one.delta(of_one), self._group_size)[1]

    @functools.cached_property
    def _best_epsilon(self) -> float:
        """The epsilon of one unit from which on the group factor outgrows the fall of delta."""
        deltas = self._of_one.deltas(_EPSILONS)
        bounds = [
            group_parameters(float(e), float(d), self._group_size)[1]
            for e, d in zip(_EPSILONS, deltas, strict=True)
        ]
        best = int(np.argmin(bounds))
        low, high = _EPSILONS[max(best - 1, 0)], _EPSILONS[min(best + 1, len(bounds) - 1)]
        # Every epsilon of one unit gives a sound bound: a search that misses the best is looser.
        candidates = [float(_EPSILONS[best])]
        while high - low > 1e-12 * high:
            first, second = low + (high - low) / 3, high - (high - low) / 3
            is_left = self._bound(float(first)) <= self._bound(float(second))
            low, high = (low, second) if is_left else (first, high)
            candidates.append(float(first if is_left else second))
        return min(candidates, key=self._bound)


class ShiftedCurve:
    """The curve of a release together with pure ones, by basic composition."""

    def __init__(self, curve: PrivacyCurve, pure_epsilon: float) -> None:
        self._curve = curve
        self._pure_epsilon = pure_epsilon

    def epsilon(self, delta: float) -> float:
        """The sum of both."""
        return self._pure_epsilon + self._curve.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """The delta of what is left for the curve; below the pure epsilon its guarantee at 0."""
        check_epsilon(epsilon)
        left = epsilon - self._pure_epsilon
        if left >= 0:
            return self._curve.delta(left)
        # (pure epsilon, delta) at a smaller epsilon: Kairouz, Oh, Viswanath 2015.
        at_least = self._curve.delta(0.0)
        excess = -math.expm1(left) / (1 + math.exp(-self._pure_epsilon))
        return at_least + (1 - at_least) * excess

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The delta at each epsilon."""
        return np.array([self.delta(float(epsilon)) for epsilon in epsilons])


class GroupTooLargeError(ConfigError):
    """Group privacy says nothing here: one unit would need a delta that rounding hides."""


def split_group(event: Event, adjacency: Adjacency) -> tuple[Grouped, Fraction]:
    """The one `Grouped` event of a composition, and what its pure parts cost together.

    Raises:
      UnsupportedEventError: Group privacy is not outermost, or something else needs a delta.
    """
    parts = _top_parts(event)
    groups = [part for part in parts if isinstance(part, Grouped)]
    others = Fraction(0)
    for part in parts:
        inside = part.event if isinstance(part, Grouped) else part
        if contains(inside, Grouped):
            raise _refusal(f"Grouped inside {type(part).__name__}")
        if isinstance(part, Grouped):
            continue
        cost = pure_epsilon(part, adjacency)
        if cost is None:
            raise _refusal(f"Grouped together with {type(part).__name__}, which needs a delta,")
        others += cost
    # Two group bounds would each need a part of delta, and which parts is not for us to choose.
    if len(groups) != 1:
        raise _refusal(f"Grouped {len(groups)} times on the same units")
    return groups[0], others


def group_epsilon(curve: PrivacyCurve, num_units: int, delta: float) -> float:
    """The least epsilon at `delta` for a group of units, from the curve of one.

    Args:
      curve: The curve of one unit.
      num_units: Number of units in the group.
      delta: Probability that the guarantee of the group does not cover.

    Raises:
      GroupTooLargeError: The curve does not reach down to the delta that one unit would
        need. Then nothing sound can be said by group privacy.
    """
    check_prob("delta", delta, example=1e-7)
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
    # The upper end: it was found to fit, while the true least one lies below it.
    return num_units * high


def _top_parts(event: Event) -> list[Event]:
    if isinstance(event, Composed):
        return [part for inner in event.events for part in _top_parts(inner)]
    if isinstance(event, Repeated) and event.count == 1:
        return _top_parts(event.event)
    return [event]


def _refusal(what: str) -> UnsupportedEventError:
    return UnsupportedEventError(
        f"{what} is refused: group privacy is a bound for the whole, and adds up with pure parts "
        "only. Group all parts at once, Grouped(event=Composed(...)), or account for the rows of "
        "a unit (max_rows_per_unit)."
    )
