"""One step of DP-SGD: clip each unit, sum, add noise, divide by the public size.

Gradients of single examples are never built. A forward pass and a backward pass to
the outputs of layers give every norm; one more product a layer gives the clipped sum.
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
from tulle.train.models.contributions import Contribution, DenseGradient, Gradient, RowGradient
from tulle.train.models.table_reads import BatchReads
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.step_mechanism import StepMechanism
from tulle.train.settings.step_noise import IndependentNoise
from tulle.train.steps.gradient_noise import GradientNoise
from tulle.train.steps.monitor import MonitorCoordinates, Monitored

CLIP_SLACK = 1e-4
"""Norms are floats, those of 100,000 numbers right to 5e-5: clipping to this much less keeps
the true norm within the bound."""
MONITOR = "monitor"
"""The name of the monitor among the sums of a step; parameters have a dot in theirs."""

_LEAST_OF_NORM = 0.9
_MOST_SLACK = 0.05
_NUM_MONITORED = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings:
    """What a private step does to a batch. Made from a plan, never by hand."""

    clip_norm: float
    noise_multiplier: float
    expected_size: float
    """Public: what sums are divided by."""
    monitor_share: float
    towers: frozenset[str]
    """The towers that are trained, and clipped together."""
    rows_at_a_time: int | None = None
    """Larger batches are summed in parts of this size; None for what suits the device. Changes
    speed and memory alone."""
    mechanism: StepMechanism = dataclasses.field(default_factory=IndependentNoise)
    """Where the noise of a step goes."""
    num_steps: int = 1
    """Public: steps of the whole run. Correlated noise is tuned for them."""
    clip_slack: float = CLIP_SLACK
    """Share of the norm that is kept free for rounding. Arithmetic that is less exact needs
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
        """How loss and clipped share travel with the gradient."""
        return MonitorCoordinates(clip_norm=self.clip_norm, share=self.monitor_share)

    def gradient_limit(self, num_entries: int) -> float:
        """What the gradient of a unit is clipped to, over this many trained numbers.

        What the unit adds to all sums of a step, the monitor's and rounding to a lattice
        included, then has a norm of at most `clip_norm`.

        Raises:
          ConfigError: The lattice is too coarse for a model of this size.
        """
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
    """What one step gives away, with its noise in it."""

    gradients: list[DenseGradient]
    """One for each trained parameter. The next step writes over them."""
    monitored: Monitored | None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BatchUnits:
    """Which unit each row of a batch belongs to, and with what weight in its mean."""

    segments: Tensor
    """[rows]: 0, 0, 1, 2, 2, …; rows of a unit are side by side."""
    weights: Tensor
    """[rows]."""
    num_segments: int


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

        Args:
          batch: Rows of the batch and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: For clipped users; rows are never padded then.
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
        """What each unit's gradient is multiplied with."""
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
            # Zero times what is no number is no number, so another row takes such a place. The
            # batch keeps its length: with another one all other rows would be rounded otherwise
            # than when their norms were taken.
            places = torch.arange(len(weights), device=weights.device)
            places = torch.where(is_finite, places, places[is_finite][0])
            weights = torch.where(is_finite, weights, 0)
            _, contributions = self._passes(_part(batch, places))
        for contribution in contributions:
            for gradient in contribution.weighted_sum(weights):
                self._accumulate(gradient)

    def _prepare(self, reads: BatchReads) -> None:
        """Brings rows that are about to be read up to date; here they always are."""

    def _accumulate(self, gradient: Gradient) -> None:
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
        settings, noise = self._settings, self._noise
        for name, values in self._sums.items():
            noise.add_to_sum(name, values, settings.noise_stddev)
        if settings.monitor_share > 0:
            noise.add_to_sum(MONITOR, self._monitor_sums, settings.noise_stddev)
        noise.end_step()
        gradients = [
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
    """All pairs of different rows of one segment, the earlier row first."""
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
    """The norm of each unit's weighted sum, from inner products of its rows."""
    weights, segments = units.weights, units.segments
    left, right = segment_pairs(segments)
    # A user of many rows has very many pairs: a sum of them in single precision would drift.
    squares = torch.zeros(units.num_segments, dtype=torch.float64, device=like.device)
    sizes = torch.zeros_like(squares)
    for contribution in contributions:
        own = weights.square() * contribution.squared_norms().double()
        products = contribution.inner_products(left, right).double()
        mixed = 2 * weights[left] * weights[right] * products
        for sums, rows, pairs in ((squares, own, mixed), (sizes, own, mixed.abs())):
            sums.index_add_(0, segments, rows).index_add_(0, segments[left], pairs)
    # Where rows cancel out, rounding of the terms must not make the norm too small.
    return (squares.clamp_(min=0) + CLIP_SLACK * sizes).sqrt_().to(like.dtype)


def _part(batch: ExampleBatch, rows: slice | Tensor) -> ExampleBatch:
    return ExampleBatch(
        public_ids=batch.public_ids[rows],
        sensitive_ids=None if batch.sensitive_ids is None else batch.sensitive_ids[rows],
        labels=None if batch.labels is None else batch.labels[rows],
    )


def largest_weight(parameters: Iterable[Tensor]) -> float:
    """The largest absolute value of all parameters; not a number if one is none."""
    largest = [float(torch.linalg.vector_norm(values, ord=math.inf)) for values in parameters]
    return max(largest) if all(math.isfinite(value) for value in largest) else math.nan


# Measured on one core: what layers keep of so many numbers stays in the cache, and the
# allocator has the memory at hand. Fresh pages in every step would cost a tenth of it.
_NUMBERS_ON_CPU = 1 << 23
_FEWEST_ROWS = 256
_MOST_ROWS = 16384


def rows_that_suit(model: TowerModel, device: torch.device) -> int:
    """Rows that go through a model at once; changes speed and memory alone.

    Models without layers sum rows as they read them and take many.
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
