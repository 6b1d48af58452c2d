"""Training on labels that were released already: post-processing, at no cost."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    epsilon_share,
    release_randomized_response,
)
from tulle.runs.records import StopRequest
from tulle.train.examples import ExampleSet, IntArray
from tulle.train.losses import (
    CrossEntropy,
    DebiasedCrossEntropy,
    ForwardCorrectedCrossEntropy,
    Loss,
    ReportLoss,
)
from tulle.train.models.trained_towers import TrainedTowers, build_model
from tulle.train.settings.models import ModelSettings
from tulle.train.settings.phases import LabelCorrection, LabelPhase
from tulle.train.steps.plain_training import PlainTask, train_plain
from tulle.train.steps.step_context import MemoryJournal, StepContext, find_device


def fit_on_reports(
    examples: ExampleSet,
    model: ModelSettings,
    phase: LabelPhase,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> TrainedTowers:
    """Trains a model on public columns and randomized labels.

    Args:
      examples: Rows whose labels are reports, with `report_probs`. Sensitive columns are
        left alone.
      model: Settings of the model.
      phase: Settings of the steps, and of how the loss makes up for the noise.
      seed: Seed of the first weights and of the order of rows, both public.
      device: Device to train on: 'cpu' or 'cuda'.

    Privacy:
      Post-processing of the reports: the model has the guarantee of their release.

    Raises:
      ConfigError: The probabilities of the reports are missing, the correction needs the same
        for all rows, the rows have weights, or there is no such device.
      DataError: Labels are missing or not 0 and 1, or an id is out of range.
    """
    if examples.report_probs is None or examples.labels is None:
        raise ConfigError(
            "examples have no report_probs: give the two probabilities of each report, as the "
            "release has them, with its reports as labels."
        )
    if examples.weights is not None:
        raise ConfigError(
            "the rows have weights, and every report counts once; take the weight out of the "
            "schema, or use method mosaic."
        )
    reports = examples.without_sensitive(examples.labels)
    reports.check()
    probs = examples.report_probs
    channel = BinaryChannel(prob_if_negative=probs[:, 0], prob_if_positive=probs[:, 1])
    place = find_device(device)
    context = StepContext(
        device=place, rng=SeededNoise(seed), journal=MemoryJournal(), stop=StopRequest()
    )
    report_channel = calibrating_channel(channel, phase)
    trained = build_model(model, examples.features, seed=seed, device=place)
    noisy_labels = examples.labels.astype(np.uint8)
    trained.output_bias.fill_(first_log_odds(noisy_labels, channel, phase))
    loss = label_loss(noisy_labels, channel, phase)
    task = PlainTask(name="reports", phase=phase, loss=loss, order_seed=seed, epsilon=None)
    train_plain(trained, reports, task, context)
    return TrainedTowers(
        model=trained,
        settings=model,
        features=examples.features,
        is_truncated=True,
        device=place,
        report_channel=report_channel,
    )


def label_loss(
    noisy_labels: NDArray[np.uint8], channel: BinaryChannel, phase: LabelPhase
) -> Loss | ReportLoss:
    """The loss of a phase on reports whose probabilities come with the rows.

    Args:
      noisy_labels: [rows]: randomized labels.
      channel: Probabilities of a report of 1 for each true label.
      phase: Settings that choose how the loss makes up for the noise.
    """
    if not phase.correction.corrects_loss:
        return CrossEntropy()
    return ReportLoss.of_phase(phase, channel, estimated_rate(noisy_labels, channel))


def label_loss_of_all(phase: LabelPhase, epsilon: float) -> Loss:
    """The loss where all labels have one epsilon: exact also for tiny probabilities."""
    if phase.correction is LabelCorrection.DEBIASED:
        return DebiasedCrossEntropy(epsilon=epsilon, max_logit=phase.max_logit)
    if phase.correction is LabelCorrection.FORWARD:
        return ForwardCorrectedCrossEntropy(epsilon=epsilon)
    return CrossEntropy()


def first_log_odds(
    noisy_labels: NDArray[np.uint8], channel: BinaryChannel, phase: LabelPhase
) -> float:
    """First value of the output bias: log odds of the rate of what the model is to learn.

    The corrected likelihood is flat where a model is sure of a label. Training that starts from
    even odds can get stuck there on its way to rare labels; from their rate it does not.

    Args:
      noisy_labels: [rows]: randomized labels.
      channel: Probabilities of a report of 1 for each true label.
      phase: Settings that say whether the model learns true labels or reports.
    """
    if not phase.correction.corrects_loss:
        return log_odds(float(noisy_labels.mean()))
    return log_odds(estimated_rate(noisy_labels, channel))


def calibrating_channel(channel: BinaryChannel, phase: LabelPhase) -> BinaryChannel | None:
    """The one channel that takes predicted reports back to labels; None if none is needed.

    Raises:
      ConfigError: The probabilities differ between rows, so that no map of predictions is right.
    """
    if phase.correction is not LabelCorrection.CALIBRATED:
        return None
    negative, positive = channel.prob_if_negative.ravel(), channel.prob_if_positive.ravel()
    if (negative != negative[0]).any() or (positive != positive[0]).any():
        raise ConfigError(
            "correction='calibrated' needs the same probabilities of a report for all rows; use "
            "LabelCorrection.FORWARD, which takes each row's own."
        )
    return BinaryChannel(
        prob_if_negative=np.asarray(negative[0]), prob_if_positive=np.asarray(positive[0])
    )


_LEAST_RATE = 1e-3
"""Least distance of an estimated rate from 0 and from 1, so that its log odds are moderate."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LabelReports:
    """How the labels of some rows are randomized. Every field is public information."""

    epsilon: float
    """Epsilon of each label, or of all labels that share it."""
    num_sharing: IntArray | None = None
    """[rows]: number of labels that share the epsilon of each row, its own among them; None if
    each label has an epsilon of its own."""

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
            return release_randomized_response(raw_labels, config, rng=rng).astype(np.uint8)
        noisy = np.empty(len(raw_labels), np.uint8)
        for num_sharing in np.unique(self.num_sharing).tolist():
            rows = self.num_sharing == num_sharing
            noisy[rows] = release_randomized_response(
                raw_labels[rows], self._response(num_sharing), rng=rng
            )
        return noisy

    def channel(self) -> BinaryChannel:
        """Probabilities of the reports: one pair for all rows, or one for each."""
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
    """The public part of some rows, with reports as labels and their probabilities if they differ.

    Args:
      examples: Rows with any labels, which are replaced.
      noisy_labels: [rows]: randomized labels.
      channel: Probabilities of a report of 1 for each true label: one pair, or one for each row.
    """
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
    """Log odds of a rate, which is kept away from 0 and 1."""
    bounded = min(max(rate, _LEAST_RATE), 1 - _LEAST_RATE)
    return math.log(bounded / (1 - bounded))
