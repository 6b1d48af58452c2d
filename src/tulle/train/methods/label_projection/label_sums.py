"""The noisy sum of logit gradients of a private batch, over its rows with label 1.

The gradient of a row's loss is (sigma(t) - y) J with J the gradient of its logit t. Features
are public, so sigma(t) and J are; what labels decide is the sum of y J. A label switches the
clipped J of its row on or off and moves the sum by the clip norm at most. Clipping the whole
gradient instead would let a replaced label turn it round, by up to twice the clip norm.

Noise is drawn for those numbers alone that a public batch touches. The release of a step is
the sum with noise on every number; what follows sees a part of it, chosen by public rows, and
a part of a vector with independent noise is that part with its noise. Numbers that nobody
looks at need not be drawn.
"""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import Contribution, Gradient, RowGradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.steps.private_step import rows_that_suit
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogitPass:
    """One batch with the gradients of its logits by the trained parameters."""

    logits: Tensor
    """[batch]: log odds of label 1."""
    contributions: list[Contribution]
    """Gradients of the logits themselves, not of a loss: no label is in them."""
    norms: Tensor
    """[batch]: norm of each row's gradient over all trained parameters."""

    def factors(self, limit: float) -> Tensor:
        """[batch]: factor of each gradient, so that none is longer than `limit`."""
        return (limit / self.norms).clamp(max=1)


def logit_pass(model: TowerModel, batch: ExampleBatch, towers: frozenset[str]) -> LogitPass:
    """Gradients of logits by the parameters of some towers.

    Args:
      model: The model with its present weights.
      batch: Rows of the batch.
      towers: Names of the towers whose parameters are trained.

    Privacy:
      Looks at public features alone, never at labels or sensitive columns. Which rows are in
      the batch may still be a secret.
    """
    forward = model.forward(batch.public_ids, None)
    contributions = forward.backward(torch.ones_like(forward.logits), towers=towers)
    squares = torch.zeros_like(forward.logits)
    for contribution in contributions:
        squares += contribution.squared_norms()
    return LogitPass(logits=forward.logits, contributions=contributions, norms=squares.sqrt_())


def empty_sums(public: LogitPass) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Zeros for every number that the gradients of a batch can touch.

    Returns:
      By parameter, zeros of its shape, or of the table rows that the batch reads; and by table,
      which rows these are, distinct and in order.
    """
    nothing = torch.zeros_like(public.logits)
    sums: dict[str, Tensor] = {}
    rows: dict[str, Tensor] = {}
    for contribution in public.contributions:
        for gradient in contribution.weighted_sum(nothing):
            sums[gradient.name] = torch.zeros_like(gradient.values)
            if isinstance(gradient, RowGradient):
                rows[gradient.name] = gradient.rows
    return sums, rows


def fitting_settings(settings: StepSettings, public: LogitPass) -> StepSettings:
    """The same step with a clip norm that is no larger than public rows have use for.

    The noise is relative to the clip norm. Logit gradients do not depend on labels, so how long
    they are is public, and noise for longer ones would be wasted.

    Raises:
      RunStateError: A gradient is not finite.
    """
    largest = float(public.norms.max())
    if not largest < float("inf"):
        raise RunStateError(
            "training diverged: the gradient of a public row is not finite; lower the learning "
            "rate. What was spent stays spent."
        )
    # Gradients may have this share of the clip norm: divided by it, the longest one just fits.
    share = settings.gradient_limit(0) / settings.clip_norm
    return dataclasses.replace(settings, clip_norm=min(settings.clip_norm, largest / share))


LOGIT_BOUND = 4.0
"""Largest absolute logit in the monitored loss; larger ones count as this much."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisySums:
    """What one step releases, with its noise in it."""

    values: Mapping[str, Tensor]
    """Noisy sums by parameter: of its shape, or of the shape of the table rows in `rows`."""
    rows: Mapping[str, Tensor]
    """Rows that the sums are of, by table; distinct and in order. They are public."""
    logit_mean: float | None
    """Noisy mean of y times the bounded logit; None if nothing is monitored."""


class LabelSums:
    """Noisy sums of one model, batch after batch.

    Privacy:
      Unit: a row, of which the label is replaced; features are public. L2 sensitivity of the
      sums of a step, the monitored one included: `clip_norm`. Event: one `SwitchedGaussian`
      with `noise_multiplier` on a sampled batch. Relies on: the batch is a fresh draw of the
      plan's sampler that nothing else is told about, the public batch too.
    """

    def __init__(self, model: TowerModel, noise: TrainingNoise) -> None:
        self._model, self._noise = model, noise

    def release(
        self, batch: ExampleBatch, weights: Tensor, public: LogitPass, settings: StepSettings
    ) -> NoisySums:
        """The sums of one batch at the numbers that a public batch touches.

        Args:
          batch: Rows of the private batch and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          public: A batch that was drawn apart, at the same weights of the model.
          settings: Clip, noise and the public size of the batch.
        """
        sums, rows = empty_sums(public)
        logit_sum = public.logits.new_zeros(1)
        size = settings.rows_at_a_time or rows_that_suit(self._model, weights.device)
        for start in range(0, len(weights), size):
            some = slice(start, start + size)
            part = batch.part(some)
            logit_sum += self._add_part(part, weights[some], sums, rows, settings)
        # On every number, also where the private batch adds nothing: a sum without noise would show
        # that.
        for values in sums.values():
            self._noise.add_to(values, settings.noise_stddev)
        logit_mean = None
        if settings.monitor_share > 0:
            self._noise.add_to(logit_sum, settings.noise_stddev)
            scale = _logit_scale(settings) * settings.expected_size
            logit_mean = LOGIT_BOUND * float(logit_sum) / scale
        return NoisySums(values=sums, rows=rows, logit_mean=logit_mean)

    def _add_part(
        self,
        batch: ExampleBatch,
        weights: Tensor,
        sums: Mapping[str, Tensor],
        rows: Mapping[str, Tensor],
        settings: StepSettings,
    ) -> Tensor:
        """Adds some rows to the sums; returns what they add to the monitored one."""
        if batch.labels is None:
            raise ConfigError("the batch has no labels to train on.")
        found = logit_pass(self._model, batch, settings.towers)
        switched = weights * batch.labels.to(weights.dtype)
        is_finite = torch.isfinite(found.norms)
        if not bool(is_finite.any()):
            return torch.zeros_like(found.logits[:1])
        if not bool(is_finite.all()):
            # Zero times what is no number is no number, so another row takes such a place.
            places = torch.arange(len(weights), device=weights.device)
            places = torch.where(is_finite, places, places[is_finite][0])
            switched = torch.where(is_finite, switched, 0)
            found = logit_pass(self._model, batch.part(places), settings.towers)
        factors = switched * found.factors(settings.gradient_limit(0))
        for contribution in found.contributions:
            for gradient in contribution.weighted_sum(factors):
                _accumulate(sums[gradient.name], rows.get(gradient.name), gradient)
        return _monitored_sum(found.logits, switched, settings)


def _monitored_sum(logits: Tensor, switched: Tensor, settings: StepSettings) -> Tensor:
    bounded = logits.clamp(-LOGIT_BOUND, LOGIT_BOUND) / LOGIT_BOUND
    return _logit_scale(settings) * (bounded * switched).sum().unsqueeze(0)


def _logit_scale(settings: StepSettings) -> float:
    """The largest value of the monitored coordinate; the gradient has the rest of the norm."""
    return settings.clip_norm * settings.monitor_share


def _accumulate(sums: Tensor, rows: Tensor | None, gradient: Gradient) -> None:
    if rows is None or not isinstance(gradient, RowGradient):
        sums += gradient.values
        return
    places = torch.searchsorted(rows, gradient.rows).clamp_(max=max(len(rows) - 1, 0))
    is_touched = rows[places] == gradient.rows
    # Rows are distinct, so this adds each once.
    sums.index_add_(0, places[is_touched], gradient.values[is_touched])
