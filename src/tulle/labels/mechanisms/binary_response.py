"""Randomized response on a binary label, ready to train on.

No other mechanism of the same epsilon says more about one bit: every one of them is
a randomized response whose report was garbled further (Kairouz, Oh, Viswanath 2016).
What is left to choose is how to train on the reports: the targets and the channel
that come with them serve debiased losses, forward correction and calibration.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.labels.label_mechanism import (
    ChannelFacts,
    ChannelTable,
    DescribedMechanism,
    Description,
    LabelKind,
    NoisyLabels,
)
from tulle.labels.label_noise import RowNoise
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import (
    Bits,
    RandomizedResponseConfig,
    release_randomized_bits,
)
from tulle.privacy.events import RandomizedResponse


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

    def mean(self, label: int) -> float:
        """Mean of the target of a row with this label, over the noise: the label itself."""
        if label not in (0, 1):
            raise ConfigError(f"label={label!r} must be 0 or 1.")
        return float(label)

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
