"""Training on labels that were released already: post-processing, at no cost."""

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.interruption import StopRequest
from tulle.train.devices import find_device
from tulle.train.examples import ExampleSet
from tulle.train.journal import MemoryJournal
from tulle.train.label_losses import ReportLoss
from tulle.train.label_reports import estimated_rate, log_odds
from tulle.train.losses import (
    CrossEntropy,
    DebiasedCrossEntropy,
    ForwardCorrectedCrossEntropy,
    Loss,
)
from tulle.train.models.tower_model import ModelSettings
from tulle.train.phases import LabelCorrection, LabelPhase
from tulle.train.plain_training import PlainTask, train_plain
from tulle.train.run_context import RunContext
from tulle.train.trained_model import TrainedModel


def fit_on_reports(
    examples: ExampleSet,
    model: ModelSettings,
    phase: LabelPhase,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> TrainedModel:
    """Trains a model on public columns and randomized labels.

    Args:
      examples: Rows whose labels are reports, with `report_probs`. Sensitive columns are
        left alone.
      model: What is trained.
      phase: How, and how the loss makes up for the noise.
      seed: Of the first weights and the order of rows, both public.
      device: Where: 'cpu' or 'cuda'.

    Privacy:
      Post-processing of the reports: the model has the guarantee of their release.

    Raises:
      ConfigError: The chances of the reports are missing, the correction needs the same for
        all rows, or there is no such device.
      DataError: Labels are missing or not 0 and 1, or an id is out of range.
    """
    if examples.report_probs is None or examples.labels is None:
        raise ConfigError(
            "examples have no report_probs: give the two chances of each report, as the release "
            "has them, with its reports as labels."
        )
    reports = examples.without_sensitive(examples.labels)
    reports.check()
    probs = examples.report_probs
    channel = BinaryChannel(prob_if_negative=probs[:, 0], prob_if_positive=probs[:, 1])
    place = find_device(device)
    context = RunContext(
        device=place, rng=SeededNoise(seed), journal=MemoryJournal(), stop=StopRequest()
    )
    report_channel = calibrating_channel(channel, phase)
    trained = model.build(examples.features, seed=seed, device=place)
    noisy_labels = examples.labels.astype(np.uint8)
    trained.output_bias.fill_(first_log_odds(noisy_labels, channel, phase))
    loss = label_loss(noisy_labels, channel, phase)
    task = PlainTask(name="reports", phase=phase, loss=loss, order_seed=seed, epsilon=None)
    train_plain(trained, reports, task, context)
    return TrainedModel(
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
    """The loss of a phase on reports whose chances come with the rows."""
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
    """Where the output bias starts: at the rate of what the model is to learn.

    The corrected likelihood is flat where a model is sure of a label, so it can be lost on
    the way from even odds to rare labels; from their rate it finds its way.
    """
    if not phase.correction.corrects_loss:
        return log_odds(float(noisy_labels.mean()))
    return log_odds(estimated_rate(noisy_labels, channel))


def calibrating_channel(channel: BinaryChannel, phase: LabelPhase) -> BinaryChannel | None:
    """The one channel that takes predicted reports back to labels; None if none is needed.

    Raises:
      ConfigError: The chances differ between rows, so that no map of predictions is right.
    """
    if phase.correction is not LabelCorrection.CALIBRATED:
        return None
    negative, positive = channel.prob_if_negative.ravel(), channel.prob_if_positive.ravel()
    if (negative != negative[0]).any() or (positive != positive[0]).any():
        raise ConfigError(
            "correction='calibrated' needs the same chances of a report for all rows; use "
            "LabelCorrection.FORWARD, which takes each row's own."
        )
    return BinaryChannel(
        prob_if_negative=np.asarray(negative[0]), prob_if_positive=np.asarray(positive[0])
    )
