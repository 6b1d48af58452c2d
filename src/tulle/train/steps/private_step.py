"""One step of DP-SGD: clip each unit, sum, add noise, divide by the public expected batch size.

Gradients of single rows are never built. A forward pass and a backward pass to the outputs of
layers give the norm of every row's gradient; one more matrix product for each layer gives the
clipped sum ("ghost clipping").
"""

import dataclasses
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from tulle.errors import ConfigError
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
from tulle.train.steps.gradient_noise import GradientNoise
from tulle.train.steps.step_settings import CLIP_SLACK, MONITOR, Monitored, StepSettings


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
        # Rounding to a lattice moves every trained number, so the limit depends on how many there
        # are.
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
        # The sums of the last step are its release: what is left of them would be released again.
        for values in (*self._sums.values(), self._monitor_sums):
            values.zero_()
        if units is not None:
            # All rows in one pass: the norm of a user is that of the sum over all of its rows.
            self._add_users(batch, units)
        else:
            size = self._settings.rows_at_a_time or rows_that_suit(self._model, weights.device)
            for start in range(0, len(weights), size):
                rows = slice(start, start + size)
                self._add_rows(batch.part(rows), weights[rows])
        return self._noisy()

    def _add_rows(self, batch: ExampleBatch, weights: Tensor) -> None:
        losses, contributions = self._passes(batch)
        # One norm over all parameters. With k of them clipped apart, a unit could add sqrt(k) clip
        # norms.
        norms = _total_norms(contributions, losses)
        # Rows without a finite norm count here, too: their coordinates are bounded whatever they
        # are.
        self._monitor(losses, norms, weights)
        self._add(batch, contributions, weights * self._factors(norms), torch.isfinite(norms))

    def _add_users(self, batch: ExampleBatch, units: BatchUnits) -> None:
        losses, contributions = self._passes(batch)
        norms = _segment_norms(contributions, units, losses)
        mean_losses = torch.zeros_like(norms).index_add_(0, units.segments, units.weights * losses)
        # A user is one unit of the monitor, however many rows it has.
        self._monitor(mean_losses, norms, torch.ones_like(norms))
        factors = units.weights * self._factors(norms)[units.segments]
        self._add(batch, contributions, factors, torch.isfinite(norms)[units.segments])

    def _passes(self, batch: ExampleBatch) -> tuple[Tensor, list[Contribution]]:
        if batch.labels is None:
            raise ConfigError("the batch has no labels to train on.")
        reads = self._model.reads(batch.public_ids, batch.sensitive_ids)
        # Before weights are read: late rows would give logits that the dense run never saw.
        self._prepare(reads)
        forward = self._model.forward_reads(reads)
        labels = batch.labels.to(forward.logits.dtype)
        losses = self._loss.values(forward.logits, labels)
        # Of each row's own loss, not of the mean: a norm must not depend on who else is in the
        # batch.
        logit_grads = self._loss.gradients(forward.logits, labels)
        return losses, forward.backward(logit_grads, towers=self._settings.towers)

    def _factors(self, norms: Tensor) -> Tensor:
        """Factors that clip the gradient of each unit."""
        # NaN stays NaN: `_add` takes such rows out.
        # A norm of 0 gives infinity, which the clamp makes 1.
        return (self._limit / norms).clamp(max=1)

    def _add(
        self,
        batch: ExampleBatch,
        contributions: list[Contribution],
        weights: Tensor,
        is_finite: Tensor,
    ) -> None:
        # No row is left that could take the place of the others. The noise comes all the same.
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
            _, contributions = self._passes(batch.part(places))
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
        # Noise comes before the division: its scale is that of the sum's sensitivity, and dividing
        # by a public number is post-processing.
        for name, values in self._sums.items():
            noise.add_to_sum(name, values, settings.noise_stddev)
        if settings.monitor_share > 0:
            noise.add_to_sum(MONITOR, self._monitor_sums, settings.noise_stddev)
        # Also after an empty batch: correlated noise counts the steps of the plan.
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
