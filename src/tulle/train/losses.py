"""Loss of each example as a function of its logit, for clean and for randomized labels.

Labels are 0 or 1. A randomized label was flipped with the chance
q = 1 / (1 + e^epsilon). Cross-entropy on such labels learns the chance of the
reported label; the two corrected losses learn that of the true one.
"""

import dataclasses
import math
from typing import Protocol

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite


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

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example; negative for many."""
        clean = CrossEntropy().values(logits, labels)
        return clean.sub_(_toward_label(logits, labels), alpha=self._excess)

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        clean = CrossEntropy().gradients(logits, labels)
        return clean.sub_(_toward_label(torch.full_like(logits, self._excess), labels))

    @property
    def _excess(self) -> float:
        """How far a target lies outside [0, 1]: q / (1 - 2q) = 1 / (e^epsilon - 1)."""
        return -math.exp(-self.epsilon) / math.expm1(-self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForwardCorrectedCrossEntropy:
    """Cross-entropy of the reported label against its chance q + (1 - 2q) sigmoid(logit).

    The likelihood of the channel (Patrini et al. 2017): its minimiser is the chance
    of the true label, and the loss stays within [-log(1 - q), -log q].
    """

    epsilon: float
    """Epsilon of the randomized response that the labels went through."""

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example."""
        return self._values_toward_label(_toward_label(logits, labels))

    def gradients(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each example's loss by its logit."""
        toward = _toward_label(logits, labels)
        # (1 - 2q) sigmoid(u) sigmoid(-u) / chance in logarithms: q may be below all floats.
        log_sigmoids = -toward.abs() - 2 * torch.log1p(torch.exp(-toward.abs()))
        log_share = math.log(math.tanh(self.epsilon / 2))
        sizes = torch.exp(log_sigmoids + self._values_toward_label(toward) + log_share)
        return torch.where(labels > 0, -sizes, sizes)

    def _values_toward_label(self, toward: Tensor) -> Tensor:
        """-log(q + (1 - 2q) sigmoid(toward)), without cancellation on either side."""
        flip_prob = math.exp(-self.epsilon) / (1 + math.exp(-self.epsilon))
        log_keep = -math.log1p(math.exp(-self.epsilon))
        log_flip = log_keep - self.epsilon
        away = -toward.abs()
        wrong_prob = flip_prob + math.tanh(self.epsilon / 2) * torch.sigmoid(away)
        # sigmoid(u) (1 - 2q) + q = (q + (1 - q) e^u) / (1 + e^u)
        log_numerator = torch.logaddexp(torch.full_like(away, log_flip), log_keep + away)
        far = torch.log1p(torch.exp(away)) - log_numerator
        return torch.where(toward > 0, -torch.log1p(-wrong_prob), far)


def _toward_label(values: Tensor, labels: Tensor) -> Tensor:
    return torch.where(labels > 0, values, -values)


def _check_epsilon(epsilon: object) -> None:
    if check_finite("epsilon", epsilon) <= 0:
        raise ConfigError(
            f"epsilon={epsilon} must be > 0; at 0 the labels are coin tosses and nothing is learnt."
        )
