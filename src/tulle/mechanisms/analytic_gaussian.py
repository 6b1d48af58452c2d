"""The exact privacy of Gaussian noise, and the least noise for a guarantee.

Balle and Wang 2018, theorem 8: with mu = distance / noise_multiplier,
delta = Phi(a) - e^epsilon Phi(a - mu), a = mu / 2 - epsilon / mu. As
e^epsilon phi(a - mu) = phi(a), this is phi(a) times
integral over s > 0 of exp(a s - s^2 / 2) (1 - exp(-mu s)) ds,
in which nothing cancels, however small delta is.
"""

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError

_SAFETY = 1e-10
"""Relative error allowed for when a delta must not be exceeded; the true one is below 1e-12."""
_NUM_NODES = 100
"""Nodes of the quadrature. Half and twice as many agree to 1e-13, relative."""
_DEPTH = 50.0
"""Exponent up to which the integrand is summed: beyond it e^-50 is left."""
_FAR = 10**6
"""Number of deviations from which on a tail is zero in every float: e^(-10^12 / 2) underflows."""
_HALF_LOG_TAU = 0.5 * math.log(math.tau)
"""Logarithm of the normal density's constant: tails are taken in logarithms, as they underflow
otherwise."""


def gaussian_delta(epsilon: float, noise_multiplier: float, distance: float = 1.0) -> float:
    """The least delta of Gaussian noise at `epsilon`, for neighbours `distance` apart.

    Args:
      epsilon: Where delta is asked for, at least 0.
      noise_multiplier: Noise standard deviation over the largest contribution.
      distance: Distance of two neighbours over the largest contribution: 1 under
        add-remove, the replace factor under replace.
    """
    _check_epsilon(epsilon, least=0.0)
    _check_positive("noise_multiplier", noise_multiplier)
    _check_positive("distance", distance)
    log_delta = _log_delta(epsilon, noise_multiplier, distance)
    # Just below e^-745 floats end, and delta is 0 as a float.
    return math.exp(log_delta) if log_delta > -745 else 0.0


def gaussian_epsilon(delta: float, noise_multiplier: float, distance: float = 1.0) -> float:
    """The least epsilon of Gaussian noise at `delta`, never below the exact one.

    Args:
      delta: Probability that the bound may fail.
      noise_multiplier: Noise standard deviation over the largest contribution.
      distance: Distance of two neighbours over the largest contribution.
    """
    _check_delta(delta)
    _check_positive("noise_multiplier", noise_multiplier)
    _check_positive("distance", distance)

    def is_private(epsilon: float) -> bool:
        return _fits(epsilon, delta, noise_multiplier, distance)

    if is_private(0.0):
        return 0.0
    # Enough for every delta: P(loss > epsilon) <= delta (zCDP, Bun and Steinke 2016).
    mu = distance / noise_multiplier
    half_square = 0.5 * mu * mu
    enough = half_square + 2 * math.sqrt(half_square * -math.log(delta))
    if not math.isfinite(enough):
        raise ConfigError(
            f"noise_multiplier={noise_multiplier} is too small for distance={distance}; raise it."
        )
    return _least(is_private, enough)


def calibrate_gaussian(epsilon: float, delta: float, distance: float = 1.0) -> float:
    """The least noise multiplier that is (epsilon, delta)-private, never below the exact one.

    Args:
      epsilon: What one release may cost.
      delta: Probability that the bound may fail.
      distance: Distance of two neighbours over the largest contribution.
    """
    _check_epsilon(epsilon, least=1e-9)
    _check_delta(delta)
    _check_positive("distance", distance)

    def is_private(noise_multiplier: float) -> bool:
        return _fits(epsilon, delta, noise_multiplier, distance)

    return _least(is_private, distance)


def _fits(epsilon: float, delta: float, noise_multiplier: float, distance: float) -> bool:
    return _log_delta(epsilon, noise_multiplier, distance) + _SAFETY <= math.log(delta)


def _least(holds: Callable[[float], bool], start: float) -> float:
    """The least float > 0 from which on a monotone statement holds, to a part in 2^50."""
    high = start
    while not holds(high):
        high *= 2
    low = high / 2
    while holds(low):
        low, high = low / 2, low
    while high - low > 2.0**-50 * high:
        middle = low + (high - low) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _log_delta(epsilon: float, noise_multiplier: float, distance: float) -> float:
    # Exact rationals: both terms of a may be huge and nearly equal.
    mu = Fraction(distance) / Fraction(noise_multiplier)
    a = mu / 2 - Fraction(epsilon) / mu
    if abs(a) > _FAR:
        return 0.0 if a > 0 else -math.inf
    log_density = float(-a * a / 2) - _HALF_LOG_TAU
    if a > 5:
        # Phi(a) is nearly 1 and the other term small beside it.
        other = math.exp(log_density) * _mills_ratio(float(mu - a))
        return math.log1p(-0.5 * math.erfc(float(a) / math.sqrt(2)) - other)
    return log_density + math.log(_mills_difference(float(-a), float(mu)))


def _mills_difference(start: float, step: float) -> float:
    """m(start) - m(start + step), m(x) = integral over s > 0 of exp(-x s - s^2 / 2)."""
    first = _mills_ratio(start)
    second = _mills_ratio(start + step)
    if second < 0.5 * first:
        return first - second
    nodes, weights = _scaled_nodes(start)
    decay = np.exp(-start * nodes - 0.5 * nodes**2)
    return float(np.sum(weights * decay * -np.expm1(-step * nodes)))


def _mills_ratio(x: float) -> float:
    """The normal tail beyond x over its density at x."""
    nodes, weights = _scaled_nodes(x)
    return float(np.sum(weights * np.exp(-x * nodes - 0.5 * nodes**2)))


def _scaled_nodes(x: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss-Legendre nodes up to where x s + s^2 / 2 = 50, beyond which e^-50 is left."""
    nodes, weights = _unit_nodes()
    end = 2 * _DEPTH / (x + math.sqrt(x * x + 2 * _DEPTH))
    return nodes * end, weights * end


@functools.cache
def _unit_nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NUM_NODES)
    return (nodes + 1) / 2, weights / 2


def _check_epsilon(epsilon: float, *, least: float) -> None:
    if not least <= epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon} must be finite and >= {least}, e.g. 1.0.")


def _check_delta(delta: float) -> None:
    if not 1e-300 <= delta < 1:
        raise ConfigError(f"delta={delta} must be in [1e-300, 1), e.g. 1e-7.")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}={value} must be > 0 and finite.")
