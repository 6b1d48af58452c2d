"""What every private step does: its clip norm, its noise, and what it shows of its batch.

The raw loss of a batch is as sensitive as the batch. So each unit's loss, and whether it was
clipped, are two more coordinates of its clipped vector: they get the same noise as the gradient,
are covered by the same event, and take a small share of the clip norm.
"""

import dataclasses
import math

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite
from tulle.train.settings.step_mechanism import StepMechanism
from tulle.train.settings.step_noise import IndependentNoise

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
        # The coordinates are orthogonal to the gradient: squares of norms add up, not norms.
        return self.clip_norm * math.sqrt(1 - self.share**2)

    def sums(self, losses: Tensor, is_clipped: Tensor, weights: Tensor) -> Tensor:
        """[2]: the sum of the coordinates of all units.

        Args:
          losses: [units]: loss of each unit; NaN counts as the bound.
          is_clipped: [units]: True for units whose gradient was clipped.
          weights: [units]: 1 for a unit of the batch, 0 for padding.
        """
        # Clamping leaves NaN as it is, and one NaN in a sum would show through any noise.
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


CLIP_SLACK = 1e-4
"""Fraction of the clip norm that is kept free for rounding. Norms are floats, and those of 100,000
numbers are right to 5e-5: clipping to this much less keeps the true norm within the bound."""
MONITOR = "monitor"
"""The name of the monitor among the sums of a step; parameters have a dot in theirs."""

_LEAST_OF_NORM = 0.9
"""Least fraction of the gradient's norm that must be left after rounding to a lattice took its
room. With less, noise that was calibrated to the whole clip norm would be wasted: an error."""
_MOST_SLACK = 0.05
"""Largest `clip_slack` that is accepted; arithmetic that needs more is too coarse to train with."""
_NUM_MONITORED = 2
"""Number of monitored sums beside the gradient: the loss and the clipped share."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings:
    """What a private step does to a batch. Made from a plan, never by hand."""

    clip_norm: float
    """Largest L2 norm of what one unit adds to all sums of a step."""
    noise_multiplier: float
    """Noise standard deviation divided by the clip norm."""
    expected_size: float
    """Expected batch size, which is public. Sums are divided by it, never by the drawn size."""
    monitor_share: float
    """Fraction of the clip norm for the monitored loss and clipped share; 0 for no monitor."""
    towers: frozenset[str]
    """The towers that are trained, and clipped together."""
    rows_at_a_time: int | None = None
    """Rows that are summed together; larger batches are summed in parts of this size. None for
    what suits the device. Changes speed and memory alone."""
    mechanism: StepMechanism = dataclasses.field(default_factory=IndependentNoise)
    """Kind of noise: which entries of a step's sums get it, and how it is correlated."""
    num_steps: int = 1
    """Number of steps of the whole run, which is public. Correlated noise is tuned for it."""
    clip_slack: float = CLIP_SLACK
    """Fraction of the norm that is kept free for rounding. Arithmetic that is less exact needs
    more; less than the default is refused."""

    def __post_init__(self) -> None:
        if not CLIP_SLACK <= check_finite("clip_slack", self.clip_slack) <= _MOST_SLACK:
            raise ConfigError(
                f"clip_slack={self.clip_slack} must be from {CLIP_SLACK} to {_MOST_SLACK}: less "
                "would let rounding exceed the clip norm."
            )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each entry of the sum."""
        return self.noise_multiplier * self.clip_norm

    @property
    def coordinates(self) -> MonitorCoordinates:
        """The monitored loss and clipped share as further coordinates of the gradient."""
        return MonitorCoordinates(clip_norm=self.clip_norm, share=self.monitor_share)

    def gradient_limit(self, num_entries: int) -> float:
        """L2 norm that the gradient of a unit is clipped to, over this many trained numbers.

        What the unit adds to all sums of a step, the monitor's and rounding to a lattice
        included, then has a norm of at most `clip_norm`.

        Raises:
          ConfigError: The lattice is too coarse for a model of this size.
        """
        # Rounding adds at most `room` to the norm of the whole vector, so it comes off first. The
        # monitor's coordinates are orthogonal to the gradient: their squares come off next.
        room = self.mechanism.clip_room(
            clip_norm=self.clip_norm, num_entries=num_entries + _NUM_MONITORED
        )
        norm = self.clip_norm - room
        left = max(0.0, norm) ** 2 - (self.clip_norm * self.monitor_share) ** 2
        limit = math.sqrt(max(0.0, left)) * (1 - self.clip_slack)
        if not limit > _LEAST_OF_NORM * self.coordinates.gradient_norm:
            raise ConfigError(
                f"{self.mechanism} has too coarse a grid for {num_entries} trained numbers: "
                f"rounding takes {1 - norm / self.clip_norm:.0%} of the clip norm; take more bits."
            )
        return limit
