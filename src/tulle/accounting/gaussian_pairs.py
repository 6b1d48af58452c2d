"""Profiles of Gaussian noise on sums whose rows were sampled.

A unit owns k rows; |S| = j of them enter a step with chance b_j, independently of
the data. Each row adds a vector of norm <= 1. The worst pair is then one
dimensional: mixtures of N(j, s^2) with weights b_j (Lebeda, Regehr, Kamath,
Steinke 2025 for k = 1; for k > 1 the half-line argument is the same: the chance
of any event is a 1-Lipschitz function of the shift on the probit scale).

Replace:        P = sum_j b_j N(+j), Q = sum_j b_j N(-j)
Add or remove:  P = sum_j b_j N(+j), Q = N(0), and the other order
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from tulle.accounting.profiles import FloatArray, Profile

_Function = Callable[[FloatArray], FloatArray]
_MOST_NEWTON_STEPS = 60


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


def sampled_gaussian_replace_profile(sampling_prob: float, noise_multiplier: float) -> Profile:
    """One row, replaced: (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1)."""
    q, s = sampling_prob, noise_multiplier
    if q == 1:
        return gaussian_profile(2 / s)
    log_alpha = math.log1p(-q) - math.log(q) + 0.5 / s**2

    def delta(epsilon: FloatArray) -> FloatArray:
        # Solves loss(x) = epsilon: x = s^2 (asinh(alpha sinh(epsilon/2)) + epsilon/2).
        x = s**2 * (_asinh_exp(log_alpha + _log_sinh(epsilon / 2)) + epsilon / 2)
        stay = np.exp(_log_expm1(epsilon) + special.log_ndtr(-x / s))
        move = special.ndtr((1 - x) / s) - np.exp(epsilon + special.log_ndtr(-(x + 1) / s))
        return np.maximum(0.0, q * move - (1 - q) * stay)

    return Profile(delta)


def sampled_gaussian_remove_profile(sampling_prob: float, noise_multiplier: float) -> Profile:
    """One row, added or removed: (1-q) N(0) + q N(1) against N(0), and the other order."""
    q, s = sampling_prob, noise_multiplier
    if q == 1:
        return gaussian_profile(1 / s)

    def remove(epsilon: FloatArray) -> FloatArray:
        # Solves 1 - q + q e^((2x - 1) / (2 s^2)) = e^epsilon.
        x = 0.5 + s**2 * np.logaddexp(0.0, _log_expm1(epsilon) - math.log(q))
        stay = np.exp(_log_expm1(epsilon) + special.log_ndtr(-x / s))
        return np.maximum(0.0, q * (special.ndtr((1 - x) / s) - special.ndtr(-x / s)) - stay)

    largest_loss = -math.log1p(-q)

    def add(epsilon: FloatArray) -> FloatArray:
        inside = epsilon < largest_loss
        at = np.where(inside, epsilon, 0.0)
        # At the largest loss x is -inf, and both masses below it are zero.
        with np.errstate(divide="ignore"):
            x = 0.5 + s**2 * np.log1p(np.maximum(-1.0, np.expm1(-at) / q))
        # N(0) mass minus e^epsilon times the mixture's, both below x.
        stay = -(np.expm1(at) - q * np.exp(at)) * special.ndtr(x / s)
        value = stay - q * np.exp(at) * special.ndtr((x - 1) / s)
        return np.where(inside, np.maximum(0.0, value), 0.0)

    return Profile(remove, add)


def multi_row_replace_profile(weights: FloatArray, noise_multiplier: float) -> Profile:
    """A unit with several rows, replaced; `weights[j]` is the chance that j rows are used."""
    mixture = _Mixture(weights, noise_multiplier)

    def loss(x: FloatArray) -> FloatArray:
        return mixture.log_ratio(x) - mixture.log_ratio(-x)

    def slope(x: FloatArray) -> FloatArray:
        return mixture.log_ratio_slope(x) + mixture.log_ratio_slope(-x)

    def delta(epsilon: FloatArray) -> FloatArray:
        x = _solve_increasing(loss, slope, epsilon, start=0.0, step=mixture.step)
        return np.maximum(0.0, mixture.sf(x) - np.exp(epsilon + mixture.log_cdf(-x)))

    return Profile(delta)


def multi_row_remove_profile(weights: FloatArray, noise_multiplier: float) -> Profile:
    """A unit with several rows, added or removed."""
    mixture = _Mixture(weights, noise_multiplier)
    s = noise_multiplier

    def remove(epsilon: FloatArray) -> FloatArray:
        x = _solve_increasing(
            mixture.log_ratio, mixture.log_ratio_slope, epsilon, start=0.0, step=mixture.step
        )
        return np.maximum(0.0, mixture.sf(x) - np.exp(epsilon + special.log_ndtr(-x / s)))

    largest_loss = -math.log(weights[0]) if weights[0] > 0 else math.inf

    def add(epsilon: FloatArray) -> FloatArray:
        inside = epsilon < largest_loss
        at = np.where(inside, epsilon, 0.0)
        x = -_solve_increasing(
            lambda y: -mixture.log_ratio(-y),
            lambda y: mixture.log_ratio_slope(-y),
            at,
            start=-float(weights.size),
            step=mixture.step,
        )
        value = special.ndtr(x / s) - np.exp(at + mixture.log_cdf(x))
        return np.where(inside, np.maximum(0.0, value), 0.0)

    return Profile(remove, add)


class _Mixture:
    """sum_j b_j N(j, s^2) and its log density ratio to N(0, s^2)."""

    def __init__(self, weights: FloatArray, noise_multiplier: float) -> None:
        used = weights > 0
        self._shifts = np.flatnonzero(used).astype(np.float64)
        self._weights = weights[used]
        self._s = noise_multiplier
        self._offsets = np.log(self._weights) - 0.5 * (self._shifts / noise_multiplier) ** 2
        self.step = float(weights.size) + 10 * noise_multiplier

    def log_ratio(self, x: FloatArray) -> FloatArray:
        terms = self._offsets + np.multiply.outer(x, self._shifts / self._s**2)
        return np.asarray(special.logsumexp(terms, axis=-1))

    def log_ratio_slope(self, x: FloatArray) -> FloatArray:
        terms = self._offsets + np.multiply.outer(x, self._shifts / self._s**2)
        posterior = np.asarray(special.softmax(terms, axis=-1))
        return posterior @ (self._shifts / self._s**2)

    def log_cdf(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray(
                np.log(special.ndtr(np.subtract.outer(x, self._shifts) / self._s) @ self._weights)
            )

    def sf(self, x: FloatArray) -> FloatArray:
        return special.ndtr(-np.subtract.outer(x, self._shifts) / self._s) @ self._weights


def _solve_increasing(
    function: _Function, slope: _Function, targets: FloatArray, *, start: float, step: float
) -> FloatArray:
    """The x >= start with function(x) = target: a table, then Newton inside its brackets.

    An inexact x gives a test that is not the best one, so what is left of the
    error counts in delta by its square. Where a bounded function never reaches
    its target, the last table point is returned: both masses are zero there.
    """
    highest = float(np.max(targets, initial=0.0))
    reach = step
    while float(function(np.array([start + reach]))[0]) < highest and reach < 1e8 * step:
        reach *= 2
    # Losses grow like an exponential at first and like a line far out.
    near, far = np.linspace(0.0, step, 2049), np.geomspace(step, 2 * reach, 1025)
    table_x = start + np.concatenate((near, far[1:]))
    table_y = np.maximum.accumulate(function(table_x))
    index = np.clip(np.searchsorted(table_y, targets), 1, table_x.size - 1)
    low, high = table_x[index - 1], table_x[index]
    x = np.interp(targets, table_y, table_x)
    for _ in range(_MOST_NEWTON_STEPS):
        excess = function(x) - targets
        low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
        moved = x - excess / np.maximum(slope(x), 1e-300)
        moved = np.where((moved >= low) & (moved <= high), moved, (low + high) / 2)
        is_done = np.abs(moved - x) <= 1e-13 * (1 + np.abs(x))
        x = moved
        if is_done.all():
            break
    return x


def _log_expm1(x: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.asarray(x + np.log(-np.expm1(-x)))


def _log_sinh(x: FloatArray) -> FloatArray:
    return _log_expm1(2 * x) - x - math.log(2)


def _asinh_exp(x: FloatArray) -> FloatArray:
    return np.where(x > 20, x + math.log(2), np.arcsinh(np.exp(np.minimum(x, 20))))
