"""Loss and clipped share of each private step, released inside the step itself.

The raw loss of a batch is as sensitive as the batch. Here each unit's loss and
whether it was clipped are two more coordinates of its clipped vector: they get the
same noise as the gradient, are covered by the same event, and take a small share of
the clip norm.
"""

import dataclasses
import math

import torch
from torch import Tensor

LOSS_BOUND = 4.0
"""Larger losses count as this much. The loss of a fair coin is 0.69."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Monitored:
    """Noisy figures of one step. They may be shown."""

    loss: float
    """Noisy mean loss, each unit's bounded by `LOSS_BOUND`."""
    clipped_share: float
    """Noisy share of units whose gradient was shortened."""
    loss_noise: float
    """Standard deviation of the noise in `loss`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MonitorCoordinates:
    """How two figures of a unit become coordinates of its clipped vector.

    Both coordinates are in [0, scale], so their norm is at most sqrt(2) scale, which is
    `share` times the clip norm.
    """

    clip_norm: float
    share: float

    @property
    def scale(self) -> float:
        """The largest value of one coordinate."""
        return self.clip_norm * self.share / math.sqrt(2)

    @property
    def gradient_norm(self) -> float:
        """What is left of the clip norm for the gradient."""
        return self.clip_norm * math.sqrt(1 - self.share**2)

    def sums(self, losses: Tensor, is_clipped: Tensor, weights: Tensor) -> Tensor:
        """[2]: the sum of the coordinates of all units.

        Args:
          losses: [units]: loss of each unit; NaN counts as the bound.
          is_clipped: [units]: True for units whose gradient was clipped.
          weights: [units]: 1 for a unit of the batch, 0 for padding.
        """
        bounded = torch.nan_to_num(losses, nan=LOSS_BOUND).clamp(0, LOSS_BOUND) / LOSS_BOUND
        both = torch.stack([bounded, is_clipped.to(losses.dtype)])
        return self.scale * (both * weights).sum(1)

    def read(self, noisy_sums: Tensor, *, expected_size: float, noise_stddev: float) -> Monitored:
        """Mean loss and clipped share that noisy sums stand for.

        Args:
          noisy_sums: [2]: sums of both coordinates, with noise.
          expected_size: Expected batch size, which is public.
          noise_stddev: Standard deviation of the noise on each sum.
        """
        loss, clipped = (noisy_sums / (self.scale * expected_size)).tolist()
        return Monitored(
            loss=LOSS_BOUND * loss,
            clipped_share=clipped,
            loss_noise=LOSS_BOUND * noise_stddev / (self.scale * expected_size),
        )
