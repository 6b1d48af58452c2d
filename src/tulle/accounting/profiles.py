"""Privacy profiles: the least delta at each epsilon for one pair of neighbours.

A profile speaks about one worst pair of output distributions (P, Q). Composition
needs both orders, so it carries delta(P || Q) and delta(Q || P) for epsilon >= 0;
together they determine the pair (Zhu, Dong, Wang 2022).
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

FloatArray = NDArray[np.float64]
DeltaFunction = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class Profile:
    """delta as a function of epsilon >= 0, in both orders of the pair."""

    forward: DeltaFunction
    backward: DeltaFunction | None = None
    """Delta in the other order; None if both orders have the same delta."""
    largest_loss: float = math.inf
    """No finite loss is larger; inf if there is no bound."""
    infinite_prob: float = 0.0
    """Probability of an infinite loss: what is left of delta from `largest_loss` on."""

    @property
    def pure_epsilon(self) -> float:
        """The epsilon from which on delta is zero; inf if there is none."""
        return self.largest_loss if self.infinite_prob == 0 else math.inf

    def swapped(self) -> "Profile":
        """The same pair in the other order."""
        if self.backward is None:
            return self
        return Profile(self.backward, self.forward, self.largest_loss, self.infinite_prob)

    def worst(self, epsilon: FloatArray) -> FloatArray:
        """The larger delta of the two orders."""
        delta = self.forward(epsilon)
        return delta if self.backward is None else np.maximum(delta, self.backward(epsilon))


def gaussian_profile(distance: float) -> Profile:
    """Gaussian noise of standard deviation 1, moved by `distance`."""

    def delta(epsilon: FloatArray) -> FloatArray:
        middle = distance / 2
        shift = epsilon / distance
        upper = special.ndtr(middle - shift)
        with np.errstate(over="ignore"):
            lower = np.exp(epsilon + special.log_ndtr(-middle - shift))
        return np.maximum(0.0, upper - lower)

    return Profile(delta)


def laplace_profile(distance: float) -> Profile:
    """Laplace noise of scale 1, moved by `distance`.

    An L1 distance spread over many numbers is never worse than one number that
    moves by all of it (tests/unit/accounting check it).
    """

    def delta(epsilon: FloatArray) -> FloatArray:
        return _one_minus_exp((epsilon - distance) / 2)

    return Profile(delta, largest_loss=distance)


def discrete_laplace_profile(scale: float, distance: int) -> Profile:
    """Integer noise with mass proportional to exp(-|i| / scale), moved by `distance`."""
    largest_loss = distance / scale

    def delta(epsilon: FloatArray) -> FloatArray:
        # Loss at i is (distance - 2 i) / scale for 0 <= i <= distance; sum where it is > epsilon.
        with np.errstate(over="ignore"):
            last = np.maximum(-1.0, np.ceil((distance - epsilon * scale) / 2) - 1)
        norm = 1 + math.exp(-1 / scale)
        tail_p = np.exp(-(last + 1) / scale) / norm
        mass_q = np.exp(np.minimum(epsilon, largest_loss) - (distance - last) / scale) / norm
        return np.where(epsilon < largest_loss, np.maximum(0.0, 1 - tail_p - mass_q), 0.0)

    return Profile(delta, largest_loss=largest_loss)


def discrete_gaussian_profile(scale: float, distance: int) -> Profile:
    """Integer noise with mass proportional to exp(-i^2 / (2 scale^2)), moved by `distance`."""
    reach = math.ceil(14 * scale) + distance + 2
    points = np.arange(-reach, reach + 1, dtype=np.float64)
    masses = np.exp(-0.5 * (points / scale) ** 2)
    # below[i] = mass of everything < points[i]; summed from the tail, so small values are exact.
    below = np.concatenate(([0.0], np.cumsum(masses))) / math.fsum(masses)

    def delta(epsilon: FloatArray) -> FloatArray:
        # Loss at i is distance (distance - 2 i) / (2 scale^2): larger than epsilon below `edge`.
        edge = np.ceil(distance / 2 - epsilon * scale**2 / distance)
        index = np.clip(edge + reach, 0, points.size).astype(np.int64)
        moved = np.clip(edge - distance + reach, 0, points.size).astype(np.int64)
        with np.errstate(divide="ignore"):
            mass_q = np.exp(epsilon + np.log(below[moved]))
        return np.asarray(np.maximum(0.0, below[index] - mass_q))

    return Profile(delta)


def three_point_profile(local_epsilon: float, telling_prob: float) -> Profile:
    """Loss +epsilon with probability `telling_prob`, -epsilon with e^-epsilon times that, else 0.

    Randomized response and subset selection have this form.
    """

    def delta(epsilon: FloatArray) -> FloatArray:
        return telling_prob * _one_minus_exp(epsilon - local_epsilon)

    return Profile(delta, largest_loss=local_epsilon)


def epsilon_delta_profile(epsilon: float, delta: float) -> Profile:
    """The worst mechanism with (epsilon, delta) (Kairouz, Oh, Viswanath 2015)."""
    kept = (1 - delta) / (1 + math.exp(-epsilon))

    def profile(at: FloatArray) -> FloatArray:
        return delta + kept * _one_minus_exp(at - epsilon)

    return Profile(profile, largest_loss=epsilon, infinite_prob=delta)


def in_both_orders(profile: Profile) -> Profile:
    """A pair that is the worst in either order, for compositions that mix orders.

    Its delta in each order is the larger one of the two. Both pairs are then post-processings
    of it (Zhu, Dong, Wang 2022: what is larger at every epsilon, negative ones included,
    dominates).
    """
    if profile.backward is None:
        return profile
    return Profile(
        profile.worst, largest_loss=profile.largest_loss, infinite_prob=profile.infinite_prob
    )


def interpolated_profile(epsilons: FloatArray, deltas: FloatArray) -> Profile:
    """An upper bound that is known at increasing epsilons only, the first one 0.

    A profile is convex in e^epsilon, so its chords lie above it. Beyond the last
    point delta stays what it was there.
    """
    decreasing = np.minimum.accumulate(deltas)
    if epsilons.size == 1:
        return Profile(lambda epsilon: np.full_like(epsilon, decreasing[0]))

    def delta(epsilon: FloatArray) -> FloatArray:
        index = np.clip(np.searchsorted(epsilons, epsilon, side="right") - 1, 0, epsilons.size - 2)
        low, high = epsilons[index], epsilons[index + 1]
        at = np.clip(epsilon, low, high)
        # expm1(at - low) / expm1(high - low) without overflow.
        share = np.exp(at - high) * np.expm1(low - at) / np.expm1(low - high)
        return np.asarray(decreasing[index] + share * (decreasing[index + 1] - decreasing[index]))

    return Profile(delta)


def _one_minus_exp(exponent: FloatArray) -> FloatArray:
    """1 - e^x where x < 0, else 0."""
    return -np.expm1(np.minimum(exponent, 0.0))
