"""Norms and weighted sums of a factorization machine's gradients, from sums of its rows alone.

With S the sum of all factors an example reads and d the derivative by its logit, the gradient
of a row v that it reads m times is m d for the linear term and m d (S - v) for the factors. So
the squared norm needs |S|^2, S . sum v and sum |v|^2, and the weighted sum of a row needs the
sums of w d S and of w d over its readers. No tensor has a number for each factor of each read.
"""

import dataclasses
import functools

import torch
from torch import Tensor

from tulle.train.contributions import TableContribution
from tulle.train.gradients import Gradient, RowGradient
from tulle.train.table_reads import TableReads


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorContribution:
    """Of the rows [1 + factors] of a table; the linear term comes first."""

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
