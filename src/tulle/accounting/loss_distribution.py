"""Privacy loss distributions on a grid, and their composition.

A profile becomes a distribution of losses on multiples of one width by "connect
the dots" (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): it dominates the
pair it came from and is of second order in the width. Composition multiplies
Fourier transforms in extended precision, because in double precision rounding
noise hides every delta below about 1e-11 after 100,000 steps.

What is cut off or lost to rounding is added to delta: answers never under-report.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from tulle.accounting.profiles import DeltaFunction, FloatArray, Profile
from tulle.errors import UnsupportedEventError

_TAIL_MASS = 1e-15
_STEPS_PER_TYPICAL_LOSS = 10
_COARSE_POINTS, _FEWEST_POINTS, _MOST_POINTS = 2**12, 2**17, 2**21
_LARGEST_EXPONENT = 500.0
_CHERNOFF_ORDERS: FloatArray = np.exp2(np.arange(-6.0, 15.0))


@dataclasses.dataclass(frozen=True)
class LossDistribution:
    """Chances of the losses `(first + i) * width`, and of an infinite loss."""

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
        """At each grid point l, the sum of probs at m >= l, times e^(l - m)."""
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
    """The loss distribution of a profile on multiples of `width`, never too favourable."""
    forward = _grid_deltas(profile.forward, width, tail_mass)
    backward = (
        forward if profile.backward is None else _grid_deltas(profile.backward, width, tail_mass)
    )
    # A loss of -l under P has e^-l times the chance of a loss of l under Q.
    negative = _masses_above_zero(backward, width)
    negative *= np.exp(-width * np.arange(1, negative.size + 1))
    corner = forward[1] + backward[1] - (1 + math.exp(width)) * max(forward[0], backward[0])
    at_zero = max(0.0, 1 + corner / math.expm1(width))
    probs = np.concatenate((negative[::-1], [at_zero], _masses_above_zero(forward, width)))
    return LossDistribution(width, -negative.size, probs, float(forward[-1]))


def _grid_deltas(function: DeltaFunction, width: float, tail_mass: float) -> FloatArray:
    num_steps = max(1, math.ceil(_function_reach(function, tail_mass) / width))
    # What lies beyond twice the longest window is unlikely even in all parts together.
    num_steps = min(num_steps, 2 * _MOST_POINTS)
    deltas = function(width * np.arange(num_steps + 1, dtype=np.float64))
    return np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))


def _masses_above_zero(deltas: FloatArray, width: float) -> FloatArray:
    """Chances of the losses width, 2 width, ... from delta at 0, width, 2 width, ..."""
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
    candidates = np.concatenate(([0.0], 2.0 ** np.arange(-40, 24)))
    for _ in range(3):
        deltas = function(candidates)
        small = np.flatnonzero(deltas <= deltas[-1] + tail_mass)
        index = max(1, int(small[0]))
        candidates = np.linspace(candidates[index - 1], candidates[index], 33)
    return float(candidates[-1])


def _edge(parts: Sequence[tuple[LossDistribution, int]], orders: FloatArray) -> tuple[float, float]:
    """A Chernoff bound that the sum of all losses passes with chance <= _TAIL_MASS.

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
    return np.array([special.logsumexp(log_probs + order * losses) for order in orders])


def _choose_width(profiles: Sequence[tuple[Profile, int]], span: float) -> float:
    """Fine enough for the typical loss of every part, coarse enough to compose quickly."""
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
    if high - low > 4 * _MOST_POINTS:
        raise _too_far(sum(count for _, count in parts))
    size = int(fft.next_fast_len(high - low + 1, real=True))
    spectrum = np.ones(size // 2 + 1, dtype=np.clongdouble)
    first, log_finite_prob = 0, 0.0
    for part, count in parts:
        spectrum *= _power(fft.rfft(_folded(part.probs, size)), count)
        first += part.first * count
        log_finite_prob += count * math.log1p(-min(part.infinite_prob, 1 - 1e-16))
    probs = np.roll(fft.irfft(spectrum, size), (first - low) % size)[: high - low + 1]
    noise = max(-float(probs.min()), float(np.finfo(np.longdouble).eps))
    infinite_prob = -math.expm1(log_finite_prob) + _TAIL_MASS + noise * probs.size
    return LossDistribution(
        width=parts[0][0].width,
        first=low,
        probs=np.maximum(probs, 0.0).astype(np.float64),
        infinite_prob=min(1.0, infinite_prob),
    )


def _power(base: NDArray[np.clongdouble], exponent: int) -> NDArray[np.clongdouble]:
    """By repeated squaring, several times as fast as the general complex power."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result *= base
        exponent >>= 1
        if exponent:
            base = base * base
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
