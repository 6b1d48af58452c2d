"""What a step does to layers, losses and weights: kernels on a GPU, the same in torch elsewhere.

Rows of matrices are padded, so that products run on aligned memory. Behind the values of a
row may come a 1, which stands for the bias: a product with it adds up gradients of biases,
and the norm of the row counts it. All else behind is 0. Norms are those of what is stored,
after rounding, in single precision.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tulle.train.losses import CrossEntropy
from tulle.train.steps.gpu.device_keys import block_space, num_blocks, uses_kernels
from tulle.train.steps.step_settings import LOSS_BOUND, MonitorCoordinates

# Rows of one program of each kernel, and programs of a sum over all rows: four on each of the 132
# multiprocessors of an H100 or H200. They change speed, and the order of float additions.
_ROWS = 4
_SCALED = 8
_SUMMED = 8
_PROGRAMS = 132 * 4


def relu_rows(values: Tensor, bias: Tensor, squares: Tensor) -> None:
    """Adds a bias and takes the ReLU, in place; `squares` gets the squared norm of each row.

    Args:
      values: [batch, width]: inputs, which become outputs.
      bias: [width]: the bias, as long as the padded rows are.
      squares: [batch]: gets the squared norms.
    """
    if not uses_kernels(values):
        values.copy_((values.to(bias.dtype) + bias).relu())
        squares.copy_(_squares(values, squares))
        return
    _kernels().relu_kernel[_grid(values)](values, bias, squares, **_row_sizes(values))


def relu_rows_backward(grads: Tensor, values: Tensor, squares: Tensor) -> None:
    """Takes gradients back through a ReLU, in place; `squares` gets their squared norms.

    Args:
      grads: [batch, width]: gradients by the output of the ReLU, which become those by its input.
      values: [batch, width]: the output of the ReLU.
      squares: [batch]: gets the squared norms.
    """
    if not uses_kernels(values):
        grads.masked_fill_(values <= 0, 0)
        squares.copy_(_squares(grads, squares))
        return
    _kernels().relu_backward_kernel[_grid(values)](grads, values, squares, **_row_sizes(values))


def add_products(logits: Tensor, values: Tensor, weight: Tensor) -> None:
    """Adds values @ weight to logits.

    Args:
      logits: [batch]: logits that are added to.
      values: [batch, width]: values of the last layer.
      weight: [width]: weight of the output.
    """
    if not uses_kernels(values):
        logits += values.to(weight.dtype) @ weight
        return
    _kernels().logits_kernel[_grid(values)](values, weight, logits, **_row_sizes(values))


def products_backward(
    logit_grads: Tensor, weight: Tensor, values: Tensor, squares: Tensor, *, has_relu: bool
) -> Tensor:
    """The gradients by `values` of `add_products`, or by the inputs of their ReLU.

    Args:
      logit_grads: [batch]: gradients by the logits.
      weight: [width]: weight of `add_products`.
      values: [batch, width]: values of `add_products`.
      squares: [batch]: gets the squared norm of each row of gradients.
      has_relu: True if the values came out of a ReLU that gradients are taken back through.

    Returns:
      Gradients of the shape and type of `values`.
    """
    if not uses_kernels(values):
        grads = (logit_grads.unsqueeze(1) * weight).to(values.dtype)
        if has_relu:
            grads.masked_fill_(values <= 0, 0)
        squares.copy_(_squares(grads, squares))
        return grads
    grads = torch.empty_like(values)
    _kernels().logit_backward_kernel[_grid(values)](
        logit_grads, weight, values, grads, squares, HAS_RELU=has_relu, **_row_sizes(values)
    )
    return grads


def scale_rows(grads: Tensor, inputs: Tensor, factors: Tensor) -> None:
    """Scales the gradients of each row in place.

    Where the factor is 0, gradients and inputs of the row are cleared: they may be NaN or infinite.

    Args:
      grads: [batch, width]: gradients by the outputs of a layer.
      inputs: [batch, input width]: inputs of the layer.
      factors: [batch]: factor of each row.
    """
    if not uses_kernels(grads):
        is_off = (factors == 0).unsqueeze(1)
        scaled = grads.to(factors.dtype) * factors.unsqueeze(1)
        grads.copy_(scaled.masked_fill_(is_off, 0))
        inputs.masked_fill_(is_off, 0)
        return
    num_rows, width = grads.shape
    _kernels().scale_rows_kernel[(num_blocks(num_rows, _SCALED),)](
        grads,
        inputs,
        factors,
        num_rows,
        STRIDE=width,
        SPACE=block_space(width),
        INPUTS=inputs.shape[1],
        INPUTS_SPACE=block_space(inputs.shape[1]),
        ROWS=_SCALED,
    )


def weighted_rows(values: Tensor, factors: Tensor) -> Tensor:
    """factors @ values, [width]; rows of factor 0 are not looked at."""
    if not uses_kernels(values):
        is_off = (factors == 0).unsqueeze(1)
        return factors @ values.to(factors.dtype).masked_fill(is_off, 0)
    sums = factors.new_zeros(values.shape[1])
    _kernels().column_sums_kernel[(_PROGRAMS,)](
        values,
        factors,
        sums,
        len(values),
        STRIDE=values.shape[1],
        SPACE=block_space(values.shape[1]),
        BLOCK=_SUMMED,
    )
    return sums


def exact_product(left: Tensor, right: Tensor) -> Tensor:
    """left.T @ right in single precision or better, from what is stored."""
    if left.dtype is torch.bfloat16 and left.is_cuda:
        return torch.mm(left.t(), right, out_dtype=torch.float32)
    if left.dtype is torch.bfloat16:
        return left.float().t() @ right.float()
    return left.t() @ right


def _squares(values: Tensor, like: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values.to(like.dtype), dim=1)
    return norms.square()


def _row_sizes(values: Tensor) -> dict[str, int]:
    """Sizes for kernels that take a few rows a program."""
    return {
        "num_rows": len(values),
        "STRIDE": values.shape[1],
        "SPACE": block_space(values.shape[1]),
        "ROWS": _ROWS,
    }


def _grid(values: Tensor) -> tuple[int]:
    return (num_blocks(len(values), _ROWS),)


def _kernels() -> Any:
    # Only where there is a GPU is there a triton.
    from tulle.train.steps.gpu import layer_kernels

    return layer_kernels


# Numbers of one program of a kernel. They change speed, and the order in which the monitor adds up.
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
