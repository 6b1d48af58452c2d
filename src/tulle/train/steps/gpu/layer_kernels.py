"""Triton kernels for layers and for what all parameters share; twins: layer_ops.py.

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
    """Adds a bias and takes the ReLU in place; computes the squared norm of each row.

    Args:
      values_ptr: [rows, STRIDE]: inputs, which become outputs.
      bias_ptr: [STRIDE]: the bias.
      squares_ptr: [rows]: gets the squared norms.
      num_rows: Number of rows.
      STRIDE: Width of a padded row.
      SPACE: Least power of 2 that is not smaller than STRIDE.
      ROWS: Rows of one program.
    """
    column = tl.arange(0, SPACE)
    bias = tl.load(bias_ptr + column, column < STRIDE, other=0.0)
    for number in tl.static_range(ROWS):
        row = tl.program_id(0).to(tl.int64) * ROWS + number
        valid = column < tl.where(row < num_rows, STRIDE, 0)
        at = values_ptr + row * STRIDE + column
        values = tl.load(at, valid, other=0.0).to(tl.float32) + bias
        # A comparison that keeps NaN, so that the norm of its row shows it.
        values = tl.where(values < 0, 0.0, values).to(values_ptr.dtype.element_ty)
        tl.store(at, values, valid)
        values = values.to(tl.float32)
        tl.store(squares_ptr + row, tl.sum(values * values), row < num_rows)


@triton.jit
def relu_backward_kernel(
    grads_ptr, values_ptr, squares_ptr, num_rows, STRIDE: tl.constexpr, SPACE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Takes gradients back through a ReLU in place; computes the squared norm of each row.

    Args:
      grads_ptr: [rows, STRIDE]: gradients by the outputs, which become those by the inputs.
      values_ptr: [rows, STRIDE]: outputs of the ReLU.
      squares_ptr: [rows]: gets the squared norms.
      num_rows: Number of rows.
      STRIDE: Width of a padded row.
      SPACE: Least power of 2 that is not smaller than STRIDE.
      ROWS: Rows of one program.
    """
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
    """Adds the inner product of each row and a weight to the logits.

    Args:
      values_ptr: [rows, STRIDE]: the rows.
      weight_ptr: [STRIDE]: the weight.
      logits_ptr: [rows]: logits that are added to.
      num_rows: Number of rows.
      STRIDE: Width of a padded row.
      SPACE: Least power of 2 that is not smaller than STRIDE.
      ROWS: Rows of one program.
    """
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
    """Gradients by the rows that `logits_kernel` multiplied, or by the inputs of their ReLU.

    Args:
      logit_grads_ptr: [rows]: gradients by the logits.
      weight_ptr: [STRIDE]: the weight.
      values_ptr: [rows, STRIDE]: the rows that were multiplied.
      out_ptr: [rows, STRIDE]: gets the gradients.
      squares_ptr: [rows]: gets their squared norms.
      num_rows: Number of rows.
      STRIDE: Width of a padded row.
      SPACE: Least power of 2 that is not smaller than STRIDE.
      ROWS: Rows of one program.
      HAS_RELU: True to take the gradients back through a ReLU.
    """
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
    """Scales rows in place; where the factor is 0, the row and its inputs are cleared.

    Args:
      grads_ptr: [rows, STRIDE]: gradients that are scaled.
      inputs_ptr: [rows, INPUTS]: inputs of the layer.
      factors_ptr: [rows]: factor of each row.
      num_rows: Number of rows.
      STRIDE: Width of a padded row of gradients.
      SPACE: Least power of 2 that is not smaller than STRIDE.
      INPUTS: Width of a padded row of inputs.
      INPUTS_SPACE: Least power of 2 that is not smaller than INPUTS.
      ROWS: Rows of one program.
    """
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
    """Adds factors @ values to sums; rows of factor 0 are not read.

    Args:
      values_ptr: [rows, STRIDE]: the values.
      factors_ptr: [rows]: factor of each row.
      sums_ptr: [STRIDE]: sums that are added to.
      num_rows: Number of rows.
      STRIDE: Width of a padded row.
      SPACE: Least power of 2 that is not smaller than STRIDE.
      BLOCK: Rows that a program adds up at a time.
    """
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
    """Cross-entropy of each row and its gradient by the logit.

    Args:
      logits_ptr: [size]: logits.
      labels_ptr: [size]: labels, 0 or 1.
      losses_ptr: [size]: gets the losses.
      grads_ptr: [size]: gets the gradients.
      size: Number of rows.
      BLOCK: Rows of one program.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logits_ptr + at, at < size, other=0.0)
    label = tl.load(labels_ptr + at, at < size, other=0.0)
    small = tl.exp(-tl.abs(logit))
    # log(1 + x) with a term for small x, where 1 + x would lose it.
    rounded = 1.0 + small
    log1p = tl.where(rounded == 1.0, small, tl.log(rounded) * small / (rounded - 1.0))
    chance = tl.where(logit >= 0, 1.0, small) / rounded
    # A comparison that keeps NaN, which a maximum would drop.
    loss = tl.where(logit < 0, 0.0, logit) - logit * label + log1p
    tl.store(losses_ptr + at, loss, at < size)
    tl.store(grads_ptr + at, chance - label, at < size)


@triton.jit
def clip_kernel(
    squares_ptr, losses_ptr, weights_ptr, factors_ptr, monitor_ptr, size, limit, scale,
    loss_bound, BLOCK: tl.constexpr,
):  # fmt: skip
    """Factors that clip each row's gradient, and the sums of the monitor.

    Args:
      squares_ptr: [size]: squared norm of each row's gradient.
      losses_ptr: [size]: loss of each row.
      weights_ptr: [size]: 1 for a row of the batch, 0 for padding.
      factors_ptr: [size]: gets the factors.
      monitor_ptr: [2]: sums of bounded losses and of clipped rows that are added to.
      size: Number of rows.
      limit: Largest norm of a gradient.
      scale: Largest value of one coordinate of the monitor.
      loss_bound: Largest loss; larger ones count as this much.
      BLOCK: Rows of one program.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    norm = tl.sqrt(tl.load(squares_ptr + at, at < size, other=0.0))
    weight = tl.load(weights_ptr + at, at < size, other=0.0)
    loss = tl.load(losses_ptr + at, at < size, other=0.0)
    # Comparisons with NaN are false, so a norm that is NaN or infinite gives the factor 0.
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
    """Adds noise to a sum, takes its mean, and moves weights by SGD with momentum.

    Args:
      weights_ptr: [size]: weights, changed in place.
      momentum_ptr: [size]: momentum, changed in place.
      sums_ptr: [size]: clipped sums.
      noise_ptr: [size]: standard normals; not read unless IS_NOISY.
      size: Number of weights.
      rate_ptr: Learning rate of the step.
      noise_stddev: Standard deviation of the noise on each entry of the sum.
      divisor: Expected batch size.
      momentum: Share of the momentum that stays in each step.
      decay: Weight decay.
      BLOCK: Weights of one program.
      IS_NOISY: True if noise is added here.
    """
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
