"""Triton kernels for rows of tables and for random words; twins: row_ops.py, device_keys.py.

Imported on machines with a GPU alone: triton comes with torch's CUDA builds.
"""

# Kernels are compiled from source that only looks like Python, with arguments that no type
# describes. ruff and mypy check the functions that start them.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, tl.full(c0.shape, 0xD2511F53, tl.uint32))
        low0 = c0 * tl.full(c0.shape, 0xD2511F53, tl.uint32)
        high1 = tl.umulhi(c2, tl.full(c2.shape, 0xCD9E8D57, tl.uint32))
        low1 = c2 * tl.full(c2.shape, 0xCD9E8D57, tl.uint32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += tl.full(k0.shape, 0x9E3779B9, tl.uint32)
        k1 += tl.full(k1.shape, 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def random_words(key_ptr, entity, part, draw):
    """Four random words for each place of int64 tensors of one shape.

    Args:
      key_ptr: Two words of key and two of nonce.
      entity: Number of the row or entry.
      part: Number of the part of it.
      draw: Number of the step or flush.
    """
    zeros = tl.zeros(entity.shape, tl.uint32)
    k0 = zeros + tl.load(key_ptr).to(tl.uint32)
    k1 = zeros + tl.load(key_ptr + 1).to(tl.uint32)
    c2 = (zeros + draw.to(tl.uint32)) ^ tl.load(key_ptr + 2).to(tl.uint32)
    c3 = (entity >> 32).to(tl.uint32) ^ tl.load(key_ptr + 3).to(tl.uint32)
    return _philox(entity.to(tl.uint32), part.to(tl.uint32), c2, c3, k0, k1)


@triton.jit
def normal_pairs(w0, w1, w2):
    """Two independent normals from three words.

    Args:
      w0: Upper 32 bits of the uniform number that gives the radius.
      w1: Lower 32 bits of it.
      w2: Word that gives the angle.
    """
    high, low = w0.to(tl.float64), w1.to(tl.float64)
    uniform = high * 2.0**-32 + (low + 0.5) * 2.0**-64
    radius = tl.sqrt(-2.0 * tl.log(uniform)).to(tl.float32)
    angle = (w2.to(tl.float32) + 0.5) * (6.283185307179586 * 2.0**-32)
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def words_kernel(out_ptr, key_ptr, draw_ptr, num_entities, BLOCK: tl.constexpr):
    """Random words, as [draws, entities, 4].

    Args:
      out_ptr: Tensor that gets the words, in int64.
      key_ptr: Two words of key and two of nonce.
      draw_ptr: Number of the first draw.
      num_entities: Number of entities of each draw.
      BLOCK: Entities of one program.
    """
    which = tl.program_id(1)
    entity = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    draw = tl.load(draw_ptr) + which
    part = tl.zeros((BLOCK,), tl.int64)
    words = random_words(key_ptr, entity.to(tl.int64), part, draw)
    out = out_ptr + (which.to(tl.int64) * num_entities + entity) * 4
    mask = entity < num_entities
    tl.store(out, words[0].to(tl.int64), mask)
    tl.store(out + 1, words[1].to(tl.int64), mask)
    tl.store(out + 2, words[2].to(tl.int64), mask)
    tl.store(out + 3, words[3].to(tl.int64), mask)


@triton.jit
def normals_kernel(out_ptr, size, key_ptr, draw_ptr, BLOCK: tl.constexpr):
    """Fills a tensor with standard normals: cosines in its first half, sines in its second.

    Args:
      out_ptr: Tensor that gets the normals.
      size: Number of its entries.
      key_ptr: Two words of key and two of nonce.
      draw_ptr: Number of the draw.
      BLOCK: Pairs of normals of one program.
    """
    half = tl.cdiv(size, 2)
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.zeros((BLOCK,), tl.int64)
    w0, w1, w2, _ = random_words(key_ptr, pair, part, tl.load(draw_ptr))
    both = normal_pairs(w0, w1, w2)
    for which in tl.static_range(2):
        place = pair + which * half
        tl.store(out_ptr + place, both[which], (pair < half) & (place < size))


@triton.jit
def claim_kernel(
    reads_ptr, first_read, num_reads, exact_at_ptr, now_ptr, owner_ptr, draw_ptr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Makes one read of each late row its owner: all reads write their place, any one stays.

    Args:
      reads_ptr: [reads]: row of the table that each read is of.
      first_read: First read of this launch.
      num_reads: End of the reads of this launch.
      exact_at_ptr: [rows]: step at which each row is up to date.
      now_ptr: Present step.
      owner_ptr: [rows]: number of the draw and place of the owner, in one word.
      draw_ptr: Number of this draw.
      BLOCK: Reads of one program.
    """
    place = first_read + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    mask = place < num_reads
    draw = tl.load(draw_ptr)
    row = tl.load(reads_ptr + place, mask, other=0)
    late = mask & (tl.load(exact_at_ptr + row, mask, other=0) < tl.load(now_ptr))
    # Many writes to one place are slow, so a row that has an owner already gets no other.
    free = (tl.load(owner_ptr + row, late, other=0) >> 32) != draw
    tl.store(owner_ptr + row, (draw << 32) | place, late & free)


@triton.jit
def list_kernel(
    reads_ptr, num_reads, exact_at_ptr, now_ptr, owner_ptr, draw_ptr, rows_ptr, seen_ptr,
    count_ptr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Lists each late row once, by its owner, and marks it as exact.

    Args:
      reads_ptr: [reads]: row of the table that each read is of.
      num_reads: Number of reads.
      exact_at_ptr: [rows]: step at which each row is up to date; set to the present step.
      now_ptr: Present step.
      owner_ptr: [rows]: number of the draw and place of the owner, in one word.
      draw_ptr: Number of this draw.
      rows_ptr: Gets the late rows.
      seen_ptr: Gets the step at which each of them was up to date.
      count_ptr: Gets the number of late rows.
      BLOCK: Reads of one program.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    mask = place < num_reads
    now = tl.load(now_ptr)
    own = (tl.load(draw_ptr) << 32) | place
    row = tl.load(reads_ptr + place, mask, other=0)
    seen = tl.load(exact_at_ptr + row, mask, other=0x7FFFFFFF)
    # Others may read a row's mark while its owner writes it: they find it late or not, and
    # are not the owner in either case.
    owns = mask & (seen < now) & (tl.load(owner_ptr + row, mask, other=-1) == own)
    first = owns.to(tl.int32)
    start = tl.atomic_add(count_ptr, tl.sum(first), sem="relaxed")
    target = start + tl.cumsum(first) - first
    tl.store(rows_ptr + target, row, owns)
    tl.store(seen_ptr + target, seen, owns)
    tl.store(exact_at_ptr + row, tl.zeros((BLOCK,), tl.int32) + now, owns)


@triton.jit
def _moves(aged, variance, stddev):
    """Coefficients of `LazyRows._moves`: one step of a Kalman filter that sees the weight.

    Computed in float64, since differences of variances lose digits.
    """
    drift, memory, weight_variance, covariance, momentum_variance = aged
    carried = drift * variance
    deviation = tl.sqrt(weight_variance + drift * carried)
    shared = covariance - memory * carried
    learned = shared / tl.maximum(deviation, 1e-200)
    left = momentum_variance + memory * memory * variance - learned * learned
    return (
        drift.to(tl.float32),
        memory.to(tl.float32),
        (deviation * stddev).to(tl.float32),
        (learned * stddev).to(tl.float32),
        tl.maximum(left, 0.0).to(tl.float32),
    )


@triton.jit
def catch_up_kernel(
    rows_ptr, seen_ptr, count_ptr, weights_ptr, mean_ptr, variance_ptr, now_ptr, kept_ptr,
    drift_ptr, weight_variance_ptr, covariance_ptr, memory_ptr, momentum_variance_ptr, horizon,
    key_ptr, draw_ptr, stddev, DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
    DECAYS: tl.constexpr,
):  # fmt: skip
    """Brings the listed rows up to date: their weights, mean momentum and its variance.

    Args:
      rows_ptr: Late rows, each once.
      seen_ptr: Step at which each of them was up to date.
      count_ptr: Number of late rows.
      weights_ptr: [rows, DIM]: weights of the table.
      mean_ptr: [rows, DIM]: mean momentum.
      variance_ptr: [rows]: variance of the momentum.
      now_ptr: Present step.
      kept_ptr: Share of the weight that decay leaves, by the step a row was up to date at.
      drift_ptr: Move of the weight for a momentum of 1, by the same step.
      weight_variance_ptr: Variance of the noise on the weight, by the same step.
      covariance_ptr: Covariance of the noise on weight and momentum, by the same step.
      memory_ptr: Share of the momentum that is left, by age.
      momentum_variance_ptr: Variance of the noise on the momentum, by age.
      horizon: Age from which on the momentum is forgotten.
      key_ptr: Two words of key and two of nonce.
      draw_ptr: Number of this draw.
      stddev: Standard deviation of the noise on each entry of one step's mean gradient.
      DIM: Numbers in a row.
      PAIRS: Pairs of normals for a row.
      BLOCK: Rows of one program at a time.
      DECAYS: True if there is weight decay.
    """
    count = tl.load(count_ptr)
    now = tl.load(now_ptr)
    draw = tl.load(draw_ptr)
    pairs = tl.arange(0, PAIRS)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        place = start + tl.arange(0, BLOCK)
        mask = place < count
        row = tl.load(rows_ptr + place, mask, other=0)
        seen = tl.load(seen_ptr + place, mask, other=0)
        age = tl.minimum(now - seen, horizon)
        aged = (
            tl.load(drift_ptr + seen, mask, other=0.0),
            tl.load(memory_ptr + age, mask, other=0.0),
            tl.load(weight_variance_ptr + seen, mask, other=0.0),
            tl.load(covariance_ptr + seen, mask, other=0.0),
            tl.load(momentum_variance_ptr + age, mask, other=0.0),
        )
        variance = tl.load(variance_ptr + row, mask, other=0.0).to(tl.float64)
        drift, memory, weight_noise, mean_noise, left = _moves(aged, variance, stddev)
        tl.store(variance_ptr + row, left, mask)
        kept = 1.0
        if DECAYS:
            kept = tl.load(kept_ptr + seen, mask, other=1.0).to(tl.float32)[:, None]
        entity = tl.zeros((BLOCK, PAIRS), tl.int64) + row[:, None]
        part = tl.zeros((BLOCK, PAIRS), tl.int64) + pairs[None, :]
        w0, w1, w2, _ = random_words(key_ptr, entity, part, draw)
        both = normal_pairs(w0, w1, w2)
        for half in tl.static_range(2):
            column = pairs[None, :] + half * PAIRS
            at = row[:, None] * DIM + column
            valid = mask[:, None] & (column < DIM)
            mean = tl.load(mean_ptr + at, valid, other=0.0)
            weights = tl.load(weights_ptr + at, valid, other=0.0)
            change = weight_noise[:, None] * both[half] - drift[:, None] * mean
            tl.store(weights_ptr + at, weights * kept + change, valid)
            mean = memory[:, None] * mean + mean_noise[:, None] * both[half]
            tl.store(mean_ptr + at, mean, valid)


@triton.jit
def end_step_kernel(
    now_ptr, rate_ptr, memory_ptr, kept_ptr, drift_ptr, weight_variance_ptr, covariance_ptr,
    decay_ptr, horizon, WINDOW: tl.constexpr, DECAYS: tl.constexpr,
):  # fmt: skip
    """Ends a step of `DeviceAges`: updates the moments of all ages, in one program.

    Args:
      now_ptr: Present step, which becomes the next one.
      rate_ptr: Learning rate of the step that ends.
      memory_ptr: Share of the momentum that is left, by age.
      kept_ptr: Share of the weight that decay leaves, by the step a row was up to date at.
      drift_ptr: Move of the weight for a momentum of 1, by the same step.
      weight_variance_ptr: Variance of the noise on the weight, by the same step.
      covariance_ptr: Covariance of the noise on weight and momentum, by the same step.
      decay_ptr: Weight decay.
      horizon: Age from which on the momentum is forgotten.
      WINDOW: Least power of 2 that is not smaller than the horizon.
      DECAYS: True if there is weight decay.
    """
    now = tl.load(now_ptr)
    rate = tl.load(rate_ptr)
    momentum = tl.load(memory_ptr + 1)
    left = 1.0 - rate * tl.load(decay_ptr)
    age = tl.arange(0, WINDOW)
    recent = now - age
    valid = (recent >= 0) & (age < horizon)
    power = tl.load(memory_ptr + age, valid, other=0.0)
    next_power = tl.load(memory_ptr + age + 1, valid, other=0.0)
    move = rate * power
    drift = left * tl.load(drift_ptr + recent, valid, other=0.0)
    added = (2.0 * drift + move) * move
    shared = move * next_power
    variance = tl.load(weight_variance_ptr + recent, valid, other=0.0)
    covariance = tl.load(covariance_ptr + recent, valid, other=0.0)
    tl.store(drift_ptr + recent, drift + move, valid)
    variance = left * left * variance + tl.cumsum(added)
    tl.store(weight_variance_ptr + recent, variance, valid)
    covariance = momentum * left * covariance - tl.cumsum(shared)
    tl.store(covariance_ptr + recent, covariance, valid)
    all_added, all_shared = tl.sum(added), tl.sum(shared)
    if DECAYS:
        kept = tl.load(kept_ptr + recent, valid, other=0.0)
        tl.store(kept_ptr + recent, kept * left, valid)
    for start in range(0, now - horizon + 1, WINDOW):
        old = start + age
        is_old = old <= now - horizon
        variance = tl.load(weight_variance_ptr + old, is_old, other=0.0)
        tl.store(weight_variance_ptr + old, left * left * variance + all_added, is_old)
        covariance = tl.load(covariance_ptr + old, is_old, other=0.0)
        tl.store(covariance_ptr + old, momentum * left * covariance - all_shared, is_old)
        if DECAYS:
            drift = tl.load(drift_ptr + old, is_old, other=0.0)
            tl.store(drift_ptr + old, drift * left, is_old)
            kept = tl.load(kept_ptr + old, is_old, other=0.0)
            tl.store(kept_ptr + old, kept * left, is_old)
    tl.store(now_ptr, now + 1)


@triton.jit
def gather_kernel(
    table_ptr, reads_ptr, out_ptr, squares_ptr, NUM_READS: tl.constexpr, READS: tl.constexpr,
    DIM: tl.constexpr, DIM_SPACE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    HAS_ONE: tl.constexpr,
):  # fmt: skip
    """Puts the table rows that each row of the batch reads side by side, with their squared norm.

    Args:
      table_ptr: [rows, DIM]: the table.
      reads_ptr: [batch, NUM_READS]: rows that are read.
      out_ptr: [batch, STRIDE]: gets the values, and zeros behind them.
      squares_ptr: [batch]: gets the squared norms of what was put.
      NUM_READS: Number of reads of a row of the batch.
      READS: Least power of 2 that is not smaller.
      DIM: Numbers in a row of the table.
      DIM_SPACE: Least power of 2 that is not smaller.
      STRIDE: Width of a padded row of the output.
      PAD: Least power of 2 that is not smaller than the padding.
      HAS_ONE: 1 to put a 1 right behind the values, which counts in the norm; else 0.
    """
    example = tl.program_id(0).to(tl.int64)
    read = tl.arange(0, READS)
    column = tl.arange(0, DIM_SPACE)
    valid = (read < NUM_READS)[:, None] & (column < DIM)[None, :]
    row = tl.load(reads_ptr + example * NUM_READS + read, read < NUM_READS, other=0)
    values = tl.load(table_ptr + row[:, None] * DIM + column[None, :], valid, other=0.0)
    # Norms are those of what is used, after rounding.
    values = values.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + example * STRIDE + read[:, None] * DIM + column[None, :], values, valid)
    values = values.to(tl.float32)
    tl.store(squares_ptr + example, tl.sum(values * values) + HAS_ONE)
    behind = tl.arange(0, PAD)
    filling = tl.where(behind == 0, 1.0 * HAS_ONE, 0.0).to(out_ptr.dtype.element_ty)
    place = NUM_READS * DIM + behind
    tl.store(out_ptr + example * STRIDE + place, filling, place < STRIDE)


@triton.jit
def table_norms_kernel(
    grads_ptr, reads_ptr, out_ptr, NUM_READS: tl.constexpr, READS: tl.constexpr,
    DIM: tl.constexpr, DIM_SPACE: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Adds the squared norm of the table gradients of each row of the batch.

    A table row may be read twice: its gradients are added up before the norm is taken.

    Args:
      grads_ptr: [batch, STRIDE]: gradients by each value that was read.
      reads_ptr: [batch, NUM_READS]: rows that were read.
      out_ptr: [batch]: squared norms that are added to.
      NUM_READS: Number of reads of a row of the batch.
      READS: Least power of 2 that is not smaller, and at least 16.
      DIM: Numbers in a row of the table.
      DIM_SPACE: Least power of 2 that is not smaller, and at least 16.
      STRIDE: Width of a padded row of gradients.
    """
    example = tl.program_id(0).to(tl.int64)
    read = tl.arange(0, READS)
    column = tl.arange(0, DIM_SPACE)
    at = example * STRIDE + read[:, None] * DIM + column[None, :]
    valid = (read < NUM_READS)[:, None] & (column < DIM)[None, :]
    grads = tl.load(grads_ptr + at, valid, other=0.0).to(tl.float32)
    # Reads that are not there have rows of their own, so that they match nothing.
    row = tl.load(reads_ptr + example * NUM_READS + read, read < NUM_READS, other=-1)
    row = tl.where(read < NUM_READS, row, -1 - read)
    same = row[:, None] == row[None, :]
    if tl.sum(same.to(tl.int32)) == READS:
        square = tl.sum(grads * grads)
    else:
        sums = tl.dot(same.to(tl.float32), grads, input_precision="ieee")
        earlier = same & (read[None, :] < read[:, None])
        is_first = tl.sum(earlier.to(tl.int32), axis=1) == 0
        square = tl.sum(tl.where(is_first[:, None], sums * sums, 0.0))
    tl.store(out_ptr + example, tl.load(out_ptr + example) + square)


@triton.jit
def row_norms_kernel(
    values_ptr, out_ptr, num_rows, STRIDE: tl.constexpr, SPACE: tl.constexpr, ROWS: tl.constexpr
):
    """Adds the squared norm of each row.

    Args:
      values_ptr: [rows, STRIDE]: the rows.
      out_ptr: [rows]: squared norms that are added to.
      num_rows: Number of rows.
      STRIDE: Width of a padded row.
      SPACE: Least power of 2 that is not smaller than STRIDE.
      ROWS: Rows of one program.
    """
    column = tl.arange(0, SPACE)
    for number in tl.static_range(ROWS):
        row = tl.program_id(0).to(tl.int64) * ROWS + number
        valid = column < tl.where(row < num_rows, STRIDE, 0)
        values = tl.load(values_ptr + row * STRIDE + column, valid, other=0.0).to(tl.float32)
        at = out_ptr + row
        before = tl.load(at, row < num_rows, other=0.0)
        tl.store(at, before + tl.sum(values * values), row < num_rows)


@triton.jit
def scatter_kernel(
    grads_ptr, reads_ptr, factors_ptr, out_ptr, scale_ptr, NUM_READS: tl.constexpr,
    READS: tl.constexpr, DIM: tl.constexpr, DIM_SPACE: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Adds scale * factor * gradient to the row of the table, for every read.

    Args:
      grads_ptr: [batch, STRIDE]: gradients by each value that was read.
      reads_ptr: [batch, NUM_READS]: rows that were read.
      factors_ptr: [batch]: factor of each row of the batch; a factor of 0 adds nothing.
      out_ptr: [rows, DIM]: what is added to.
      scale_ptr: Factor of all gradients.
      NUM_READS: Number of reads of a row of the batch.
      READS: Least power of 2 that is not smaller.
      DIM: Numbers in a row of the table.
      DIM_SPACE: Least power of 2 that is not smaller.
      STRIDE: Width of a padded row of gradients.
    """
    example = tl.program_id(0).to(tl.int64)
    factor = tl.load(factors_ptr + example)
    if factor != 0:
        scale = tl.load(scale_ptr)
        read = tl.arange(0, READS)
        column = tl.arange(0, DIM_SPACE)
        at = example * STRIDE + read[:, None] * DIM + column[None, :]
        valid = (read < NUM_READS)[:, None] & (column < DIM)[None, :]
        grads = tl.load(grads_ptr + at, valid, other=0.0).to(tl.float32)
        row = tl.load(reads_ptr + example * NUM_READS + read, read < NUM_READS, other=0)
        target = out_ptr + row[:, None] * DIM + column[None, :]
        tl.atomic_add(target, grads * (factor * scale), valid, sem="relaxed")
