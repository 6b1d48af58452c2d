"""Norms and weighted sums of per-example gradients that are never built.

For a layer z = W a + b the gradient of one example is an outer product, so its
norm is a product of two norms and a weighted sum is one matrix product. For a
table it has one row for each distinct id the example reads: where an example
reads a row twice, the two gradients are added before the norm is taken.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from tulle.train.models.table_reads import SortedReads, TableReads


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


_NUMBERS_AT_A_TIME = 1 << 24
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorContribution:
    """Gradients of the rows [1 + factors] of a table, from sums of its rows alone.

    The linear term comes first. With S the sum of all factors an example reads and d the
    derivative by its logit, the gradient of a row v that it reads m times is m d for the linear
    term and m d (S - v) for the factors. So the squared norm needs |S|^2, S . sum v and
    sum |v|^2, and the weighted sum of a row needs the sums of w d S and of w d over its readers.
    No tensor has a number for each factor of each read.
    """

    reads: TableReads
    row_values: Tensor
    """[distinct rows, 1 + factors]: as they were read."""
    own_sums: Tensor
    """[batch, 1 + factors]: of what each example reads from this table."""
    own_squares: Tensor
    """[batch]: the sum of |v|^2 over these reads."""
    sums: Tensor
    """[batch, 1 + factors]: of what each example reads from all tables; S from column 1 on."""
    logit_grads: Tensor
    """[batch]."""

    def squared_norms(self) -> Tensor:
        """[batch]: d^2 times the sum over distinct rows of m^2 (1 + |S - v|^2)."""
        num_reads = self.reads.rows.shape[1]
        totals = _squares(self.sums[:, 1:])
        mixed = totals
        if self.own_sums is not self.sums:
            mixed = (self.sums[:, 1:] * self.own_sums[:, 1:]).sum(1)
        squares = torch.add(self.own_squares, totals, alpha=num_reads).sub_(mixed, alpha=2)
        # Rounding of S . sum v must not make the norm too small where the terms cancel out. It
        # is at most this share of all terms, by the bound for sums of so many floats.
        sizes = torch.add(self.own_squares, totals, alpha=num_reads).add_(mixed.abs(), alpha=2)
        rounding = (num_reads + 8) * torch.finfo(squares.dtype).eps
        squares = squares.clamp_(min=0).add_(sizes, alpha=rounding).add_(num_reads)
        self._add_repeats(squares)
        return squares.mul_(self.logit_grads.square())

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """[pairs]: the sum over all reads of the same row by both examples of g . g'."""
        return self._written_out.inner_products(left, right)

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        """One sum for each distinct row: of w d S over its reads, less v times that of w d."""
        reads = self.reads.in_order
        if not reads.order.numel():
            values = torch.zeros_like(self.row_values)
            return [RowGradient(name=self.reads.table, rows=reads.rows, values=values)]
        scaled = weights * self.logit_grads
        shares = self.sums * scaled.unsqueeze(1)
        shares[:, 0] = scaled
        values = torch.nn.functional.embedding_bag(reads.examples, shares, reads.starts, mode="sum")
        linear = values[:, :1].clone()
        values.addcmul_(self.row_values, linear, value=-1)
        values[:, :1] = linear
        return [RowGradient(name=self.reads.table, rows=reads.rows, values=values)]

    def as_table(self) -> TableContribution:
        """The same with the gradient of every read written out, [batch, reads, 1 + factors]."""
        places = torch.searchsorted(self.reads.in_order.rows, self.reads.rows)
        grads = self.sums.unsqueeze(1) - self.row_values[places]
        grads[:, :, 0] = 1
        return TableContribution(
            table=self.reads.table,
            ids=self.reads.rows,
            grads=grads.mul_(self.logit_grads[:, None, None]),
            reads=self.reads,
        )

    @functools.cached_property
    def _written_out(self) -> TableContribution:
        return self.as_table()

    def _add_repeats(self, squares: Tensor) -> None:
        """A row that is read m times counts m^2 times, not m times."""
        reads = self.reads.in_order
        if not bool(reads.is_repeat.any()):
            return
        is_merged = reads.is_repeat.clone()
        is_merged[:-1] |= reads.is_repeat[1:]
        opens_run = is_merged & ~reads.is_repeat
        opening = opens_run.nonzero().squeeze(1)
        run = opens_run.cumsum(0)[reads.is_repeat] - 1
        counts = 1 + torch.bincount(run, minlength=len(opening)).to(squares.dtype)
        places = torch.searchsorted(reads.starts, opening, right=True) - 1
        examples = reads.examples[opening]
        differences = self.sums[examples, 1:] - self.row_values[places, 1:]
        terms = _squares(differences).add_(1)
        squares.index_add_(0, examples, terms.mul_(counts * (counts - 1)))


def _squares(values: Tensor) -> Tensor:
    # Many times faster than a sum of squares.
    squares: Tensor = torch.linalg.vector_norm(values, dim=1).square_()
    return squares
