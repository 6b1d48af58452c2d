"""What a mechanism costs at every (epsilon, delta): the answer of the accountant.

One profile has its curve in closed form. A composition has it from privacy loss distributions
on a grid. A profile becomes a distribution of losses on multiples of one width by "connect
the dots" (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): it dominates the
pair it came from and is of second order in the width. Composition multiplies
Fourier transforms in extended precision, because in double precision rounding
noise hides every delta below about 1e-11 after 100,000 steps.

What is cut off or lost to rounding is added to delta: answers never under-report.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from tulle.accounting.profiles import DeltaFunction, FloatArray, Profile
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.fields import check_delta

# Relative rounding of the profiles themselves, times the longest runs in use.
_SAFETY_FACTOR = 1 + 1e-9
_TAIL_MASS = 1e-15
"""Probability that a grid may cut off; it is added to delta."""
_STEPS_PER_TYPICAL_LOSS = 10
"""Points of the grid for each standard deviation of one loss: finer grids change no digit."""
_COARSE_POINTS, _FEWEST_POINTS, _MOST_POINTS = 2**12, 2**17, 2**21
"""Points of the first grid, which only finds the window, and least and most points of the window
that is composed. At the most, steps get wider: the answer is still an upper bound, less tight."""
_LARGEST_EXPONENT = 500.0
"""Largest exponent of a sum of exponentials; larger ones overflow when their terms are added."""
_CHERNOFF_ORDERS: FloatArray = np.exp2(np.arange(-6.0, 15.0))
"""Orders that are tried for Chernoff bounds of the window: each gives a bound, the best is used."""


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
        check_delta(delta)
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
        """Searches by bisection between the last epsilon too small and the first large enough."""
        check_delta(delta)
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
        # The upper end was checked to be enough, so the answer is never too small.
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
        check_delta(delta)
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
        # delta(P||Q) and delta(Q||P) may differ: both are composed, and the worse one is reported.
        orders = [self._profiles]
        if any(profile.backward is not None for profile, _ in self._profiles):
            orders.append([(profile.swapped(), count) for profile, count in self._profiles])
        return [_Table(compose(order)) for order in orders]


@dataclasses.dataclass(frozen=True)
class LossDistribution:
    """Probabilities of the losses `(first + i) * width`, and of an infinite loss."""

    width: float
    first: int
    probs: FloatArray
    infinite_prob: float

    @property
    def losses(self) -> FloatArray:
        """The loss at each grid point."""
        return self.width * np.arange(self.first, self.first + self.probs.size, dtype=np.float64)

    def deltas(self) -> FloatArray:
        """The least delta at epsilon = each grid point."""
        above = np.cumsum(self.probs[::-1])[::-1]
        return np.asarray(np.maximum(0.0, above - self._decayed()) + self.infinite_prob)

    def _decayed(self) -> FloatArray:
        """Sums of probs at m >= l, times e^(l - m), for each grid point l."""
        decayed = np.empty(self.probs.size)
        block = max(1, int(_LARGEST_EXPONENT / self.width))
        carried = 0.0  # The sum at the first point of the block after.
        for stop in range(self.probs.size, 0, -block):
            start = max(0, stop - block)
            # Distance to the point after the block, so that no exponential overflows.
            growth = np.exp(self.width * np.arange(stop - start, 0, -1.0))
            sums = np.cumsum((self.probs[start:stop] * growth)[::-1])[::-1]
            decayed[start:stop] = (sums + carried) / growth
            carried = decayed[start]
        return decayed


def compose(profiles: Sequence[tuple[Profile, int]]) -> LossDistribution:
    """The loss of all profiles together, each as often as its count says."""
    tail_masses = [_TAIL_MASS / (len(profiles) * count) for _, count in profiles]
    num_releases = sum(count for _, count in profiles)
    coarse_widths = [
        _reach(p, tail) / _COARSE_POINTS for (p, _), tail in zip(profiles, tail_masses, strict=True)
    ]
    if max(coarse_widths) > _LARGEST_EXPONENT:
        raise _too_far(num_releases)
    coarse = [
        (discretize(p, width, tail), count)
        for (p, count), width, tail in zip(profiles, coarse_widths, tail_masses, strict=True)
    ]
    low_loss, low_order = _edge(coarse, -_CHERNOFF_ORDERS)
    high_loss, high_order = _edge(coarse, _CHERNOFF_ORDERS)
    width = _choose_width(profiles, high_loss - low_loss)
    if not width <= _LARGEST_EXPONENT:
        raise _too_far(num_releases)
    parts = [
        (discretize(p, width, tail), count)
        for (p, count), tail in zip(profiles, tail_masses, strict=True)
    ]
    # The coarse grid does not bound the fine one, so the edges are found again.
    low_loss, _ = _edge(parts, np.array([low_order]))
    high_loss, _ = _edge(parts, np.array([high_order]))
    return _convolve(parts, math.floor(low_loss / width), math.ceil(high_loss / width))


def discretize(profile: Profile, width: float, tail_mass: float) -> LossDistribution:
    """The loss distribution of a profile on multiples of `width`, never too favourable.

    Args:
      profile: The delta of a pair of distributions at each epsilon, in both orders.
      width: Distance of two losses on the grid.
      tail_mass: Probability that the grid may leave out; it counts as an infinite loss.
    """
    forward = _grid_deltas(profile.forward, width, tail_mass)
    backward = (
        forward if profile.backward is None else _grid_deltas(profile.backward, width, tail_mass)
    )
    # A loss of -l under P has e^-l times the probability of a loss of l under Q.
    negative = _masses_above_zero(backward, width)
    negative *= np.exp(-width * np.arange(1, negative.size + 1))
    # The kink of the chords at e^epsilon = 1: their slope behind it less that before it, where
    # delta(-w) = 1 - e^-w (1 - backward delta(w)). At 0 both orders agree up to rounding.
    corner = forward[1] + backward[1] - (1 + math.exp(width)) * max(forward[0], backward[0])
    at_zero = max(0.0, 1 + corner / math.expm1(width))
    probs = np.concatenate((negative[::-1], [at_zero], _masses_above_zero(forward, width)))
    return LossDistribution(width, -negative.size, probs, float(forward[-1]))


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


def _grid_deltas(function: DeltaFunction, width: float, tail_mass: float) -> FloatArray:
    num_steps = max(1, math.ceil(_function_reach(function, tail_mass) / width))
    # What lies beyond twice the longest window is unlikely even in all parts together.
    num_steps = min(num_steps, 2 * _MOST_POINTS)
    deltas = function(width * np.arange(num_steps + 1, dtype=np.float64))
    # Delta never rises with epsilon, so an earlier value still holds where rounding made it rise.
    return np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))


def _masses_above_zero(deltas: FloatArray, width: float) -> FloatArray:
    """Probabilities of the losses width, 2 width, ... from delta at 0, width, 2 width, ..."""
    # Each mass is the change of the chords' slope in e^epsilon, times e^loss. Behind the last point
    # delta is flat: what is left of it there is an infinite loss.
    falls = -np.diff(deltas)
    masses = np.empty(falls.size)
    masses[:-1] = (math.exp(width) * falls[:-1] - falls[1:]) / math.expm1(width)
    masses[-1] = falls[-1] / -math.expm1(-width)
    return np.maximum(masses, 0.0)


def _reach(profile: Profile, tail_mass: float) -> float:
    reach = _function_reach(profile.forward, tail_mass)
    if profile.backward is None:
        return reach
    return max(reach, _function_reach(profile.backward, tail_mass))


def _function_reach(function: DeltaFunction, tail_mass: float) -> float:
    """An epsilon beyond which delta falls by no more than `tail_mass`."""
    # Doublings up to an epsilon of 2^23, then a bracket that is made 32 times finer, twice.
    candidates = np.concatenate(([0.0], 2.0 ** np.arange(-40, 24)))
    for _ in range(3):
        deltas = function(candidates)
        small = np.flatnonzero(deltas <= deltas[-1] + tail_mass)
        index = max(1, int(small[0]))
        candidates = np.linspace(candidates[index - 1], candidates[index], 33)
    return float(candidates[-1])


def _edge(parts: Sequence[tuple[LossDistribution, int]], orders: FloatArray) -> tuple[float, float]:
    """A Chernoff bound that the sum of all losses passes with probability <= _TAIL_MASS.

    Positive orders bound it from above, negative ones from below. Returns the
    best bound and its order. The window between both edges holds 0, so that
    every epsilon >= 0 is on the grid or beyond its end.
    """
    log_moments = np.zeros(orders.size)
    for part, count in parts:
        log_moments += count * _log_moments(part, orders)
    bounds = (log_moments - math.log(_TAIL_MASS)) / orders
    if orders[0] > 0:
        best = int(np.argmin(bounds))
        most = sum(part.losses[-1] * count for part, count in parts)
        return max(0.0, min(most, float(bounds[best]))), float(orders[best])
    best = int(np.argmax(bounds))
    least = sum(part.losses[0] * count for part, count in parts)
    return min(0.0, max(least, float(bounds[best]))), float(orders[best])


def _log_moments(part: LossDistribution, orders: FloatArray) -> FloatArray:
    """log E[e^(order loss)], for each order."""
    losses = part.losses
    with np.errstate(divide="ignore"):
        log_probs = np.log(part.probs)
    return np.array([_log_sum_exp(log_probs + order * losses) for order in orders])


def _log_sum_exp(values: FloatArray) -> float:
    """Logarithm of the sum of e^values, as scipy.special.logsumexp, in a fifth of the time."""
    largest = float(values.max())
    if not math.isfinite(largest):
        return largest
    parts = np.exp(values - largest)
    is_largest = values == largest
    parts[is_largest] = 0.0  # Exactly 1 each: they are counted, for precision.
    count = np.count_nonzero(is_largest)
    return float(np.log1p(parts.sum() / count) + np.log(count) + largest)


def _choose_width(profiles: Sequence[tuple[Profile, int]], span: float) -> float:
    """Fine enough for the typical loss of every part, coarse enough to compose quickly."""
    # Delta at 0 is the total variation, about half the mean size of a small loss.
    ends = np.array([0.0, 2.0**23])
    typical_losses = [-2 * float(np.diff(profile.worst(ends))[0]) for profile, _ in profiles]
    typical_loss = min((loss for loss in typical_losses if loss > 0), default=math.inf)
    wanted = min(typical_loss / _STEPS_PER_TYPICAL_LOSS, span / _FEWEST_POINTS)
    width = max(wanted, span / _MOST_POINTS, 1e-12)
    bounded = [(p.largest_loss * n, p.largest_loss) for p, n in profiles if p.largest_loss < span]
    _, aligned = max(bounded, default=(0.0, 0.0))
    # A loss that many outcomes share, as in randomized response, belongs on a grid point.
    return aligned / math.ceil(aligned / width) if aligned > width else width


def _convolve(
    parts: Sequence[tuple[LossDistribution, int]], low: int, high: int
) -> LossDistribution:
    # The edges on the fine grid may lie further out than those that its width was chosen for.
    if high - low > 4 * _MOST_POINTS:
        raise _too_far(sum(count for _, count in parts))
    size = int(fft.next_fast_len(high - low + 1, real=True))
    spectrum = np.ones(size // 2 + 1, dtype=np.clongdouble)
    first, log_finite_prob = 0, 0.0
    for part, count in parts:
        spectrum *= _power(fft.rfft(_folded(part.probs, size)), count)
        first += part.first * count
        # Just below 1, because log1p(-1) is infinite.
        log_finite_prob += count * math.log1p(-min(part.infinite_prob, 1 - 1e-16))
    probs = np.roll(fft.irfft(spectrum, size), (first - low) % size)[: high - low + 1]
    # No probability is negative: the most negative one shows how far the transforms round, and as
    # much may be missing at every point.
    noise = max(-float(probs.min()), float(np.finfo(np.longdouble).eps))
    infinite_prob = -math.expm1(log_finite_prob) + _TAIL_MASS + noise * probs.size
    return LossDistribution(
        width=parts[0][0].width,
        first=low,
        probs=np.maximum(probs, 0.0).astype(np.float64),
        infinite_prob=min(1.0, infinite_prob),
    )


def _power(base: NDArray[np.clongdouble], exponent: int) -> NDArray[np.clongdouble]:
    """The power by repeated squaring, in the memory of the base.

    Several times as fast as the general complex power.
    """
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result *= base
        exponent >>= 1
        if exponent:
            base *= base
    return result


def _folded(probs: FloatArray, size: int) -> NDArray[np.longdouble]:
    """The distribution modulo `size` points: what lies outside the window is its tail."""
    rows = -(-probs.size // size)
    padded = np.zeros(rows * size, dtype=np.longdouble)
    padded[: probs.size] = probs
    return np.asarray(padded.reshape(rows, size).sum(axis=0))


def _too_far(num_releases: int) -> UnsupportedEventError:
    return UnsupportedEventError(
        f"a composition of {num_releases} releases spreads its losses too "
        "far to be resolved; account for fewer at a time."
    )
