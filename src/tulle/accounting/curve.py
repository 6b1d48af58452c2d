"""What a mechanism costs at every (epsilon, delta): the answer of the accountant."""

import functools
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

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The least delta at each epsilon."""


def curve_of_parts(parts: Sequence[tuple[Profile, int]]) -> PrivacyCurve:
    """The curve of a composition of profiles, in closed form where there is only one."""
    if any(profile.infinite_prob >= 1 for profile, _ in parts):
        return NoPrivacyCurve()
    if not parts:
        return ExactCurve(Profile(np.zeros_like, largest_loss=0.0))
    if len(parts) == 1 and parts[0][1] == 1:
        return ExactCurve(parts[0][0])
    return ComposedCurve(parts)


def check_epsilon(epsilon: float) -> None:
    """Refuses what is no epsilon of a curve."""
    if not 0 <= epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon} must be a finite number >= 0.")


class NoPrivacyCurve:
    """The curve of a release without protection."""

    def epsilon(self, delta: float) -> float:
        """Infinite at every delta."""
        _check_delta(delta)
        return math.inf

    def delta(self, epsilon: float) -> float:
        """One at every epsilon."""
        check_epsilon(epsilon)
        return 1.0

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """One at every epsilon."""
        return np.ones_like(epsilons)


class ExactCurve:
    """The curve of one profile, in closed form."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def epsilon(self, delta: float) -> float:
        """By bisection between the last epsilon too small and the first large enough."""
        _check_delta(delta)
        if delta == 0:
            return self._profile.pure_epsilon
        low, high = 0.0, min(self._profile.largest_loss, 2.0**23)
        if self.delta(low) <= delta:
            return low
        if self.delta(high) > delta:  # beyond the search; what bounds every loss holds there too
            return self._profile.largest_loss if delta >= self._profile.infinite_prob else math.inf
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def delta(self, epsilon: float) -> float:
        """The larger of both orders of the pair."""
        check_epsilon(epsilon)
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The larger of both orders of the pair, at each epsilon."""
        is_beyond = epsilons >= self._profile.largest_loss
        return np.where(is_beyond, self._profile.infinite_prob, self._profile.worst(epsilons))


class ComposedCurve:
    """The curve of a composition, from privacy loss distributions."""

    def __init__(self, profiles: Sequence[tuple[Profile, int]]) -> None:
        self._profiles = list(profiles)
        # From the sum of the largest losses on, only infinite ones are left, and no grid errs.
        self._largest_loss = math.fsum(p.largest_loss * count for p, count in profiles)
        kept = math.fsum(count * math.log1p(-p.infinite_prob) for p, count in profiles)
        self._infinite_prob = -math.expm1(kept)

    def epsilon(self, delta: float) -> float:
        """The least epsilon at this delta; refuses a delta that rounding would hide."""
        _check_delta(delta)
        if delta == 0:
            return self._largest_loss if self._infinite_prob == 0 else math.inf
        composed = max(table.epsilon(delta) for table in self._tables)
        if delta >= self._infinite_prob:
            composed = min(composed, self._largest_loss)
        if math.isinf(composed):
            floor = max(table.least_delta for table in self._tables)
            if self._infinite_prob <= delta < floor < 1e-9:
                raise ConfigError(
                    f"delta={delta} is below {floor:.1e}, the least that this composition can "
                    "resolve; ask for a larger delta."
                )
        return composed

    def delta(self, epsilon: float) -> float:
        """The least delta at this epsilon."""
        check_epsilon(epsilon)
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The least delta at each epsilon."""
        if np.all(epsilons >= self._largest_loss):
            return np.full(epsilons.shape, self._infinite_prob)
        composed = np.maximum.reduce([table.deltas(epsilons) for table in self._tables])
        return np.where(epsilons >= self._largest_loss, self._infinite_prob, composed)

    @functools.cached_property
    def _tables(self) -> "list[_Table]":
        orders = [self._profiles]
        if any(profile.backward is not None for profile, _ in self._profiles):
            orders.append([(profile.swapped(), count) for profile, count in self._profiles])
        return [_Table(compose(order)) for order in orders]


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
        inside = float(self._epsilons[index - 1]) + math.log1p(share * math.expm1(self._width))
        step = 1e-16 * (1 + inside)
        # Rounding may have put it a hair too low.
        while float(self.deltas(np.array([inside]))[0]) > delta:
            inside, step = inside + step, 2 * step
        return inside

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        last = self._epsilons.size - 1
        index = np.clip(np.searchsorted(self._epsilons, epsilons, side="right") - 1, 0, last)
        before, after = self._deltas[index], self._deltas[np.minimum(index + 1, last)]
        share = np.expm1(np.clip(epsilons - self._epsilons[index], 0.0, self._width))
        inside = before + share / math.expm1(self._width) * (after - before)
        return np.where(epsilons >= self._epsilons[-1], self.least_delta, inside)


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ConfigError(f"delta={delta} must be in [0, 1); choose e.g. 1e-7.")
