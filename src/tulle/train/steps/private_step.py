"""One step of DP-SGD: clip each unit, sum, add noise, divide by the public expected batch size.

Gradients of single rows are never built. A forward pass and a backward pass to the outputs of
layers give the norm of every row's gradient; one more matrix product for each layer gives the
clipped sum ("ghost clipping").

The raw loss of a batch is as sensitive as the batch. So each unit's loss, and whether it was
clipped, are two more coordinates of its clipped vector: they get the same noise as the gradient,
are covered by the same event, and take a small share of the clip norm.
"""

import dataclasses
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite
from tulle.train.losses import CrossEntropy
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import (
    BatchReads,
    Contribution,
    DenseGradient,
    Gradient,
    RowGradient,
)
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.step_mechanism import StepMechanism
from tulle.train.settings.step_noise import IndependentNoise
from tulle.train.steps.gradient_noise import GradientNoise

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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepRelease:
    """What one step releases, with its noise in it."""

    gradients: list[Gradient]
    """Noisy mean gradient of each trained parameter, or of some rows of it. The next step writes
    over them."""
    monitored: Monitored | None
    """Noisy mean loss and clipped share; None if they are not monitored."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BatchUnits:
    """Which unit each row of a batch belongs to, and with what weight in its mean."""

    segments: Tensor
    """[rows]: number of each row's unit: 0, 0, 1, 2, 2, …; rows of a unit are side by side."""
    weights: Tensor
    """[rows]: weight of each row in the mean gradient of its unit."""
    num_segments: int
    """Number of units in the batch."""


class PrivateStep:
    """Noisy clipped gradients of a model, batch after batch.

    Privacy:
      Unit: a row, or a user if batches come with `BatchUnits`. L2 sensitivity of the sum:
      clip_norm if a unit is added or removed, twice that if it is replaced. Event: one
      Gaussian with `noise_multiplier` on a sampled batch. Relies on: the batch is a fresh
      draw of the plan's sampler.
    """

    def __init__(self, model: TowerModel, settings: StepSettings, noise: GradientNoise) -> None:
        self._model = model
        self._settings = settings
        self._noise = noise
        self._loss = CrossEntropy()
        self._sums = {
            name: torch.zeros_like(values)
            for name, values in trained_parameters(model, settings.towers).items()
        }
        num_entries = sum(values.numel() for values in self._sums.values())
        self._limit = settings.gradient_limit(num_entries)
        first = next(iter(model.parameters.values()))
        self._monitor_sums = first.new_zeros(2)

    def release(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None = None
    ) -> StepRelease:
        """The noisy mean gradient of one batch, and the noisy monitor.

        An empty batch gets the same noise as any other: a step without it would tell that nobody
        was drawn.

        Args:
          batch: Rows of the batch and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: Units of the rows if users are clipped, whose batches are never padded; None if
            each row is a unit.
        """
        for values in (*self._sums.values(), self._monitor_sums):
            values.zero_()
        if units is not None:
            self._add_users(batch, units)
        else:
            size = self._settings.rows_at_a_time or rows_that_suit(self._model, weights.device)
            for start in range(0, len(weights), size):
                rows = slice(start, start + size)
                self._add_rows(_part(batch, rows), weights[rows])
        return self._noisy()

    def _add_rows(self, batch: ExampleBatch, weights: Tensor) -> None:
        losses, contributions = self._passes(batch)
        norms = _total_norms(contributions, losses)
        self._monitor(losses, norms, weights)
        self._add(batch, contributions, weights * self._factors(norms), torch.isfinite(norms))

    def _add_users(self, batch: ExampleBatch, units: BatchUnits) -> None:
        losses, contributions = self._passes(batch)
        norms = _segment_norms(contributions, units, losses)
        mean_losses = torch.zeros_like(norms).index_add_(0, units.segments, units.weights * losses)
        self._monitor(mean_losses, norms, torch.ones_like(norms))
        factors = units.weights * self._factors(norms)[units.segments]
        self._add(batch, contributions, factors, torch.isfinite(norms)[units.segments])

    def _passes(self, batch: ExampleBatch) -> tuple[Tensor, list[Contribution]]:
        if batch.labels is None:
            raise ConfigError("the batch has no labels to train on.")
        reads = self._model.reads(batch.public_ids, batch.sensitive_ids)
        self._prepare(reads)
        forward = self._model.forward_reads(reads)
        labels = batch.labels.to(forward.logits.dtype)
        losses = self._loss.values(forward.logits, labels)
        logit_grads = self._loss.gradients(forward.logits, labels)
        return losses, forward.backward(logit_grads, towers=self._settings.towers)

    def _factors(self, norms: Tensor) -> Tensor:
        """Factors that clip the gradient of each unit."""
        # A norm of 0 gives infinity, which the clamp makes 1.
        return (self._limit / norms).clamp(max=1)

    def _add(
        self,
        batch: ExampleBatch,
        contributions: list[Contribution],
        weights: Tensor,
        is_finite: Tensor,
    ) -> None:
        if not bool(is_finite.any()):
            return
        if not bool(is_finite.all()):
            # 0 * NaN is NaN, so a weight of 0 cannot remove a row whose gradient is not finite:
            # another row takes its place, with a weight of 0. The batch keeps its length, since
            # with another length all other rows could be rounded in another way than when their
            # norms were taken.
            places = torch.arange(len(weights), device=weights.device)
            places = torch.where(is_finite, places, places[is_finite][0])
            weights = torch.where(is_finite, weights, 0)
            _, contributions = self._passes(_part(batch, places))
        for contribution in contributions:
            for gradient in contribution.weighted_sum(weights):
                self._accumulate(gradient)

    def _prepare(self, reads: BatchReads) -> None:
        """Brings table rows that are about to be read up to date; here they always are."""

    def _accumulate(self, gradient: Gradient) -> None:
        """Adds a clipped gradient to the sum of its parameter."""
        sums = self._sums[gradient.name]
        if isinstance(gradient, RowGradient):
            # Rows are distinct, so this adds each once.
            sums.index_add_(0, gradient.rows, gradient.values)
        else:
            sums += gradient.values

    def _monitor(self, losses: Tensor, norms: Tensor, weights: Tensor) -> None:
        if self._settings.monitor_share > 0:
            sums = self._settings.coordinates.sums(losses, norms > self._limit, weights)
            self._monitor_sums += sums

    def _noisy(self) -> StepRelease:
        """Adds noise to all sums, and divides them by the expected batch size."""
        settings, noise = self._settings, self._noise
        for name, values in self._sums.items():
            noise.add_to_sum(name, values, settings.noise_stddev)
        if settings.monitor_share > 0:
            noise.add_to_sum(MONITOR, self._monitor_sums, settings.noise_stddev)
        noise.end_step()
        # The expected size is public. The drawn size is not: dividing by it would make the
        # sensitivity depend on the batch.
        gradients: list[Gradient] = [
            DenseGradient(name=name, values=values.div_(settings.expected_size))
            for name, values in self._sums.items()
        ]
        if settings.monitor_share == 0:
            return StepRelease(gradients=gradients, monitored=None)
        monitored = settings.coordinates.read(
            self._monitor_sums,
            expected_size=settings.expected_size,
            noise_stddev=settings.noise_stddev,
        )
        return StepRelease(gradients=gradients, monitored=monitored)


def trained_parameters(model: TowerModel, towers: frozenset[str]) -> dict[str, Tensor]:
    """The parameters of these towers."""
    return {
        name: values
        for name, values in model.parameters.items()
        if name.partition(".")[0] in towers
    }


def segment_pairs(segments: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of different rows of the same unit, the earlier row first."""
    # Rows of a unit are side by side, so the first distance without a pair is the size of the
    # largest unit, and no greater distance has one.
    num_rows = len(segments)
    places = torch.arange(num_rows, device=segments.device)
    left, right = [places[:0]], [places[:0]]
    for distance in range(1, num_rows):
        is_same = segments[distance:] == segments[:-distance]
        if not bool(is_same.any()):
            break
        left.append(places[:-distance][is_same])
        right.append(places[distance:][is_same])
    return torch.cat(left), torch.cat(right)


def _total_norms(contributions: Iterable[Contribution], like: Tensor) -> Tensor:
    squares = torch.zeros_like(like)
    for contribution in contributions:
        squares += contribution.squared_norms()
    return squares.sqrt_()


def _segment_norms(contributions: list[Contribution], units: BatchUnits, like: Tensor) -> Tensor:
    """The norm of each unit's weighted sum of gradients, from inner products of its rows."""
    weights, segments = units.weights, units.segments
    left, right = segment_pairs(segments)
    # A user of many rows has very many pairs: their sum in single precision would be inexact.
    squares = torch.zeros(units.num_segments, dtype=torch.float64, device=like.device)
    sizes = torch.zeros_like(squares)
    for contribution in contributions:
        own = weights.square() * contribution.squared_norms().double()
        products = contribution.inner_products(left, right).double()
        mixed = 2 * weights[left] * weights[right] * products
        for sums, rows, pairs in ((squares, own, mixed), (sizes, own, mixed.abs())):
            sums.index_add_(0, segments, rows).index_add_(0, segments[left], pairs)
    # Where the gradients of a user's rows cancel, the sum is small and its rounding error is not:
    # the error of the terms is added, so that a norm is never too small to be clipped.
    return (squares.clamp_(min=0) + CLIP_SLACK * sizes).sqrt_().to(like.dtype)


def _part(batch: ExampleBatch, rows: slice | Tensor) -> ExampleBatch:
    return ExampleBatch(
        public_ids=batch.public_ids[rows],
        sensitive_ids=None if batch.sensitive_ids is None else batch.sensitive_ids[rows],
        labels=None if batch.labels is None else batch.labels[rows],
    )


def largest_weight(parameters: Iterable[Tensor]) -> float:
    """The largest absolute value of all parameters; NaN if one is NaN or infinite."""
    # Python's max() depends on the order of its arguments where one is NaN, hence the check.
    largest = [float(torch.linalg.vector_norm(values, ord=math.inf)) for values in parameters]
    return max(largest) if all(math.isfinite(value) for value in largest) else math.nan


# Measured on one core: activations of this many numbers stay in the cache, and the allocator has
# the memory at hand. Fresh pages in every step would cost a tenth of the step.
_NUMBERS_ON_CPU = 1 << 23
"""Activations that rows may have together when they go through a model at once on a CPU."""
_FEWEST_ROWS = 256
"""Least number of rows at once; with fewer, the cost of each call would dominate."""
_MOST_ROWS = 16384
"""Largest number of rows at once, which a GPU always takes."""


def rows_that_suit(model: TowerModel, device: torch.device) -> int:
    """Number of rows that go through a model at once; changes speed and memory alone.

    Models without layers sum rows as they read them and take many.

    Args:
      model: The model, whose layers say how much memory a row takes.
      device: Device that the model is on.
    """
    if device.type != "cpu":
        return _MOST_ROWS
    tables = model.tables
    weights = [values for name, values in model.parameters.items() if name not in tables]
    # Inputs and outputs of each layer, and with them their gradients.
    per_row = sum(sum(values.shape) for values in weights if values.dim() == 2)
    fitting = _NUMBERS_ON_CPU // max(per_row, 1)
    power_of_two = 1 << max(fitting.bit_length() - 1, 0)
    return min(max(power_of_two, _FEWEST_ROWS), _MOST_ROWS)
