"""Loss of each row as a function of its logit, for clean and for randomized labels.

Labels are 0 or 1. A randomized label was flipped with the probability q = 1 / (1 + e^epsilon).
Cross-entropy on such labels learns the probability of the reported label; the two corrected losses,
`DebiasedCrossEntropy` and `ForwardCorrectedCrossEntropy`, learn that of the true one. Where these
probabilities differ from row to row or from label to label, `DebiasedReports` and `ForwardReports`
are the same two.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.fields import check_finite
from tulle.train.settings.phases import LabelCorrection, LabelPhase, check_max_logit

if TYPE_CHECKING:
    from tulle.train.models.batches import ExampleBatch


class Loss(Protocol):
    """A loss that is a sum over examples."""

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example."""

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Cross-entropy, for labels as they are."""

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example."""
        small = torch.log1p(torch.exp(-logits.abs()))
        # softplus(t) - y t, without cancellation where a large logit agrees with its label.
        return logits.clamp(min=0) - labels.to(logits.dtype) * logits + small

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        return torch.sigmoid(logits).sub_(labels.to(logits.dtype))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebiasedCrossEntropy:
    """Cross-entropy with the target (label - q) / (1 - 2q): on average the clean loss.

    The target lies outside [0, 1], so the loss has no lower bound and a model that
    can memorise its examples drives it to minus infinity. It is convex in the logit.
    """

    epsilon: float
    """Epsilon of the randomized response that the labels went through."""
    max_logit: float | None = None
    """Absolute logit beyond which the loss rises as steeply as it ever does; None for no bound.
    The loss stays convex, is the same for smaller logits, and never falls below
    softplus(-max_logit) - max_logit / (e^epsilon - 1)."""

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)
        check_max_logit(self.max_logit)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example; negative for many."""
        return _debiased_values(logits, labels, self._excess, self.max_logit)

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        return _debiased_gradients(logits, labels, self._excess, self.max_logit)

    @property
    def _excess(self) -> float:
        """How far a target lies outside [0, 1]: q / (1 - 2q) = 1 / (e^epsilon - 1)."""
        return -math.exp(-self.epsilon) / math.expm1(-self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForwardCorrectedCrossEntropy:
    """Cross-entropy of the reported label against its probability q + (1 - 2q) sigmoid(logit).

    This is the likelihood of the channel (Patrini et al. 2017): its minimiser is the probability
    of the true label, and the loss stays within [-log(1 - q), -log q].
    """

    epsilon: float
    """Epsilon of the randomized response that the labels went through."""

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example."""
        return _forward_values(logits, labels, self._chances)

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        return _forward_gradients(logits, labels, self._chances)

    @property
    def _chances(self) -> "ReportChances":
        flip_prob = math.exp(-self.epsilon) / (1 + math.exp(-self.epsilon))
        log_keep = -math.log1p(math.exp(-self.epsilon))
        # In logarithms, because q may be below all floats.
        return ReportChances(
            other_if_held=flip_prob,
            log_if_not_held=log_keep - self.epsilon,
            log_if_held=log_keep,
            log_gain=math.log(math.tanh(self.epsilon / 2)),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReportChances:
    """Probabilities of the report that was made and of the other one, for each true label.

    Each is one number for all rows, or one for each row.
    """

    other_if_held: float | Tensor
    """Probability of the other report, if the label that was reported is true."""
    log_if_not_held: float | Tensor
    """Logarithm of the probability of the report, if the other label is true."""
    log_if_held: float | Tensor
    """Logarithm of the probability of the report, if the label that was reported is true."""
    log_gain: float | Tensor
    """Logarithm of the difference of these two probabilities."""


def _debiased_values(
    logits: Tensor, labels: Tensor, excess: float | Tensor, max_logit: float | None
) -> Tensor:
    """Cross-entropy with a target that lies `excess` beyond the reported label."""
    inner = logits if max_logit is None else logits.clamp(-max_logit, max_logit)
    values = CrossEntropy().values(inner, labels) - _toward_label(inner, labels) * excess
    if max_logit is None:
        return values
    return values + (logits.abs() - max_logit).clamp(min=0) * (1 + excess)


def _debiased_gradients(
    logits: Tensor, labels: Tensor, excess: float | Tensor, max_logit: float | None
) -> Tensor:
    """The derivative of `_debiased_values` by the logit."""
    excesses = torch.full_like(logits, 1.0) * excess
    inner = CrossEntropy().gradients(logits, labels).sub_(_toward_label(excesses, labels))
    if max_logit is None:
        return inner
    return torch.where(logits.abs() > max_logit, logits.sign() * (1 + excesses), inner)


def _forward_values(logits: Tensor, labels: Tensor, chances: ReportChances) -> Tensor:
    """Negative log probability of the report, without cancellation on either side."""
    toward = _toward_label(logits, labels)
    away = -toward.abs()
    gain = _exp(chances.log_gain)
    other_prob = chances.other_if_held + gain * torch.sigmoid(away)
    # With u = toward: (b + g sigmoid(u)) = (b + (b + g) e^u) / (1 + e^u).
    log_base = torch.zeros_like(away) + chances.log_if_not_held
    log_numerator = torch.logaddexp(log_base, chances.log_if_held + away)
    far = torch.log1p(torch.exp(away)) - log_numerator
    return torch.where(toward > 0, -torch.log1p(-other_prob), far)


def _forward_gradients(logits: Tensor, labels: Tensor, chances: ReportChances) -> Tensor:
    """The derivative of `_forward_values` by the logit."""
    toward = _toward_label(logits, labels)
    # gain sigmoid(u) sigmoid(-u) / probability, in logarithms: the probability of the report may be
    # below all floats.
    log_sigmoids = -toward.abs() - 2 * torch.log1p(torch.exp(-toward.abs()))
    sizes = torch.exp(log_sigmoids + _forward_values(logits, labels, chances) + chances.log_gain)
    return torch.where(labels > 0, -sizes, sizes)


def _toward_label(values: Tensor, labels: Tensor) -> Tensor:
    return torch.where(labels > 0, values, -values)


def _exp(value: float | Tensor) -> float | Tensor:
    return torch.exp(value) if isinstance(value, Tensor) else math.exp(value)


def _check_epsilon(epsilon: object) -> None:
    if check_finite("epsilon", epsilon) <= 0:
        raise ConfigError(
            f"epsilon={epsilon} must be > 0; at 0 the labels are coin tosses and nothing is learnt."
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DebiasedReports:
    """Cross-entropy with unbiased targets: on average the clean loss of each row.

    It is convex in the logit, and without lower bound unless logits are bounded.
    """

    report_probs: Tensor
    """[rows, 2], or [1, 2] for all rows: probabilities of a report of 1 for a label of 0 and of
    1."""
    max_logit: float | None = None
    """Absolute logit beyond which the loss rises; None for no bound. See `DebiasedCrossEntropy`."""
    weights: Tensor | None = None
    """[rows]: factor of the loss of each row; None for equal weights."""

    def __post_init__(self) -> None:
        _check_shape(self.report_probs)
        check_max_logit(self.max_logit)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example; negative for many."""
        excess = self._excess(logits, labels)
        return self._weighted(_debiased_values(logits, labels, excess, self.max_logit))

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        excess = self._excess(logits, labels)
        return self._weighted(_debiased_gradients(logits, labels, excess, self.max_logit))

    def _excess(self, logits: Tensor, labels: Tensor) -> Tensor:
        """How far the target of each report lies outside [0, 1]."""
        negative, positive = self.report_probs.unbind(1)
        other_if_held = torch.where(labels > 0, 1 - positive, negative)
        return (other_if_held / (positive - negative)).to(logits.dtype)

    def _weighted(self, values: Tensor) -> Tensor:
        return values if self.weights is None else values * self.weights.to(values.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ForwardReports:
    """Cross-entropy of each report against its probability under model and channel."""

    report_probs: Tensor
    """[rows, 2], or [1, 2] for all rows: probabilities of a report of 1 for a label of 0 and of
    1."""

    def __post_init__(self) -> None:
        _check_shape(self.report_probs)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example."""
        return _forward_values(logits, labels, self._chances(logits, labels))

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        return _forward_gradients(logits, labels, self._chances(logits, labels))

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
    """Mean of the weights of all rows before they are divided by it."""

    @classmethod
    def of(cls, channel: BinaryChannel, base_rate: float) -> "RowWeights":
        """Makes the weights of rows with this channel.

        All rows weigh the same if the channel has one pair of probabilities.
        """
        return cls(base_rate=base_rate, mean=float(channel.weights(base_rate).mean()))

    def at(self, report_probs: Tensor) -> Tensor:
        """The weights of some rows."""
        chances = report_probs.detach().cpu().double().numpy()
        channel = BinaryChannel(prob_if_negative=chances[:, 0], prob_if_positive=chances[:, 1])
        weights = channel.weights(self.base_rate) / self.mean
        return torch.from_numpy(weights).to(report_probs.device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportLoss:
    """A loss that becomes that of rows once the probabilities of their reports are known."""

    correction: LabelCorrection
    max_logit: float | None = None
    weights: RowWeights | None = None

    @classmethod
    def of_phase(cls, phase: LabelPhase, channel: BinaryChannel, base_rate: float) -> "ReportLoss":
        """The loss of a phase for rows with this channel.

        Args:
          phase: Settings of the phase.
          channel: Probabilities of a report of 1 for each true label.
          base_rate: Share of labels that are 1, estimated from the reports.
        """
        weights = RowWeights.of(channel, base_rate) if phase.weight_rows else None
        return cls(correction=phase.correction, max_logit=phase.max_logit, weights=weights)

    def at(self, report_probs: Tensor) -> Loss:
        """The loss of rows with these probabilities of reports, [rows, 2] or [1, 2]."""
        if self.correction is LabelCorrection.DEBIASED:
            return DebiasedReports(
                report_probs=report_probs,
                max_logit=self.max_logit,
                weights=None if self.weights is None else self.weights.at(report_probs),
            )
        if self.correction is LabelCorrection.FORWARD:
            return ForwardReports(report_probs=report_probs)
        return CrossEntropy()


def loss_of_batch(loss: Loss | ReportLoss, batch: "ExampleBatch") -> Loss:
    """The loss for the rows of a batch, with the probabilities of their reports if needed."""
    if not isinstance(loss, ReportLoss):
        return loss
    if batch.report_probs is None:
        raise RunStateError("the loss needs the probabilities of each report; the rows have none.")
    return loss.at(batch.report_probs)


def _check_shape(report_probs: Tensor) -> None:
    if report_probs.ndim != 2 or report_probs.shape[1] != 2:
        raise ConfigError(
            f"report_probs of the shape {list(report_probs.shape)} must be [rows, 2] or [1, 2]."
        )
