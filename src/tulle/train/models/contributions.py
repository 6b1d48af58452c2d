"""Norms and weighted sums of per-example gradients that are never built.

For a layer z = W a + b the gradient of one example is an outer product, so its
norm is a product of two norms and a weighted sum is one matrix product. For a
table it has one row for each distinct id the example reads: where an example
reads a row twice, the two gradients are added before the norm is taken. Which rows a
batch reads is found and sorted once, for noise, norms and sums alike.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableReads:
    """Reads of one table. As sensitive as the ids they come from."""

    table: str
    """Name of the parameter."""
    rows: Tensor
    """[batch, features], int64."""
    values: Tensor | None = None
    """[some rows, dim]: what `rows` are places in; None: the whole table."""

    may_repeat: bool = True
    """False if no example can read a row twice, as where every feature has rows of its own."""

    def source(self, table: Tensor) -> Tensor:
        """Tensor that the rows are read from: the table, unless some of it was fetched."""
        return table if self.values is None else self.values

    @functools.cached_property
    def in_order(self) -> "SortedReads":
        """The same reads by row; sorted once, for noise, norms and sums alike."""
        return _sorted(self.rows)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BatchReads:
    """All that a model reads from its tables for one batch."""

    num_rows: int
    """Examples of the batch."""
    public: tuple[TableReads, ...]
    sensitive: tuple[TableReads, ...] | None
    """Reads of the sensitive tower; None for the truncated form."""

    @property
    def tables(self) -> tuple[TableReads, ...]:
        """Reads of both towers."""
        return self.public + (self.sensitive or ())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SortedReads:
    """All reads of a batch in the order of the rows they hit."""

    rows: Tensor
    """Distinct, in order."""
    starts: Tensor
    """The first read of each row."""
    order: Tensor
    """Which read, counted over the batch, comes at each place."""
    examples: Tensor
    """Row of the batch that each read belongs to."""
    is_repeat: Tensor
    """True for a read whose row of the batch has read the same table row before."""

    @property
    def counts(self) -> Tensor:
        """Reads of each row."""
        end = self.starts.new_tensor([len(self.order)])
        return torch.cat([self.starts, end]).diff()


def _sorted(ids: Tensor) -> SortedReads:
    flat = ids.reshape(-1)
    # Stable, so that reads of one row by one example stay neighbours. 32 bits sort
    # nearly three times faster.
    fits = flat.numel() > 0 and int(flat.max()) < 2**31
    sorted_ids, order = torch.sort(flat.int() if fits else flat, stable=True)
    examples = torch.div(order, max(ids.shape[1], 1), rounding_mode="floor")
    is_same_row = torch.zeros_like(sorted_ids, dtype=torch.bool)
    is_same_row[1:] = sorted_ids[1:] == sorted_ids[:-1]
    is_repeat = is_same_row.clone()
    is_repeat[1:] &= examples[1:] == examples[:-1]
    starts = is_same_row.logical_not_().nonzero().squeeze(1)
    return SortedReads(
        rows=sorted_ids[starts].long(),
        starts=starts,
        order=order,
        examples=examples,
        is_repeat=is_repeat,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DenseGradient:
    """The gradient of a whole parameter."""

    name: str
    values: Tensor
    """Gradient in the shape of the parameter."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowGradient:
    """The gradient of a table of which few rows were read; all others have zero."""

    name: str
    rows: Tensor
    """int64, distinct, in order."""
    values: Tensor
    """[rows, dim]."""


Gradient = DenseGradient | RowGradient


class Contribution(Protocol):
    """What the examples of a batch add to the gradients of some parameters.

    Privacy:
      Everything it returns is raw. Clip by the norms over all contributions
      together, sum, and add noise before anything leaves the process.
    """

    def squared_norms(self) -> Tensor:
        """[batch]: the squared L2 norm of each example's part."""
        ...

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """[pairs]: the inner product of the parts of examples left[i] and right[i]."""
        ...

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        """The sum over examples of weights[i] times the part of example i."""
        ...


# Bounds what the pairs of rows of long users need at once to 64 MiB of float32.
_NUMBERS_AT_A_TIME = 1 << 24
# Scaled gradients of so many rows of a usual layer stay in the cache, see `_weighted_products`.
_ROWS_AT_A_TIME = 2048


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LinearContribution:
    """Gradients of the weight [out, in] and the bias [out] of a linear layer."""

    weight: str
    bias: str | None
    inputs: Tensor
    """[batch, in], or fewer columns if `num_zero_inputs` more are zero in every example."""
    output_grads: Tensor
    """[batch, out]."""
    num_zero_inputs: int = 0
    """Last columns of the weight that no example of this batch uses."""

    def squared_norms(self) -> Tensor:
        """[batch]: |g|^2 (|a|^2 + 1), the 1 for the bias."""
        inputs = _row_norms(self.inputs).square_()
        if self.bias is not None:
            inputs += 1
        return inputs.mul_(_row_norms(self.output_grads).square_())

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """[pairs]: (a . a' + 1) (g . g')."""

        def products(some_left: Tensor, some_right: Tensor) -> Tensor:
            inputs = (self.inputs[some_left] * self.inputs[some_right]).sum(1)
            if self.bias is not None:
                inputs += 1
            return inputs * (self.output_grads[some_left] * self.output_grads[some_right]).sum(1)

        size = 3 * (self.inputs.shape[1] + self.output_grads.shape[1])
        return _by_chunks(products, left, right, size, self.output_grads)

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        """One matrix product for the weight and one sum for the bias."""
        values, sums = self._weighted_products(weights)
        if self.num_zero_inputs:
            # Of the shape of the whole weight: columns that no example used get noise like all
            # others.
            values = torch.nn.functional.pad(values, (0, self.num_zero_inputs))
        gradients: list[Gradient] = [DenseGradient(name=self.weight, values=values)]
        if self.bias is not None:
            gradients.append(DenseGradient(name=self.bias, values=sums))
        return gradients

    def _weighted_products(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        grads = self.output_grads
        values = grads.new_zeros(grads.shape[1], self.inputs.shape[1])
        sums = grads.new_zeros(grads.shape[1])
        # In parts, so that scaled gradients stay in the cache: a copy of all would need fresh
        # pages in every step, which are slow to get.
        size = max(1, len(grads)) if grads.is_cuda else _ROWS_AT_A_TIME
        parts = (torch.split(tensor, size) for tensor in (grads, self.inputs, weights))
        for some_grads, some_inputs, some_weights in zip(*parts, strict=True):
            scaled = some_grads * some_weights.to(grads.dtype).unsqueeze(1)
            values.addmm_(scaled.t(), some_inputs)
            sums += scaled.sum(0)
        return values, sums


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableContribution:
    """Gradients of the rows of a table that the examples read."""

    table: str
    ids: Tensor
    """[batch, reads]: rows of the table, int64."""
    grads: Tensor
    """[batch, reads, dim]: of each value that was read."""
    reads: TableReads | None = None
    """The same ids, if they were sorted already."""

    def squared_norms(self) -> Tensor:
        """[batch]: the sum over distinct rows of |sum of the gradients of its reads|^2."""
        reads = self._sorted_reads
        if not bool(reads.is_repeat.any()):
            return _row_norms(self.grads.flatten(1)).square_()
        is_merged = reads.is_repeat.clone()
        # The first read of a run is no repeat of another, and belongs to the sum all the same.
        is_merged[:-1] |= reads.is_repeat[1:]
        opens_run = is_merged & ~reads.is_repeat
        merged = reads.order[is_merged]
        run = opens_run[is_merged].cumsum(0) - 1
        run_examples = reads.examples[opens_run]
        sums = self.grads.new_zeros(len(run_examples), self.grads.shape[2])
        sums.index_add_(0, run, self.grads.flatten(0, 1)[merged])
        # Merged reads are left out, not corrected by a difference: a difference of large
        # squares could understate a small norm.
        squares: Tensor = torch.linalg.vector_norm(self.grads, dim=2).square_()
        squares.view(-1)[merged] = 0
        return squares.sum(1).index_add_(0, run_examples, _row_norms(sums).square_())

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """[pairs]: the sum over all reads of the same row by both examples of g . g'."""

        def products(some_left: Tensor, some_right: Tensor) -> Tensor:
            grads = torch.bmm(self.grads[some_left], self.grads[some_right].transpose(1, 2))
            is_same = self.ids[some_left].unsqueeze(2) == self.ids[some_right].unsqueeze(1)
            return grads.masked_fill_(is_same.logical_not_(), 0).sum((1, 2))

        num_reads, dim = self.grads.shape[1:]
        size = 2 * num_reads * (dim + num_reads)
        return _by_chunks(products, left, right, size, self.grads)

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        """One sum for each distinct row, over its reads."""
        reads = self._sorted_reads
        if self.grads.is_cuda or not reads.order.numel():
            values = self._scattered_sum(weights, reads.rows)
        else:
            values = torch.nn.functional.embedding_bag(
                reads.order,
                self.grads.flatten(0, 1),
                reads.starts,
                mode="sum",
                per_sample_weights=weights[reads.examples],
            )
        return [RowGradient(name=self.table, rows=reads.rows, values=values)]

    @functools.cached_property
    def _sorted_reads(self) -> SortedReads:
        return (self.reads or TableReads(table=self.table, rows=self.ids)).in_order

    def _scattered_sum(self, weights: Tensor, rows: Tensor) -> Tensor:
        # A GPU walks through a bag read by read, which a row that all examples hit
        # makes 30 times slower than atomic additions. Their order is not fixed.
        scaled = (self.grads * weights[:, None, None]).flatten(0, 1)
        sums = self.grads.new_zeros(len(rows), self.grads.shape[2])
        return sums.index_add_(0, torch.searchsorted(rows, self.ids.reshape(-1)), scaled)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BiasContribution:
    """Gradients of a parameter [k] that is added to every example's output."""

    name: str
    grads: Tensor
    """[batch, k], or [batch] for k = 1."""

    def squared_norms(self) -> Tensor:
        """[batch]: |g|^2."""
        return _row_norms(self._rows).square_()

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """[pairs]: g . g'."""
        return (self._rows[left] * self._rows[right]).sum(1)

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        """A parameter of shape [k], never of no dimension."""
        return [DenseGradient(name=self.name, values=weights @ self._rows)]

    @property
    def _rows(self) -> Tensor:
        return self.grads if self.grads.dim() == 2 else self.grads.unsqueeze(1)


def _row_norms(values: Tensor) -> Tensor:
    # Many times faster than a sum of squares.
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms


def _by_chunks(
    products: Callable[[Tensor, Tensor], Tensor],
    left: Tensor,
    right: Tensor,
    numbers_per_pair: int,
    like: Tensor,
) -> Tensor:
    step = max(1, _NUMBERS_AT_A_TIME // max(numbers_per_pair, 1))
    parts = [
        products(left[start : start + step], right[start : start + step])
        for start in range(0, len(left), step)
    ]
    return torch.cat(parts) if parts else like.new_zeros(0)
