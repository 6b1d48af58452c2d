"""Logit gradients of rows whose features are public: the side of a step that costs nothing."""

import dataclasses

import torch
from torch import Tensor

from tulle.errors import RunStateError
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import Contribution, RowGradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.steps.private_step import StepSettings


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
    share = settings.gradient_limit(0) / settings.clip_norm
    return dataclasses.replace(settings, clip_norm=min(settings.clip_norm, largest / share))
