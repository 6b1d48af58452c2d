"""What a step does to rows of tables: kernels on a GPU, the same in torch elsewhere.

No function here waits for the device or looks at a number on it, so that all of them can be
recorded once and replayed.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tulle.train.models.contributions import TableReads
from tulle.train.steps.gpu.device_keys import block_space, num_blocks, row_normals, uses_kernels

if TYPE_CHECKING:
    from tulle.train.steps.gpu.device_rows import DeviceAges, DeviceRows

# Numbers, rows or reads of one program of each kernel. They change speed alone: the noise of a row
# goes by its number and the step, never by the program that draws it.
_BLOCK = 256
_ROWS = 8
_NORMS = 4
# One in so many examples claims rows first; see `claim_late_rows`.
_FEW = 16
# Reads of one program that lists late rows: each adds to the common counter once.
_LISTED = 1024
# How many rows are late is known on the device alone, so the number of programs is fixed: 32 on
# each of the 132 multiprocessors of an H100 or H200, which take rows until none is left.
_PROGRAMS = 132 * 32
_CATCH_UP_WARPS = 2
# The same as in age_table.py: stands for a deviation of 0 as a divisor of 0.
_SMALLEST = 1e-200


def claim_late_rows(rows: "DeviceRows", reads: Tensor, *, draw: Tensor) -> None:
    """Lists the rows that are read and late, each once, and marks them as exact.

    Args:
      rows: The table.
      reads: [batch, reads]: rows of the table that are read.
      draw: [1]: the number of this step.
    """
    ages = rows.ages
    if not uses_kernels(reads):
        distinct = torch.unique(reads)
        late = distinct[rows.exact_at[distinct] < ages.now]
        rows.listed[: len(late)] = late
        rows.listed_seen[: len(late)] = rows.exact_at[late]
        rows.num_listed.fill_(len(late))
        rows.exact_at[late] = ages.now
        return
    rows.num_listed.zero_()
    marks = (rows.exact_at, ages.now, rows.owner, draw)
    # The first few examples claim the rows that nearly all of them read.
    size = reads.numel()
    few = min(size, reads.shape[1] * -(-len(reads) // _FEW))
    for start, end in ((0, few), (few, size)):
        if start < end:
            grid = (num_blocks(end - start, _BLOCK),)
            _kernels().claim_kernel[grid](reads, start, end, *marks, BLOCK=_BLOCK)
    _kernels().list_kernel[(num_blocks(size, _LISTED),)](
        reads,
        size,
        *marks,
        rows.listed,
        rows.listed_seen,
        rows.num_listed,
        BLOCK=_LISTED,
    )


def catch_up_listed(rows: "DeviceRows", *, key: Tensor, draw: Tensor) -> None:
    """Brings the listed rows up to date.

    Args:
      rows: The table, whose late rows `claim_late_rows` has listed.
      key: Key and nonce of the noise, from `device_key`.
      draw: [1]: number of the draw, which no other one with this key may have.
    """
    if not uses_kernels(rows.weights):
        _catch_up_listed(rows, key, draw)
        return
    ages, dim = rows.ages, rows.weights.shape[1]
    _kernels().catch_up_kernel[(_PROGRAMS,)](
        rows.listed,
        rows.listed_seen,
        rows.num_listed,
        rows.weights,
        rows.mean,
        rows.variance,
        ages.now,
        ages.kept,
        ages.drift,
        ages.weight_variance,
        ages.covariance,
        ages.memory,
        ages.momentum_variance,
        ages.horizon,
        key,
        draw,
        rows.noise_stddev,
        DIM=dim,
        PAIRS=block_space(dim + 1) // 2,
        BLOCK=_ROWS,
        DECAYS=ages.weight_decay > 0,
        num_warps=_CATCH_UP_WARPS,
    )


def gather_rows(
    table: Tensor, reads: Tensor, out: Tensor, squares: Tensor, *, has_one: bool
) -> None:
    """Puts the rows that each example reads side by side, and zeros behind them.

    Args:
      table: [rows, dim]: the table.
      reads: [batch, reads]: rows of the table that are read.
      out: [batch, at least reads * dim]: gets the values, in any float type.
      squares: [batch]: gets the squared norm of what was put.
      has_one: True to put a 1 right behind the rows, which counts in the norm.
    """
    num_reads, dim = reads.shape[1], table.shape[1]
    width = num_reads * dim
    if not uses_kernels(table):
        out[:, :width] = torch.nn.functional.embedding(reads, table).flatten(1)
        out[:, width:] = 0
        if has_one:
            out[:, width] = 1
        squares.copy_(torch.linalg.vector_norm(out.to(squares.dtype), dim=1).square())
        return
    _kernels().gather_kernel[(len(reads),)](
        table,
        reads,
        out,
        squares,
        PAD=block_space(max(1, out.shape[1] - width)),
        HAS_ONE=int(has_one),
        **_table_sizes(num_reads, dim, out.shape[1]),
    )


def add_table_norms(squares: Tensor, grads: Tensor, reads: TableReads, dim: int) -> None:
    """Adds the squared norm of each example's part in a table to `squares`.

    Args:
      squares: [batch]: squared norms that are added to.
      grads: [batch, at least reads * dim]: gradients by each value that was read, and zeros.
      reads: Rows that were read. Gradients of reads of the same row are added up first.
      dim: Numbers in a row of the table.
    """
    rows, stride = reads.rows, grads.shape[1]
    num_reads = rows.shape[1]
    if not uses_kernels(grads):
        values = _by_read(grads, num_reads, dim).to(squares.dtype)
        is_same = rows.unsqueeze(2) == rows.unsqueeze(1)
        sums = torch.bmm(is_same.to(values.dtype), values)
        is_repeat = torch.tril(is_same, -1).any(2)
        sums.masked_fill_(is_repeat.unsqueeze(2), 0)
        squares += torch.linalg.vector_norm(sums.flatten(1), dim=1).square()
    elif reads.may_repeat:
        sizes = _table_sizes(num_reads, dim, stride, least=16)
        _kernels().table_norms_kernel[(len(rows),)](grads, rows, squares, **sizes)
    else:
        sizes = {"STRIDE": stride, "SPACE": block_space(stride), "ROWS": _NORMS}
        grid = (num_blocks(len(rows), _NORMS),)
        _kernels().row_norms_kernel[grid](grads, squares, len(rows), **sizes)


def add_rows(out: Tensor, grads: Tensor, reads: Tensor, factors: Tensor, scale: Tensor) -> None:
    """Adds scale * factor * gradient to out[row], for every read of every row of the batch.

    Args:
      out: [rows, dim]: what is added to.
      grads: [batch, at least reads * dim]: gradients by each value that was read.
      reads: [batch, reads]: rows of the table that were read.
      factors: [batch]: factor that clips the gradient of each row of the batch. A row of factor 0
        adds nothing, whatever its gradients are.
      scale: [1]: factor of all gradients.
    """
    num_reads, dim = reads.shape[1], out.shape[1]
    if not uses_kernels(grads):
        values = _by_read(grads, num_reads, dim).to(out.dtype)
        scaled = values * (factors * scale)[:, None, None]
        # A factor of 0 does not remove a gradient that is NaN or infinite: 0 times it is NaN.
        scaled.masked_fill_((factors == 0)[:, None, None], 0)
        out.index_add_(0, reads.reshape(-1), scaled.flatten(0, 1))
        return
    sizes = _table_sizes(num_reads, dim, grads.shape[1])
    _kernels().scatter_kernel[(len(reads),)](grads, reads, factors, out, scale, **sizes)


def end_step(ages: "DeviceAges", rate: Tensor) -> None:
    """Makes all rows one step older; see `DeviceAges`."""
    if not uses_kernels(ages.now):
        _end_step(ages, rate)
        return
    _kernels().end_step_kernel[(1,)](
        ages.now,
        rate,
        ages.memory,
        ages.kept,
        ages.drift,
        ages.weight_variance,
        ages.covariance,
        ages.decay,
        ages.horizon,
        WINDOW=block_space(ages.horizon),
        DECAYS=ages.weight_decay > 0,
    )


def _by_read(grads: Tensor, num_reads: int, dim: int) -> Tensor:
    return grads[:, : num_reads * dim].reshape(len(grads), num_reads, dim)


def _table_sizes(num_reads: int, dim: int, stride: int, *, least: int = 1) -> dict[str, int]:
    return {
        "NUM_READS": num_reads,
        "READS": max(least, block_space(num_reads)),
        "DIM": dim,
        "DIM_SPACE": max(least, block_space(dim)),
        "STRIDE": stride,
    }


def _catch_up_listed(rows: "DeviceRows", key: Tensor, draw: Tensor) -> None:
    ages, count = rows.ages, int(rows.num_listed)
    some, seen = rows.listed[:count], rows.listed_seen[:count].long()
    age = (ages.now.long() - seen).clamp(max=ages.horizon)
    drift, memory = ages.drift[seen], ages.memory[age]
    variance = rows.variance[some].double()
    deviation = (ages.weight_variance[seen] + drift.square() * variance).sqrt()
    shared = ages.covariance[seen] - memory * drift * variance
    learned = shared / deviation.clamp(min=_SMALLEST)
    left = ages.momentum_variance[age] + memory.square() * variance - learned.square()
    rows.variance[some] = left.clamp(min=0).to(rows.variance.dtype)
    normals = row_normals(key, some, rows.weights.shape[1], draw)
    mean, weights = rows.mean[some].double(), rows.weights[some].double()
    noise = rows.noise_stddev * normals
    weights = weights * ages.kept[seen, None] - drift[:, None] * mean + deviation[:, None] * noise
    rows.weights[some] = weights.to(rows.weights.dtype)
    rows.mean[some] = (memory[:, None] * mean + learned[:, None] * noise).to(rows.mean.dtype)


def _end_step(ages: "DeviceAges", rate: Tensor) -> None:
    now = int(ages.now)
    left = float(1 - rate * ages.weight_decay)
    size = min(now + 1, ages.horizon)
    for values in (ages.drift, ages.kept):
        values[: now + 1] *= left
    move = ages.memory[:size] * rate
    # Entries lie by step, so the youngest is the last one.
    recent = slice(now + 1 - size, now + 1)
    added = torch.cumsum((2 * ages.drift[recent].flip(0) + move) * move, 0)
    shared = torch.cumsum(move * ages.memory[1 : size + 1], 0)
    ages.drift[recent] += move.flip(0)
    for values, factor, terms in (
        (ages.weight_variance, left**2, added),
        (ages.covariance, left * ages.momentum, -shared),
    ):
        values[: now + 1] *= factor
        values[recent] += terms.flip(0)
        values[: now + 1 - size] += terms[-1]
    ages.now += 1


def _kernels() -> Any:
    # Only where there is a GPU is there a triton.
    from tulle.train.steps.gpu import row_kernels

    return row_kernels
