"""Randomized response on a label that is 0 or 1, or one of K classes, ready to train on.

No other mechanism of the same epsilon says more about one bit: every one of them is
a randomized response whose report was garbled further (Kairouz, Oh, Viswanath 2016).
What is left to choose is how to train on the reports: the targets and the channel
that come with them serve debiased losses, forward correction and calibration.

With K classes a report is the truth, or, with probability p, a class drawn evenly. So the mean over
the noise of any function g of the report is (1 - p) g(truth) + p mean(g), and what
undoes it is g' = (g(report) - p mean(g)) / (1 - p). One-hot targets are such functions.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.labels.label_mechanism import (
    ChannelFacts,
    ChannelTable,
    DescribedMechanism,
    Description,
    LabelKind,
    NoisyLabels,
    response_table,
)
from tulle.labels.label_noise import RowNoise
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import (
    Bits,
    RandomizedResponseConfig,
    release_randomized_bits,
    release_randomized_response,
)
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.fields import check_count

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinaryResponse:
    """Randomized response on labels 0 and 1, with its epsilon. Every field is public."""

    epsilon: float
    """Largest log-likelihood ratio of a report between the two labels."""

    label_kind: ClassVar[LabelKind] = LabelKind.BITS
    has_rising_outputs: ClassVar[bool] = False
    rests_on_prior: ClassVar[bool] = False
    far_labels: ClassVar[tuple[float, float]] = (0, 1)
    name: ClassVar[str] = "rr"

    def __post_init__(self) -> None:
        _ = self.response

    @functools.cached_property
    def response(self) -> RandomizedResponseConfig:
        """The settings of the sampler."""
        return RandomizedResponseConfig(epsilon=self.epsilon)

    @functools.cached_property
    def channel(self) -> BinaryChannel:
        """The probabilities that the sampler realises."""
        return BinaryChannel.of_response(self.response)

    def event(self) -> RandomizedResponse:
        """What one noisy label of a unit costs."""
        return self.response.event()

    def variance(self, label: int) -> float:
        """Variance of the target over the noise; the same for both labels."""
        return float(self.channel.target_variance(label))

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels other than 0 and 1, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        _checked_bits(raw_labels)

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Labels 0 and 1, as numbers or truth values.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own.
          Event: one RandomizedResponse. Relies on: one label a unit, drawn once.
        """
        reports = release_randomized_bits(_checked_bits(raw_labels), self.response, rng=rng)
        return NoisyLabels(
            labels=reports,
            targets=self.channel.debiased_targets((0, 1))[reports],
            noise_variance=np.asarray(self.variance(0)),
            channel=self.channel,
        )

    def describe(self) -> dict[str, Any]:
        """Settings and the channel's numbers as plain data."""
        low, high = self.channel.debiased_targets((0, 1)).tolist()
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "prob_if_negative": float(self.channel.prob_if_negative),
            "prob_if_positive": float(self.channel.prob_if_positive),
            "target_of_report_0": low,
            "target_of_report_1": high,
            "noise_variance": self.variance(0),
        }

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """The channel of two labels, from what `describe` said."""
        negative, positive = described["prob_if_negative"], described["prob_if_positive"]
        probs = [(1 - prob, prob) for prob in (negative, positive)]
        return ChannelFacts(
            pictures=(ChannelTable(labels=("0", "1"), reports=("0", "1"), probs=probs),),
            variance=described["noise_variance"],
            true_report_prob=(1 - negative + positive) / 2,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinaryRr:
    """Randomized response on each label of 0 or 1."""

    kind: ClassVar[str] = BinaryResponse.name
    mechanism_class: ClassVar[type[DescribedMechanism]] = BinaryResponse

    @classmethod
    def example(cls) -> "BinaryRr":
        """Settings for audits and contracts."""
        return cls()

    def noise(self, epsilon: float) -> RowNoise:
        """The noise on labels that costs this epsilon in all."""
        return RowNoise(mechanism=BinaryResponse(epsilon=epsilon))


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

    def event(self) -> RandomizedResponse:
        """What one noisy label of a unit costs."""
        return self.response.event()

    def debiased_indicators(self, reports: NDArray[Any]) -> FloatArray:
        """One row of K targets a report, whose mean over the noise is the label's one-hot row."""
        probs = self.response.support_probs
        # 1 - p as a difference of exact fractions: no digit is lost near p = 1.
        gain = float(probs.if_held - probs.if_not_held)
        table = (np.eye(self.num_classes) - self.random_prob / self.num_classes) / gain
        return np.asarray(table[checked_classes(reports, self.num_classes)])

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels that are not a class, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        checked_classes(raw_labels, self.num_classes)

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Classes from 0 to num_classes - 1.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own.
          Event: one RandomizedResponse. Relies on: one label a unit, drawn once.
        """
        classes = checked_classes(raw_labels, self.num_classes)
        return self.noisy_labels(release_randomized_response(classes, self.response, rng=rng))

    def noisy_labels(self, reports: IntArray) -> NoisyLabels:
        """The reports with what to train on, which only two classes have."""
        if self.num_classes > 2:
            return NoisyLabels(labels=reports, targets=None, noise_variance=None)
        channel = BinaryChannel.of_response(self.response)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassRr:
    """Randomized response on each label of several classes."""

    num_classes: int
    """Number of classes n; labels are 0 to n - 1. Public."""

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


def _checked_bits(raw_labels: NDArray[Any]) -> Bits:
    labels = np.asarray(raw_labels)
    if labels.dtype == np.bool_:
        return labels.view(np.uint8)
    is_number = labels.dtype.kind in "iuf"
    # Bytes are told by their largest value, which is far cheaper than two comparisons.
    is_byte = labels.dtype == np.uint8
    is_binary = is_number and (
        labels.size == 0
        or bool(labels.max() <= 1 if is_byte else ((labels == 0) | (labels == 1)).all())
    )
    if not is_binary:
        raise DataError(
            "labels must be 0 or 1 and not missing; drop rows without a label and encode the "
            "others first, or use a mechanism for classes or numbers."
        )
    return labels.astype(np.uint8, copy=False)
