"""How large an error will be, before anything is measured.

Noise is known beforehand; what is not known are the counts. Counts of a past period or a guess
take their place. A relative error divides by the count, but by no less than `tau`: nobody acts
on the relative error of a slice with three conversions.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError

FloatArray = NDArray[np.float64]


def expected_relative_errors(
    expected_counts: ArrayLike,
    noise_variances: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    tau: float,
) -> FloatArray:
    """Root mean square error of each slice over max(tau, its expected count).

    Args:
      expected_counts: Expected count of each slice, >= 0: public, or from a past period.
      noise_variances: Noise variance of each slice, or one for all.
      bias: Expected value minus count, e.g. what clipping cuts off. None for none.
      tau: Counts below it are taken as this; > 0.
    """
    if not 0 < tau < math.inf:
        raise ConfigError(f"tau={tau} must be > 0 and finite, e.g. 5 for counts.")
    counts = _finite("expected_counts", expected_counts, least=0.0)
    variances = _fitting("noise_variances", noise_variances, counts, least=0.0)
    biases = _fitting("bias", 0.0 if bias is None else bias, counts, least=-math.inf)
    return np.asarray(np.sqrt(biases**2 + variances) / np.maximum(tau, counts), np.float64)


def rmsre(
    expected_counts: ArrayLike,
    noise_variances: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    tau: float,
) -> float:
    """Root mean square of the relative errors over all slices (RMSRE at tau).

    Args:
      expected_counts: Expected count of each slice, >= 0, of at least one slice.
      noise_variances: Noise variance of each slice, or one for all.
      bias: Expected value minus count, e.g. what clipping cuts off. None for none.
      tau: Counts below it are taken as this; > 0.
    """
    errors = expected_relative_errors(expected_counts, noise_variances, bias=bias, tau=tau)
    if errors.size == 0:
        raise DataError("expected_counts is empty; a mean error needs at least one slice.")
    return root_mean_square(errors)


def root_mean_square(errors: ArrayLike) -> float:
    """RMSRE of the relative errors of slices, or of that of several numbers; 0 of none."""
    squares = np.asarray(errors, np.float64) ** 2
    return math.sqrt(float(np.mean(squares))) if squares.size else 0.0


def smallest_count_within(relative_error: float, half_width: float) -> int:
    """The smallest count whose noise is at most a share of it, where noise is within a width.

    Args:
      relative_error: Relative error, for example 0.1 for 10%.
      half_width: What the noise exceeds in size with the probability that may be missed.
    """
    if not 0 < relative_error < math.inf:
        raise ConfigError(f"relative_error={relative_error} must be > 0, e.g. 0.1 for 10%.")
    if not 0 <= half_width < math.inf:
        raise ConfigError(f"half_width={half_width} must be >= 0 and finite.")
    count = max(1, math.ceil(half_width / relative_error))
    # A quotient that rounds up past a whole number, or down to it, is off by one.
    if count > 1 and relative_error * (count - 1) >= half_width:
        return count - 1
    return count if relative_error * count >= half_width else count + 1


def _finite(name: str, values: ArrayLike, *, least: float) -> FloatArray:
    array = np.asarray(values, np.float64)
    if not np.all(np.isfinite(array)) or np.any(array < least):
        limit = "" if math.isinf(least) else f" and >= {least:g}"
        raise DataError(f"{name} must be finite{limit} for every slice; correct or drop the rest.")
    return array


def _fitting(name: str, values: ArrayLike, counts: FloatArray, *, least: float) -> FloatArray:
    array = _finite(name, values, least=least)
    if array.shape not in {(), counts.shape}:
        raise DataError(
            f"{name} has shape {array.shape}, expected_counts {counts.shape}; "
            "give one number for each slice, or one for all."
        )
    return array
