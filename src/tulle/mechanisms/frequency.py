"""How often each value is held, estimated from noisy reports.

Every randomizer here is symmetric: a report supports the value that a unit
holds with one chance and any other value with a smaller one. These two chances
give the estimate and its variance (the "pure" protocols of Wang, Blocki, Li,
Jha 2017). They are exact fractions, so the estimate has no bias at all.
"""

import dataclasses
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BitMatrix = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupportProbs:
    """The chances that one report supports a value. Public."""

    if_held: Fraction
    """The unit holds this value."""
    if_not_held: Fraction
    """The unit holds another value."""


class FrequencyConfig(Protocol):
    """Settings of a randomizer whose reports support values."""

    @property
    def num_values(self) -> int:
        """How many values a unit may hold."""

    @property
    def support_probs(self) -> SupportProbs:
        """The chances that the sampler realises."""


def count_reports(reports: IntArray | BitMatrix, config: FrequencyConfig) -> IntArray:
    """How many reports support each value.

    Args:
      reports: What a `randomize` gave: one value a report, or one row of marks.
      config: The settings that the reports were made with.
    """
    if reports.dtype != np.bool_:
        checked = check_held_values(reports, config.num_values).reshape(-1)
        return np.bincount(checked, minlength=config.num_values).astype(np.int64)
    if reports.ndim != 2 or reports.shape[1] != config.num_values:
        raise DataError(
            f"reports has shape {reports.shape}; it needs num_values={config.num_values} columns, "
            "as randomize() makes them."
        )
    return np.asarray(reports.sum(axis=0), np.int64)


def debias_counts(
    report_counts: ArrayLike, num_reports: int, config: FrequencyConfig
) -> FloatArray:
    """Estimates how many units hold each value. Unbiased; may be negative.

    Args:
      report_counts: For each value, how many reports support it.
      num_reports: How many reports there are; public.
      config: The settings that the reports were made with.
    """
    counts = np.asarray(report_counts)
    if counts.shape != (config.num_values,):
        raise DataError(
            f"report_counts has shape {counts.shape}, config.num_values={config.num_values}; "
            "give one count for each value, made with count_reports()."
        )
    probs = config.support_probs
    expected_if_none = float(num_reports * probs.if_not_held)
    gain = float(probs.if_held - probs.if_not_held)
    return np.asarray((counts - expected_if_none) / gain, np.float64)


def variance_per_report(config: FrequencyConfig, *, frequency: float = 0.0) -> float:
    """Variance that one report adds to a debiased count, over the noise alone.

    Args:
      config: Settings of the randomizer.
      frequency: Share of the units that hold the value. For binary randomized
        response it changes nothing.
    """
    if not 0 <= frequency <= 1:
        raise ConfigError(f"frequency={frequency} must be in [0, 1].")
    probs = config.support_probs
    gain = probs.if_held - probs.if_not_held
    if_held, if_not_held = (
        float(prob * (1 - prob) / gain**2) for prob in (probs.if_held, probs.if_not_held)
    )
    return frequency * if_held + (1 - frequency) * if_not_held


def check_held_values(raw_values: ArrayLike, num_values: int) -> IntArray:
    """The values as integers from 0 to num_values - 1; else an error that hides them.

    Privacy:
      Releases nothing: the error shows none of the values.
    """
    values = np.asarray(raw_values)
    if values.dtype.kind not in "iub" and values.size:
        raise DataError(
            f"raw_values has type {values.dtype}; values must be whole numbers below "
            f"num_values={num_values}. Drop missing values and encode categories first."
        )
    if values.size and not (values.min() >= 0 and values.max() < num_values):
        raise DataError(
            f"raw_values has entries outside 0 to num_values - 1 = {num_values - 1}; "
            "encode them first, with one code for 'other'."
        )
    return values.astype(np.int64, copy=False)
