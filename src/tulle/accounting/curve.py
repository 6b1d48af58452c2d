"""What a mechanism costs at every (epsilon, delta): the answer of the accountant."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tulle.accounting.loss_distribution import LossDistribution, compose
from tulle.accounting.profiles import FloatArray, Profile
from tulle.errors import ConfigError

# Relative rounding of the profiles themselves, times the longest runs in use.
_SAFETY_FACTOR = 1 + 1e-9


class PrivacyCurve(Protocol):
    """The least delta at each epsilon and the least epsilon at each delta, never too low."""

    def epsilon(self, delta: float) -> float:
        """The least epsilon at this delta; inf if there is none."""

    def delta(self, epsilon: float) -> float:
        """The least delta at this epsilon."""


def curve_of_parts(parts: Sequence[tuple[Profile, int]]) -> PrivacyCurve:
    """The curve of a composition of profiles, in closed form where there is only one."""
    if not parts:
        return ExactCurve(Profile(np.zeros_like, pure_epsilon=0.0))
    if len(parts) == 1 and parts[0][1] == 1:
        return ExactCurve(parts[0][0])
    return ComposedCurve(parts)


class NoPrivacyCurve:
    """The curve of a release without protection."""

    def epsilon(self, delta: float) -> float:
        """Infinite at every delta."""
        _check_delta(delta)
        return math.inf

    def delta(self, epsilon: float) -> float:
        """One at every epsilon."""
        _check_epsilon(epsilon)
        return 1.0


class ExactCurve:
    """The curve of one profile, in closed form."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def epsilon(self, delta: float) -> float:
        """By bisection between the last epsilon too small and the first large enough."""
        _check_delta(delta)
        if delta == 0:
            return self._profile.pure_epsilon
        low, high = 0.0, min(self._profile.pure_epsilon, 2.0**23)
        if self.delta(low) <= delta:
            return low
        if self.delta(high) > delta:
            return math.inf
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def delta(self, epsilon: float) -> float:
        """The larger of both orders of the pair."""
        _check_epsilon(epsilon)
        if epsilon >= self._profile.pure_epsilon:
            return 0.0
        return float(self._profile.worst(np.array([epsilon]))[0])


class ComposedCurve:
    """The curve of a composition, from privacy loss distributions."""

    def __init__(self, profiles: Sequence[tuple[Profile, int]]) -> None:
        self._pure_epsilon = math.fsum(p.pure_epsilon * count for p, count in profiles)
        orders = [list(profiles)]
        if any(profile.backward is not None for profile, _ in profiles):
            orders.append([(profile.swapped(), count) for profile, count in profiles])
        self._tables = [_Table(compose(order)) for order in orders]

    def epsilon(self, delta: float) -> float:
        """The least epsilon at this delta; refuses a delta that rounding would hide."""
        _check_delta(delta)
        composed = max(table.epsilon(delta) for table in self._tables)
        if math.isinf(composed) and math.isinf(self._pure_epsilon):
            floor = max(table.least_delta for table in self._tables)
            if delta < floor < 1e-9:
                raise ConfigError(
                    f"delta={delta} is below {floor:.1e}, the least that this composition can "
                    "resolve; ask for a larger delta."
                )
        return min(composed, self._pure_epsilon)

    def delta(self, epsilon: float) -> float:
        """The least delta at this epsilon."""
        _check_epsilon(epsilon)
        if epsilon >= self._pure_epsilon:
            return 0.0
        return max(table.delta(epsilon) for table in self._tables)


class _Table:
    """delta at the grid points >= 0 of one loss distribution."""

    def __init__(self, distribution: LossDistribution) -> None:
        self._width = distribution.width
        start = max(0, -distribution.first)
        self._epsilons: FloatArray = distribution.losses[start:]
        self._deltas: FloatArray = np.minimum(1.0, distribution.deltas()[start:] * _SAFETY_FACTOR)
        self.least_delta = distribution.infinite_prob

    def epsilon(self, delta: float) -> float:
        enough = np.flatnonzero(self._deltas <= delta)
        if enough.size == 0:
            return math.inf
        index = int(enough[0])
        if index == 0:
            return float(self._epsilons[0])
        # Between two grid points delta is linear in e^epsilon.
        before, after = self._deltas[index - 1], self._deltas[index]
        share = float((before - delta) / (before - after))
        return float(self._epsilons[index - 1]) + math.log1p(share * math.expm1(self._width))

    def delta(self, epsilon: float) -> float:
        if self._epsilons.size == 0 or epsilon >= self._epsilons[-1]:
            return self.least_delta
        index = max(0, int(np.searchsorted(self._epsilons, epsilon, side="right")) - 1)
        before, after = self._deltas[index], self._deltas[index + 1]
        offset = max(0.0, epsilon - float(self._epsilons[index]))
        share = math.expm1(offset) / math.expm1(self._width)
        return float(before + min(1.0, share) * (after - before))


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ConfigError(f"delta={delta} must be in [0, 1); choose e.g. 1e-7.")


def _check_epsilon(epsilon: float) -> None:
    if not 0 <= epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon} must be a finite number >= 0.")
