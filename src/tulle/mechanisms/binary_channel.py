"""What randomized reports of a binary label say about it.

A report is 1 with one chance if the label is 0 and with a larger one if it is 1.
These two chances, the same for all rows or one pair a row, are all that training
and measuring need: they give targets without bias, their variance, weights, the
chance of a report, and the way back from a model of reports to one of labels.
Everything here works on reports, so it costs no privacy.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.randomized_response import RandomizedResponseConfig

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BinaryChannel:
    """The chances of a report of 1. Public."""

    prob_if_negative: FloatArray
    """Label 0. One number, or one a row."""
    prob_if_positive: FloatArray
    """Label 1. Larger than the other: the report must favour the truth."""

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
    def of_response(cls, config: RandomizedResponseConfig) -> "BinaryChannel":
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
        """By how much a label of 1 raises the chance of a report of 1."""
        return self.prob_if_positive - self.prob_if_negative

    def debiased_targets(self, reports: ArrayLike) -> FloatArray:
        """Real-valued targets whose mean over the noise is the label; outside [0, 1]."""
        return (self._checked(reports) - self.prob_if_negative) / self.gain

    def target_variance(self, label: int) -> FloatArray:
        """Variance of the target of a row with this label, over the noise."""
        if label not in (0, 1):
            raise ConfigError(f"label={label!r} must be 0 or 1.")
        chance = self.prob_if_positive if label else self.prob_if_negative
        return chance * (1 - chance) / self.gain**2

    def mean_variance(self, base_rate: float) -> FloatArray:
        """Variance of the target where this share of the labels is 1, over the noise."""
        _check_base_rate(base_rate)
        positive, negative = self.target_variance(1), self.target_variance(0)
        return base_rate * positive + (1 - base_rate) * negative

    def weights(self, base_rate: float) -> FloatArray:
        """Weight of each row in a mean: 1 over the variance of its target, label included."""
        spread = base_rate * (1 - base_rate)
        return 1 / (self.mean_variance(base_rate) + spread)

    def report_probs(self, label_probs: ArrayLike) -> FloatArray:
        """The chance of a report of 1 from the chance of a label of 1."""
        return self.prob_if_negative + self.gain * np.asarray(label_probs, np.float64)

    def label_probs(self, report_probs: ArrayLike, *, least: float = 0.001) -> FloatArray:
        """The chance of a label of 1 from that of a report of 1, kept within [least, 1].

        Calibrates a model that was trained on reports as if they were labels. With one
        channel for all rows the order of the rows stays, but for ties at the ends.
        """
        chances = np.asarray(report_probs, np.float64)
        return np.clip((chances - self.prob_if_negative) / self.gain, least, 1.0)

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


def _check_base_rate(base_rate: float) -> None:
    if not 0 < base_rate < 1:
        raise ConfigError(f"base_rate={base_rate} must be between 0 and 1, e.g. 0.05.")
