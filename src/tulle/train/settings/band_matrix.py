"""The matrix C of correlated noise C^-1 z: which noise a step takes back from earlier ones.

C is lower triangular and Toeplitz with few bands: entry (t, s) is c_{t-s} for t - s below
`num_bands`, and 0 otherwise. Its c are the first coefficients of (1 - x)^-a, scaled so that
no column is longer than 1. What a run adds up are prefix sums of its steps, and their noise
is that of A C^-1 z with A all ones on and below the diagonal; the exponent a makes the root
mean square of its rows least (Choquette-Choo et al. 2023, arXiv 2306.08153; McKenna 2024,
arXiv 2405.15913). Any a is private: it changes how useful the noise is, not how large.
"""

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count

Coefficients = NDArray[np.float64]

_EXPONENT_STEPS = 1000
"""Number of steps between exponents 0 and 1 in the search for the best one."""
_NEGLIGIBLE = 1e-18
"""Entries of C^-1 below this are taken as 0."""
_SHARE_LOST = 2.0**-24
"""Largest share of noise that cutting C^-1 may cost: as much as rounding to single precision."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandMatrix:
    """C for a public number of steps. Every field is public information."""

    num_bands: int
    num_steps: int

    def __post_init__(self) -> None:
        check_count("num_bands", self.num_bands)
        check_count("num_steps", self.num_steps)
        if self.num_bands > self.num_steps:
            raise ConfigError(
                f"num_bands={self.num_bands} must be <= num_steps={self.num_steps}; take fewer "
                "bands or more steps."
            )

    @property
    def exponent(self) -> float:
        """The best a in [0, 1), in thousandths."""
        return _best_exponent(self.num_bands, self.num_steps)

    @property
    def coefficients(self) -> Coefficients:
        """The first column of C: `num_bands` numbers, positive and falling, of norm 1."""
        return band_coefficients(self.num_bands, self.exponent)

    @property
    def prefix_error(self) -> float:
        """Root mean square error of prefix sums over that of independent noise of this size.

        At the same noise_multiplier. Batches of bands sample more, so they need more noise
        for the same epsilon.
        """
        return prefix_error(self.coefficients, self.num_steps)


def band_coefficients(num_bands: int, exponent: float) -> Coefficients:
    """The first coefficients of (1 - x)^-exponent, scaled to norm 1."""
    factors = (exponent + np.arange(num_bands - 1)) / np.arange(1, num_bands)
    raw: Coefficients = np.concatenate([[1.0], np.cumprod(factors)])
    return raw / float(np.linalg.norm(raw))


def inverse_coefficients(coefficients: Coefficients, num_steps: int) -> Coefficients:
    """The first column of C^-1: as many numbers as there are steps, or until all are negligible.

    Coefficients that fall and are positive have no root in the unit disc (Enestrom-Kakeya), so
    the inverse decays.
    """
    num_bands = len(coefficients)
    past = coefficients[:0:-1] / coefficients[0]
    # Zeros stand for the steps before the first, so that every step looks back equally far.
    found = np.zeros(num_bands - 1 + num_steps)
    found[num_bands - 1] = 1 / coefficients[0]
    for step in range(1, num_steps):
        last = found[step : step + num_bands - 1]
        if step % num_bands == 0 and np.abs(last).max(initial=0.0) < _NEGLIGIBLE:
            return found[num_bands - 1 : num_bands - 1 + step]
        found[num_bands - 1 + step] = -(past @ last)
    return found[num_bands - 1 :]


def short_inverse(coefficients: Coefficients, num_steps: int) -> tuple[Coefficients, float]:
    """The fewest numbers of C^-1 that are enough, and the share of noise that the rest can cost.

    Cut after some number, the noise is C^-1 z' with z' = (I - E) z, where E = I - C C'^-1 has
    entries e_k on `num_bands` - 1 diagonals. Its norm is at most the sum of their sizes, the
    share, so the covariance of z' is at least (1 - share)^2 I: z' is (1 - share) times
    independent normals plus further noise that knows no data. Noise that is larger by
    1 / (1 - share) is at least as private.

    Args:
      coefficients: The bands of C, from the diagonal on.
      num_steps: Number of steps of the run.

    Returns:
      The first numbers of the first column of C^-1, and the share.
    """
    inverse = inverse_coefficients(coefficients, num_steps)
    num_bands = len(coefficients)
    for size in range(num_bands, len(inverse), num_bands):
        last = inverse[size - num_bands + 1 : size]
        share = float(np.abs(np.convolve(coefficients, last)[num_bands - 1 :]).sum())
        if share <= _SHARE_LOST:
            return inverse[:size], share
    return inverse, 0.0


def prefix_error(coefficients: Coefficients, num_steps: int) -> float:
    """The error that `BandMatrix.prefix_error` gives, for any bands whose norm is 1."""
    inverse = inverse_coefficients(coefficients, num_steps)
    squares = np.full(num_steps, float(inverse.sum()) ** 2)
    squares[: len(inverse)] = np.cumsum(inverse) ** 2
    # The entry on diagonal k of A C^-1 is there num_steps - k times.
    times = np.arange(num_steps, 0, -1)
    return math.sqrt(float(squares @ times) / float(times.sum()))


@functools.lru_cache(maxsize=16)
def _best_exponent(num_bands: int, num_steps: int) -> float:
    """The error falls to its least value and rises from there: a search in thirds.

    Whole thousandths, so that rounding on another machine does not change the plan.
    """
    if num_bands == 1:
        return 0.0

    @functools.cache
    def error(place: int) -> float:
        coefficients = band_coefficients(num_bands, place / _EXPONENT_STEPS)
        return prefix_error(coefficients, num_steps)

    low, high = 0, _EXPONENT_STEPS - 1
    while high - low > 2:
        third = (high - low) // 3
        if error(low + third) <= error(high - third):
            high -= third
        else:
            low += third
    return min(range(low, high + 1), key=error) / _EXPONENT_STEPS
