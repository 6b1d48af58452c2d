"""Losses for reports of labels whose chances may differ from row to row.

A report is 1 with one chance if the label is 0 and with another if it is 1. Debiased, a
report becomes a target whose mean is the label; forward, the loss is the likelihood of the
report. Both need no more than the two chances of each row, which come with the batch.
"""

import dataclasses

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.train.examples import ExampleBatch
from tulle.train.losses import (
    CrossEntropy,
    Loss,
    ReportChances,
    check_max_logit,
    debiased_gradients,
    debiased_values,
    forward_gradients,
    forward_values,
)
from tulle.train.phases import LabelCorrection, LabelPhase


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DebiasedReports:
    """Cross-entropy with unbiased targets: on average the clean loss of each row.

    Convex in the logit, and without lower bound unless logits are bounded.
    """

    report_probs: Tensor
    """[rows, 2], or [1, 2] for all rows: chances of a report of 1 for a label of 0 and of 1."""
    max_logit: float | None = None
    """As for `DebiasedCrossEntropy`."""
    weights: Tensor | None = None
    """[rows]: what the loss of each row is multiplied by."""

    def __post_init__(self) -> None:
        _check_shape(self.report_probs)
        check_max_logit(self.max_logit)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example; negative for many."""
        excess = self._excess(logits, labels)
        return self._weighted(debiased_values(logits, labels, excess, self.max_logit))

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        excess = self._excess(logits, labels)
        return self._weighted(debiased_gradients(logits, labels, excess, self.max_logit))

    def _excess(self, logits: Tensor, labels: Tensor) -> Tensor:
        """How far the target of each report lies outside [0, 1]."""
        negative, positive = self.report_probs.unbind(1)
        other_if_held = torch.where(labels > 0, 1 - positive, negative)
        return (other_if_held / (positive - negative)).to(logits.dtype)

    def _weighted(self, values: Tensor) -> Tensor:
        return values if self.weights is None else values * self.weights.to(values.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ForwardReports:
    """Cross-entropy of each report against its chance, which the model gives by its channel."""

    report_probs: Tensor
    """[rows, 2], or [1, 2] for all rows: chances of a report of 1 for a label of 0 and of 1."""

    def __post_init__(self) -> None:
        _check_shape(self.report_probs)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example."""
        return forward_values(logits, labels, self._chances(logits, labels))

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        return forward_gradients(logits, labels, self._chances(logits, labels))

    def _chances(self, logits: Tensor, labels: Tensor) -> ReportChances:
        negative, positive = self.report_probs.unbind(1)
        is_one, dtype = labels > 0, logits.dtype
        return ReportChances(
            other_if_held=torch.where(is_one, 1 - positive, negative).to(dtype),
            log_if_not_held=torch.where(is_one, negative, 1 - positive).log().to(dtype),
            log_if_held=torch.where(is_one, positive, 1 - negative).log().to(dtype),
            log_gain=(positive - negative).log().to(dtype),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowWeights:
    """Weights by the noise of each row's target: 1 / (its variance + that of a label)."""

    base_rate: float
    """Share of labels that are 1, estimated from the reports."""
    mean: float
    """Of the weights of all rows, which are divided by it."""

    @classmethod
    def of(cls, channel: BinaryChannel, base_rate: float) -> "RowWeights":
        """For rows with this channel; all weigh the same if it has one pair of chances."""
        return cls(base_rate=base_rate, mean=float(channel.weights(base_rate).mean()))

    def at(self, report_probs: Tensor) -> Tensor:
        """The weights of some rows."""
        chances = report_probs.detach().cpu().double().numpy()
        channel = BinaryChannel(prob_if_negative=chances[:, 0], prob_if_positive=chances[:, 1])
        weights = channel.weights(self.base_rate) / self.mean
        return torch.from_numpy(weights).to(report_probs.device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportLoss:
    """A loss that becomes one of rows when their chances are known."""

    correction: LabelCorrection
    max_logit: float | None = None
    weights: RowWeights | None = None

    @classmethod
    def of_phase(cls, phase: LabelPhase, channel: BinaryChannel, base_rate: float) -> "ReportLoss":
        """The loss of a phase for rows with this channel."""
        weights = RowWeights.of(channel, base_rate) if phase.weight_rows else None
        return cls(correction=phase.correction, max_logit=phase.max_logit, weights=weights)

    def at(self, report_probs: Tensor) -> Loss:
        """The loss of rows with these chances, [rows, 2] or [1, 2]."""
        if self.correction is LabelCorrection.DEBIASED:
            return DebiasedReports(
                report_probs=report_probs,
                max_logit=self.max_logit,
                weights=None if self.weights is None else self.weights.at(report_probs),
            )
        if self.correction is LabelCorrection.FORWARD:
            return ForwardReports(report_probs=report_probs)
        return CrossEntropy()


def loss_of_batch(loss: Loss | ReportLoss, batch: ExampleBatch) -> Loss:
    """The loss for the rows of a batch, with their chances if it needs them."""
    if not isinstance(loss, ReportLoss):
        return loss
    if batch.report_probs is None:
        raise RunStateError("the loss needs the chances of each report, and the rows have none.")
    return loss.at(batch.report_probs)


def _check_shape(report_probs: Tensor) -> None:
    if report_probs.ndim != 2 or report_probs.shape[1] != 2:
        raise ConfigError(
            f"report_probs of the shape {list(report_probs.shape)} must be [rows, 2] or [1, 2]."
        )
