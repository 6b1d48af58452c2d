"""Triton kernels for layers and for what all parameters share; twins: layer_ops.py, step_ops.py.

Imported on machines with a GPU alone: triton comes with torch's CUDA builds.
"""

# Kernels are compiled from source that only looks like Python, with arguments that no type
# describes. ruff and mypy check the functions that start them.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def relu_kernel(
    values_ptr, bias_ptr, squares_ptr, num_rows, STRIDE: tl.constexpr, SPACE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Bias and ReLU in place; the squared norm of each row."""
    column = tl.arange(0, SPACE)
    bias = tl.load(bias_ptr + column, column < STRIDE, other=0.0)
    for number in tl.static_range(ROWS):
        row = tl.program_id(0).to(tl.int64) * ROWS + number
        valid = column < tl.where(row < num_rows, STRIDE, 0)
        at = values_ptr + row * STRIDE + column
        values = tl.load(at, valid, other=0.0).to(tl.float32) + bias
        # A comparison that keeps what is no number, so that its row is found.
        values = tl.where(values < 0, 0.0, values).to(values_ptr.dtype.element_ty)
        tl.store(at, values, valid)
        values = values.to(tl.float32)
        tl.store(squares_ptr + row, tl.sum(values * values), row < num_rows)


@triton.jit
def relu_backward_kernel(
    grads_ptr, values_ptr, squares_ptr, num_rows, STRIDE: tl.constexpr, SPACE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Gradient through a ReLU in place; the squared norm of each row."""
    column = tl.arange(0, SPACE)
    for number in tl.static_range(ROWS):
        row = tl.program_id(0).to(tl.int64) * ROWS + number
        valid = column < tl.where(row < num_rows, STRIDE, 0)
        at = row * STRIDE + column
        grads = tl.load(grads_ptr + at, valid, other=0.0)
        values = tl.load(values_ptr + at, valid, other=0.0)
        grads = tl.where(values <= 0, 0.0, grads).to(grads_ptr.dtype.element_ty)
        tl.store(grads_ptr + at, grads, valid)
        grads = grads.to(tl.float32)
        tl.store(squares_ptr + row, tl.sum(grads * grads), row < num_rows)


@triton.jit
def logits_kernel(
    values_ptr, weight_ptr, logits_ptr, num_rows, STRIDE: tl.constexpr, SPACE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Adds the product of each row and a weight."""
    column = tl.arange(0, SPACE)
    weight = tl.load(weight_ptr + column, column < STRIDE, other=0.0)
    for number in tl.static_range(ROWS):
        row = tl.program_id(0).to(tl.int64) * ROWS + number
        valid = column < tl.where(row < num_rows, STRIDE, 0)
        values = tl.load(values_ptr + row * STRIDE + column, valid, other=0.0)
        product = tl.sum(values.to(tl.float32) * weight)
        before = tl.load(logits_ptr + row, row < num_rows, other=0.0)
        tl.store(logits_ptr + row, before + product, row < num_rows)


@triton.jit
def logit_backward_kernel(
    logit_grads_ptr, weight_ptr, values_ptr, out_ptr, squares_ptr, num_rows,
    STRIDE: tl.constexpr, SPACE: tl.constexpr, ROWS: tl.constexpr, HAS_RELU: tl.constexpr,
):  # fmt: skip
    """The gradient by the row that was multiplied with a weight, or by what its ReLU was fed."""
    column = tl.arange(0, SPACE)
    weight = tl.load(weight_ptr + column, column < STRIDE, other=0.0)
    for number in tl.static_range(ROWS):
        row = tl.program_id(0).to(tl.int64) * ROWS + number
        valid = column < tl.where(row < num_rows, STRIDE, 0)
        at = row * STRIDE + column
        grads = weight * tl.load(logit_grads_ptr + row, row < num_rows, other=0.0)
        if HAS_RELU:
            values = tl.load(values_ptr + at, valid, other=0.0)
            grads = tl.where(values <= 0, 0.0, grads)
        grads = grads.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + at, grads, valid)
        grads = grads.to(tl.float32)
        tl.store(squares_ptr + row, tl.sum(grads * grads), row < num_rows)


@triton.jit
def scale_rows_kernel(
    grads_ptr, inputs_ptr, factors_ptr, num_rows, STRIDE: tl.constexpr, SPACE: tl.constexpr,
    INPUTS: tl.constexpr, INPUTS_SPACE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Scales rows in place; where the factor is 0, the row and its inputs are cleared."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    number = first + tl.arange(0, ROWS)
    factors = tl.load(factors_ptr + number, number < num_rows, other=1.0)
    # Most rows need no clipping.
    if tl.sum(tl.where(factors != 1, 1, 0)) > 0:
        column = tl.arange(0, SPACE)
        place = tl.arange(0, INPUTS_SPACE)
        zeros = tl.zeros((INPUTS_SPACE,), inputs_ptr.dtype.element_ty)
        for offset in range(0, ROWS):  # noqa: PIE808
            row = first + offset
            factor = tl.load(factors_ptr + row, row < num_rows, other=1.0)
            if factor != 1:
                at = grads_ptr + row * STRIDE + column
                looked_at = tl.where(factor != 0, STRIDE, 0)
                grads = tl.load(at, column < looked_at, other=0.0).to(tl.float32)
                scaled = (grads * factor).to(grads_ptr.dtype.element_ty)
                tl.store(at, scaled, column < STRIDE)
                cleared = tl.where(factor != 0, 0, INPUTS)
                tl.store(inputs_ptr + row * INPUTS + place, zeros, place < cleared)


@triton.jit
def column_sums_kernel(
    values_ptr, factors_ptr, sums_ptr, num_rows, STRIDE: tl.constexpr, SPACE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """sums += factors @ values; rows of factor 0 are not looked at."""
    column = tl.arange(0, SPACE)
    sums = tl.zeros((SPACE,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, num_rows, tl.num_programs(0) * BLOCK):
        row = start + tl.arange(0, BLOCK).to(tl.int64)
        factor = tl.load(factors_ptr + row, row < num_rows, other=0.0)
        valid = (factor != 0)[:, None] & (column < STRIDE)[None, :]
        at = values_ptr + row[:, None] * STRIDE + column[None, :]
        values = tl.load(at, valid, other=0.0).to(tl.float32)
        sums += tl.sum(values * factor[:, None], axis=0)
    tl.atomic_add(sums_ptr + column, sums, column < STRIDE, sem="relaxed")


@triton.jit
def loss_kernel(logits_ptr, labels_ptr, losses_ptr, grads_ptr, size, BLOCK: tl.constexpr):
    """Cross entropy of each example and its gradient by the logit."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logits_ptr + at, at < size, other=0.0)
    label = tl.load(labels_ptr + at, at < size, other=0.0)
    small = tl.exp(-tl.abs(logit))
    # log(1 + x) with a term for small x, where 1 + x would lose it.
    rounded = 1.0 + small
    log1p = tl.where(rounded == 1.0, small, tl.log(rounded) * small / (rounded - 1.0))
    chance = tl.where(logit >= 0, 1.0, small) / rounded
    # What is no number stays so: a maximum would drop it.
    loss = tl.where(logit < 0, 0.0, logit) - logit * label + log1p
    tl.store(losses_ptr + at, loss, at < size)
    tl.store(grads_ptr + at, chance - label, at < size)


@triton.jit
def clip_kernel(
    squares_ptr, losses_ptr, weights_ptr, factors_ptr, monitor_ptr, size, limit, scale,
    loss_bound, BLOCK: tl.constexpr,
):  # fmt: skip
    """What each example is multiplied with, and the sums of the monitor."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    norm = tl.sqrt(tl.load(squares_ptr + at, at < size, other=0.0))
    weight = tl.load(weights_ptr + at, at < size, other=0.0)
    loss = tl.load(losses_ptr + at, at < size, other=0.0)
    # Comparisons with what is no number are false.
    factor = tl.where(norm <= limit, 1.0, tl.where(norm < float("inf"), limit / norm, 0.0))
    tl.store(factors_ptr + at, weight * factor, at < size)
    bounded = tl.where(loss < loss_bound, tl.where(loss > 0, loss, 0.0), loss_bound) / loss_bound
    clipped = tl.where(norm > limit, 1.0, 0.0)
    tl.atomic_add(monitor_ptr, tl.sum(scale * bounded * weight), sem="relaxed")
    tl.atomic_add(monitor_ptr + 1, tl.sum(scale * clipped * weight), sem="relaxed")


@triton.jit
def update_kernel(
    weights_ptr, momentum_ptr, sums_ptr, noise_ptr, size, rate_ptr, noise_stddev, divisor,
    momentum, decay, BLOCK: tl.constexpr, IS_NOISY: tl.constexpr,
):  # fmt: skip
    """Noise on a sum, its mean, and SGD with momentum on it."""
    rate = tl.load(rate_ptr).to(tl.float32)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = at < size
    gradient = tl.load(sums_ptr + at, valid, other=0.0)
    if IS_NOISY:
        gradient += noise_stddev * tl.load(noise_ptr + at, valid, other=0.0)
    mean = momentum * tl.load(momentum_ptr + at, valid, other=0.0) + gradient / divisor
    tl.store(momentum_ptr + at, mean, valid)
    weights = tl.load(weights_ptr + at, valid, other=0.0)
    tl.store(weights_ptr + at, weights * (1.0 - rate * decay) - rate * mean, valid)
