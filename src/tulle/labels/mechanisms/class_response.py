"""Randomized response on a label that is one of K classes.

A report is the truth, or, with probability p, a class drawn evenly. So the mean over
the noise of any function g of the report is (1 - p) g(truth) + p mean(g), and what
undoes it is g' = (g(report) - p mean(g)) / (1 - p). Counts, one-hot targets and
losses for each class are all such functions.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.labels.label_mechanism import (
    ChannelFacts,
    DescribedMechanism,
    Description,
    LabelKind,
    NoisyLabels,
    response_table,
)
from tulle.labels.label_noise import RowNoise
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import BinaryChannel, count_reports, debias_counts
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_response,
)
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.fields import check_count

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassResponse:
    """Randomized response on classes, with its epsilon. Every field is public."""

    epsilon: float
    """Largest log-likelihood ratio of a report between any two classes."""
    num_classes: int
    """Number of classes, which are counted from 0; all of them can be reported."""

    label_kind: ClassVar[LabelKind] = LabelKind.CLASSES
    has_rising_outputs: ClassVar[bool] = False
    rests_on_prior: ClassVar[bool] = False
    far_labels: ClassVar[tuple[float, float]] = (0, 1)
    name: ClassVar[str] = "class-rr"

    def __post_init__(self) -> None:
        check_count("num_classes", self.num_classes, least=2)
        _ = self.response

    @functools.cached_property
    def response(self) -> RandomizedResponseConfig:
        """The settings of the sampler."""
        return RandomizedResponseConfig(epsilon=self.epsilon, num_values=self.num_classes)

    @property
    def random_prob(self) -> float:
        """Probability p with which a report is drawn evenly, as the sampler realises it."""
        return float(self.num_classes * self.response.support_probs.if_not_held)

    @property
    def channel(self) -> BinaryChannel | None:
        """The channel of two classes; None for more."""
        return BinaryChannel.of_response(self.response) if self.num_classes == 2 else None

    def event(self) -> RandomizedResponse:
        """What one noisy label of a unit costs."""
        return self.response.event()

    def debiased_counts(self, reports: NDArray[Any]) -> FloatArray:
        """How many rows have each class, estimated without bias; may be negative."""
        counts = count_reports(self._checked(reports), self.response)
        return debias_counts(counts, int(np.size(reports)), self.response)

    def debiased_indicators(self, reports: NDArray[Any]) -> FloatArray:
        """One row of K targets a report, whose mean over the noise is the label's one-hot row."""
        return self.debiased_values(np.eye(self.num_classes), reports)

    def debiased_values(self, class_values: ArrayLike, reports: NDArray[Any]) -> FloatArray:
        """What to use for a function of the class so that its mean is that of the true class.

        Args:
          class_values: The function, one number or one vector for each class.
          reports: Noisy labels.
        """
        return self._debiased_table(class_values)[self._checked(reports)]

    def mean(self, label: int, class_values: ArrayLike) -> FloatArray:
        """Mean over the noise of the debiased function for a row with this label."""
        return np.asarray(self._report_probs(label) @ self._debiased_table(class_values))

    def variance(self, label: int, class_values: ArrayLike) -> FloatArray:
        """Variance over the noise of the debiased function for a row with this label."""
        # A report is the truth with probability 1 - p and even otherwise, so with d the distance of
        # g from g(truth): Var g(report) = p mean(d^2) - (p mean(d))^2.
        values = self._checked_values(class_values)
        self._report_probs(label)
        distances = values - values[label]
        random_prob = self.random_prob
        spread = random_prob * (distances**2).mean(axis=0)
        drift = random_prob * distances.mean(axis=0)
        return np.asarray((spread - drift**2) / self._gain**2)

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels that are not a class, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        self._checked(raw_labels)

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Classes from 0 to num_classes - 1.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own.
          Event: one RandomizedResponse. Relies on: one label a unit, drawn once.
        """
        reports = release_randomized_response(self._checked(raw_labels), self.response, rng=rng)
        channel = self.channel
        if channel is None:
            return NoisyLabels(labels=reports, targets=None, noise_variance=None)
        return NoisyLabels(
            labels=reports,
            targets=channel.debiased_targets(reports),
            noise_variance=channel.target_variance(0),
            channel=channel,
        )

    def describe(self) -> dict[str, Any]:
        """Settings and the channel's numbers as plain data."""
        probs = self.response.support_probs
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "num_classes": self.num_classes,
            "prob_of_the_truth": float(probs.if_held),
            "prob_of_each_other_class": float(probs.if_not_held),
            "random_prob": self.random_prob,
        }

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """The channel of all classes, from what `describe` said."""
        names = [str(number) for number in range(described["num_classes"])]
        truth, other = described["prob_of_the_truth"], described["prob_of_each_other_class"]
        return ChannelFacts(pictures=(response_table(names, truth, other),), true_report_prob=truth)

    @property
    def _gain(self) -> float:
        """1 - p, without the loss of digits near p = 1."""
        probs = self.response.support_probs
        return float(probs.if_held - probs.if_not_held)

    def _debiased_table(self, class_values: ArrayLike) -> FloatArray:
        values = self._checked_values(class_values)
        return np.asarray((values - self.random_prob * values.mean(axis=0)) / self._gain)

    def _checked_values(self, class_values: ArrayLike) -> FloatArray:
        values = np.asarray(class_values, np.float64)
        if values.ndim == 0 or values.shape[0] != self.num_classes:
            raise ConfigError(
                f"class_values has the shape {values.shape}; give one number or one vector for "
                f"each of the num_classes={self.num_classes} classes."
            )
        return values

    def _report_probs(self, label: int) -> FloatArray:
        if label not in range(self.num_classes):
            raise ConfigError(f"label={label!r} must be from 0 to {self.num_classes - 1}.")
        probs = self.response.support_probs
        report_probs = np.full(self.num_classes, float(probs.if_not_held))
        report_probs[label] = float(probs.if_held)
        return report_probs

    def _checked(self, raw_labels: NDArray[Any]) -> IntArray:
        return checked_classes(raw_labels, self.num_classes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassRr:
    """Randomized response on each label of several classes."""

    num_classes: int
    """Number of classes, which are 0 to this less one. Public."""

    kind: ClassVar[str] = ClassResponse.name
    mechanism_class: ClassVar[type[DescribedMechanism]] = ClassResponse

    def __post_init__(self) -> None:
        check_count("num_classes", self.num_classes, least=2)

    @classmethod
    def example(cls) -> "ClassRr":
        """Four classes, for audits and contracts."""
        return cls(num_classes=4)

    def noise(self, epsilon: float) -> RowNoise:
        """The noise on labels that costs this epsilon in all."""
        return RowNoise(mechanism=ClassResponse(epsilon=epsilon, num_classes=self.num_classes))


def checked_classes(raw_labels: NDArray[Any], num_classes: int) -> IntArray:
    """Labels as whole numbers below `num_classes`; else an error that hides them.

    Privacy:
      Releases nothing: the error shows none of the labels.
    """
    labels = np.asarray(raw_labels)
    if labels.dtype.kind in "biuf":
        if not labels.size:
            return labels.astype(np.int64)
        with np.errstate(invalid="ignore"):
            is_class = (labels >= 0) & (labels < num_classes)
            if labels.dtype.kind == "f":
                is_class &= labels == np.floor(labels)
        if is_class.all():
            return labels.astype(np.int64, copy=False)
    raise DataError(
        f"labels must be classes from 0 to num_classes - 1 = {num_classes - 1} and not missing; "
        "drop rows without a label and encode the others first."
    )
