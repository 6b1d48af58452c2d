"""Randomized labels of training rows: drawn once, each by its own share of epsilon.

This is the randomized response of `tulle.mechanisms` and its binary channel, as a released
table has them. All labels alike, or those of a user share one epsilon by their number,
which is public where only labels change.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.epsilon_shares import epsilon_share
from tulle.mechanisms.randomized_response import RandomizedResponseConfig, randomize
from tulle.train.examples import ExampleSet, IntArray

_LEAST_RATE = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LabelReports:
    """How the labels of some rows are randomized. Every field is public information."""

    epsilon: float
    """Of each label, or of all labels that share it."""
    num_sharing: IntArray | None = None
    """For each row, how many labels share its epsilon, its own among them; None: one."""

    def draw(self, examples: ExampleSet, *, rng: NoiseSource) -> NDArray[np.uint8]:
        """Randomizes each label once.

        Args:
          examples: Rows with raw labels, 0 or 1.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: a label, or all labels that share an epsilon; replace. Event: one
          RandomizedResponse of that epsilon: shares of a unit add up to it at most. Relies
          on: rows and numbers that do not depend on labels, drawn once and kept.
        """
        if examples.labels is None:
            raise DataError("the data have no label column; name one in the schema.")
        raw_labels = examples.labels.astype(np.int64)
        if self.num_sharing is None:
            config = RandomizedResponseConfig(epsilon=self.epsilon)
            return randomize(raw_labels, config, rng=rng).astype(np.uint8)
        noisy = np.empty(len(raw_labels), np.uint8)
        for num_sharing in np.unique(self.num_sharing).tolist():
            rows = self.num_sharing == num_sharing
            noisy[rows] = randomize(raw_labels[rows], self._response(num_sharing), rng=rng)
        return noisy

    def channel(self) -> BinaryChannel:
        """The chances of the reports: one pair, or one a row."""
        if self.num_sharing is None:
            return BinaryChannel.of_response(RandomizedResponseConfig(epsilon=self.epsilon))
        counts, group = np.unique(self.num_sharing, return_inverse=True)
        channels = [BinaryChannel.of_response(self._response(n)) for n in counts.tolist()]
        return BinaryChannel(
            prob_if_negative=np.array([float(c.prob_if_negative) for c in channels])[group],
            prob_if_positive=np.array([float(c.prob_if_positive) for c in channels])[group],
        )

    def _response(self, num_sharing: int) -> RandomizedResponseConfig:
        return RandomizedResponseConfig(epsilon=epsilon_share(self.epsilon, num_sharing))


def with_reports(
    examples: ExampleSet, noisy_labels: NDArray[np.uint8], channel: BinaryChannel
) -> ExampleSet:
    """The public part of some rows with reports for labels, and their chances if they differ."""
    reports = examples.without_sensitive(noisy_labels.astype(np.float32))
    if channel.gain.ndim == 0:
        return reports
    probs = np.stack([channel.prob_if_negative, channel.prob_if_positive], axis=1)
    return dataclasses.replace(reports, report_probs=probs)


def estimated_rate(noisy_labels: NDArray[np.uint8], channel: BinaryChannel) -> float:
    """The share of labels that are 1, estimated from reports, away from 0 and 1."""
    rate = float(channel.debiased_targets(noisy_labels).mean())
    return min(max(rate, _LEAST_RATE), 1 - _LEAST_RATE)


def log_odds(rate: float) -> float:
    """Of a rate, which is kept away from 0 and 1."""
    bounded = min(max(rate, _LEAST_RATE), 1 - _LEAST_RATE)
    return math.log(bounded / (1 - bounded))
