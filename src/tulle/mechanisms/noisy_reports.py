"""What noisy reports say: how often each value is held, and what a binary label was.

Every randomizer of one value out of a few is symmetric: a report supports the value that a unit
holds with one probability and any other value with a smaller one. These two give the estimate of a
count and its variance (the "pure" protocols of Wang, Blocki, Li, Jha 2017). They are exact
fractions, so the estimate has no bias at all.

Of a binary label they are all that training and measuring need: targets without bias, their
variance, weights, the probability of a report, and the way back from a model of reports to one of
labels. Everything here works on reports, so it costs no privacy.
"""

import dataclasses
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_prob

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BitMatrix = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupportProbs:
    """The probabilities that one report supports a value. Public."""

    if_held: Fraction
    """Probability where the unit holds this value."""
    if_not_held: Fraction
    """Probability where the unit holds another value."""


class SupportConfig(Protocol):
    """Settings of a randomizer whose reports support values."""

    @property
    def num_values(self) -> int:
        """Number of values that a unit may hold."""

    @property
    def support_probs(self) -> SupportProbs:
        """The probabilities that the sampler realises."""


def count_reports(reports: IntArray | BitMatrix, config: SupportConfig) -> IntArray:
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


def debias_counts(report_counts: ArrayLike, num_reports: int, config: SupportConfig) -> FloatArray:
    """Estimates how many units hold each value. Unbiased; may be negative.

    Args:
      report_counts: Number of reports that support each value.
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


def variance_per_report(config: SupportConfig, *, frequency: float = 0.0) -> float:
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BinaryChannel:
    """The probabilities of a report of 1. Public."""

    prob_if_negative: FloatArray
    """Probability for a label of 0: one number, or one a row."""
    prob_if_positive: FloatArray
    """Probability for a label of 1, larger than the other: the report must favour the truth."""

    def __post_init__(self) -> None:
        negative = np.asarray(self.prob_if_negative, np.float64)
        positive = np.asarray(self.prob_if_positive, np.float64)
        if negative.shape != positive.shape or negative.ndim > 1:
            raise ConfigError(
                f"prob_if_negative has the shape {negative.shape} and prob_if_positive "
                f"{positive.shape}; give two numbers, or two for each row."
            )
        if not np.all((negative >= 0) & (negative < positive) & (positive <= 1)):
            raise ConfigError(
                "prob_if_negative and prob_if_positive must satisfy 0 <= negative < positive <= 1; "
                "swap the values of the label if reports favour the wrong one."
            )
        object.__setattr__(self, "prob_if_negative", negative)
        object.__setattr__(self, "prob_if_positive", positive)

    @classmethod
    def of_response(cls, config: SupportConfig) -> "BinaryChannel":
        """The channel that the sampler of binary randomized response realises."""
        if config.num_values != 2:
            raise ConfigError(
                f"num_values={config.num_values} must be 2: a binary channel has two labels."
            )
        probs = config.support_probs
        return cls(
            prob_if_negative=np.asarray(float(probs.if_not_held)),
            prob_if_positive=np.asarray(float(probs.if_held)),
        )

    @property
    def gain(self) -> FloatArray:
        """Difference that a label of 1 makes to the probability of a report of 1."""
        return self.prob_if_positive - self.prob_if_negative

    def debiased_targets(self, reports: ArrayLike) -> FloatArray:
        """Real-valued targets whose mean over the noise is the label; outside [0, 1]."""
        return (self._checked(reports) - self.prob_if_negative) / self.gain

    def target_variance(self, label: int) -> FloatArray:
        """Variance of the target of a row with this label, over the noise."""
        if label not in (0, 1):
            raise ConfigError(f"label={label!r} must be 0 or 1.")
        prob = self.prob_if_positive if label else self.prob_if_negative
        return prob * (1 - prob) / self.gain**2

    def mean_variance(self, base_rate: float) -> FloatArray:
        """Variance of the target where this share of the labels is 1, over the noise."""
        check_prob("base_rate", base_rate)
        positive, negative = self.target_variance(1), self.target_variance(0)
        return base_rate * positive + (1 - base_rate) * negative

    def weights(self, base_rate: float) -> FloatArray:
        """Weight of each row in a mean: 1 over the variance of its target, label included."""
        spread = base_rate * (1 - base_rate)
        return 1 / (self.mean_variance(base_rate) + spread)

    def report_probs(self, label_probs: ArrayLike) -> FloatArray:
        """Probability of a report of 1 from the probability of a label of 1."""
        return self.prob_if_negative + self.gain * np.asarray(label_probs, np.float64)

    def label_probs(self, report_probs: ArrayLike, *, least: float = 0.001) -> FloatArray:
        """Probability of a label of 1 from that of a report of 1, kept within [least, 1].

        Calibrates a model that was trained on reports as if they were labels. With one
        channel for all rows the order of the rows stays, but for ties at the ends.
        """
        probs = np.asarray(report_probs, np.float64)
        return np.clip((probs - self.prob_if_negative) / self.gain, least, 1.0)

    def _checked(self, reports: ArrayLike) -> FloatArray:
        values = np.asarray(reports)
        if values.dtype.kind not in "biuf" or not ((values == 0) | (values == 1)).all():
            raise DataError("reports must be the numbers 0 and 1, as the release has them.")
        if self.gain.ndim and values.shape != self.gain.shape:
            raise DataError(
                f"reports have the shape {values.shape} and the channel {self.gain.shape}; give "
                "one report for each row of the channel, in its order."
            )
        return values.astype(np.float64)
