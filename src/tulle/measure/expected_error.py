"""How large an error will be, before anything is measured.

Noise is known beforehand; what is not known are the counts. Counts of a past period or a guess
take their place. A relative error divides by the count, but by no less than `tau`: nobody acts
on the relative error of a slice with three conversions.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.intervals import CentredNoise, check_confidence, normal_quantile

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
      expected_counts: Of each slice, >= 0: public, or from a past period.
      noise_variances: Of each slice, or one for all.
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

    Arguments as for `expected_relative_errors`, with at least one slice.
    """
    errors = expected_relative_errors(expected_counts, noise_variances, bias=bias, tau=tau)
    if errors.size == 0:
        raise DataError("expected_counts is empty; a mean error needs at least one slice.")
    return root_mean_square(errors)


def root_mean_square(errors: ArrayLike) -> float:
    """RMSRE of the relative errors of slices, or of that of several numbers; 0 of none."""
    squares = np.asarray(errors, np.float64) ** 2
    return math.sqrt(float(np.mean(squares))) if squares.size else 0.0


def smallest_count_within(
    relative_error: float, noise: CentredNoise, *, confidence: float = 0.95, steps: int = 1
) -> int:
    """The smallest count whose noisy value is off by at most a share of it, with confidence.

    Args:
      relative_error: For example 0.1 for 10%.
      noise: The noise on the slice, by its exact law.
      confidence: Chance that the error stays within.
      steps: Whole steps of noise that make one count.
    """
    _check_relative_error(relative_error)
    if steps < 1:
        raise ConfigError(f"steps={steps} must be >= 1.")
    return _least_count(noise.half_width(confidence) / steps, relative_error)


def smallest_count_within_normal(
    relative_error: float, noise_stddev: float, *, confidence: float = 0.95
) -> int:
    """As `smallest_count_within`, for sums of many noises, which are nearly normal."""
    _check_relative_error(relative_error)
    check_confidence(confidence)
    if not 0 <= noise_stddev < math.inf:
        raise ConfigError(f"noise_stddev={noise_stddev} must be >= 0 and finite.")
    quantile = normal_quantile(confidence)
    return _least_count(quantile * noise_stddev, relative_error)


def _least_count(half_width: float, relative_error: float) -> int:
    count = max(1, math.ceil(half_width / relative_error))
    # A quotient that rounds up past a whole number, or down to it, is off by one.
    if count > 1 and relative_error * (count - 1) >= half_width:
        return count - 1
    return count if relative_error * count >= half_width else count + 1


def _check_relative_error(relative_error: float) -> None:
    if not 0 < relative_error < math.inf:
        raise ConfigError(f"relative_error={relative_error} must be > 0, e.g. 0.1 for 10%.")


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
