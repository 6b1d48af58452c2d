"""What a step does to all examples and to all layers at once: losses, clipping, the update."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tulle.train.losses import CrossEntropy
from tulle.train.steps.gpu.kernel_launch import num_blocks, uses_kernels
from tulle.train.steps.monitor import LOSS_BOUND, MonitorCoordinates

_BLOCK = 256
_UPDATES = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class DenseRule:
    """What happens to the sum of a parameter's clipped gradients."""

    noise_stddev: float
    """Standard deviation of the noise on each entry; 0 for none."""
    divisor: float
    momentum: float
    weight_decay: float


def losses_and_grads(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of each example, and its gradient by the logit."""
    if not uses_kernels(logits):
        loss = CrossEntropy()
        return loss.values(logits, labels), loss.gradients(logits, labels)
    losses, grads = torch.empty_like(logits), torch.empty_like(logits)
    grid = (num_blocks(logits.numel(), _BLOCK),)
    _kernels().loss_kernel[grid](logits, labels, losses, grads, logits.numel(), BLOCK=_BLOCK)
    return losses, grads


def clip_factors(
    squares: Tensor,
    losses: Tensor,
    weights: Tensor,
    *,
    limit: float,
    coordinates: MonitorCoordinates,
) -> tuple[Tensor, Tensor]:
    """Factors that clip the gradients, as [batch], and the sums of the monitor, as [2].

    Args:
      squares: [batch]: squared norms of gradients. Where they are NaN or infinite, the factor is 0.
      losses: [batch]: loss of each row.
      weights: [batch]: 1 for a row of the batch, 0 for padding.
      limit: Largest norm of a gradient after clipping.
      coordinates: How losses and clipped shares are counted.
    """
    if not uses_kernels(squares):
        norms = squares.sqrt()
        factors = (limit / norms).clamp(max=1).masked_fill(~torch.isfinite(norms), 0)
        return weights * factors, coordinates.sums(losses, norms > limit, weights)
    factors, monitor = torch.empty_like(squares), squares.new_zeros(2)
    _kernels().clip_kernel[(num_blocks(squares.numel(), _BLOCK),)](
        squares,
        losses,
        weights,
        factors,
        monitor,
        squares.numel(),
        limit,
        coordinates.scale,
        LOSS_BOUND,
        BLOCK=_BLOCK,
    )
    return factors, monitor


def update_weights(
    weights: Tensor, mean: Tensor, sums: Tensor, noise: Tensor, *, rate: Tensor, rule: "DenseRule"
) -> None:
    """Adds noise to a sum, divides it, and takes a step of SGD with momentum, in place.

    Args:
      weights: [size]: weights, changed in place.
      mean: [size]: the momentum, changed in place.
      sums: [size]: sums of clipped gradients.
      noise: [size]: standard normals.
      rate: [1]: the learning rate.
      rule: Scale of the noise, divisor of the sums, momentum and decay.
    """
    if not uses_kernels(weights):
        gradient = sums.add(noise, alpha=rule.noise_stddev).div_(rule.divisor)
        mean.mul_(rule.momentum).add_(gradient)
        weights.mul_((1 - rate * rule.weight_decay).to(weights.dtype))
        weights.sub_(rate.to(weights.dtype) * mean)
        return
    _kernels().update_kernel[(num_blocks(weights.numel(), _UPDATES),)](
        weights,
        mean,
        sums,
        noise,
        weights.numel(),
        rate,
        rule.noise_stddev,
        rule.divisor,
        rule.momentum,
        rule.weight_decay,
        BLOCK=_UPDATES,
        IS_NOISY=rule.noise_stddev > 0,
    )


def _kernels() -> Any:
    # Only where there is a GPU is there a triton.
    from tulle.train.steps.gpu import layer_kernels

    return layer_kernels
