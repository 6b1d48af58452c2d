"""What a factorization machine needs of the rows that a batch reads from one table.

A CPU is limited by memory: it sums rows as it reads them, and squares each distinct row once.
Other devices would have to be waited for to learn which rows are distinct, and write out
what each example reads.
"""

import dataclasses
from typing import Protocol

import torch
from torch import Tensor

from tulle.train.contributions import TableContribution
from tulle.train.factor_contribution import FactorContribution
from tulle.train.gradients import Contribution
from tulle.train.table_reads import TableReads


class ReadFactors(Protocol):
    """Reads of one table; column 0 has the linear terms, the others the factors."""

    @property
    def sums(self) -> Tensor:
        """[batch, 1 + factors]: over the reads of each example."""
        ...

    @property
    def squares(self) -> Tensor:
        """[batch]: the sum of |v|^2 over the reads of each example."""
        ...

    def contribution(self, sums: Tensor, logit_grads: Tensor) -> Contribution:
        """What the examples add to the gradient of the table.

        Args:
          sums: [batch, 1 + factors]: over the reads of all tables.
          logit_grads: [batch].
        """
        ...


def read_factors(reads: TableReads, table: Tensor) -> ReadFactors:
    """Reads a table in the way that suits its device."""
    return _summed(reads, table) if table.device.type == "cpu" else _written_out(reads, table)


def _written_out(reads: TableReads, table: Tensor) -> "_WrittenOut":
    values = torch.nn.functional.embedding(reads.rows, table)
    squares: Tensor = torch.linalg.vector_norm(values[:, :, 1:], dim=(1, 2)).square_()
    return _WrittenOut(reads=reads, values=values, sums=values.sum(1), squares=squares)


def _summed(reads: TableReads, table: Tensor) -> "_Summed":
    in_order = reads.in_order
    row_values = table.index_select(0, in_order.rows)
    row_squares = torch.linalg.vector_norm(row_values[:, 1:], dim=1).square_()
    of_reads = row_squares.new_empty(len(in_order.order))
    of_reads[in_order.order] = row_squares.repeat_interleave(in_order.counts)
    return _Summed(
        reads=reads,
        row_values=row_values,
        sums=torch.nn.functional.embedding_bag(reads.rows, table, mode="sum"),
        squares=of_reads.view(reads.rows.shape).sum(1),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Summed:
    reads: TableReads
    row_values: Tensor
    """[distinct rows, 1 + factors]."""
    sums: Tensor
    squares: Tensor

    def contribution(self, sums: Tensor, logit_grads: Tensor) -> FactorContribution:
        return FactorContribution(
            reads=self.reads,
            row_values=self.row_values,
            own_sums=self.sums,
            own_squares=self.squares,
            sums=sums,
            logit_grads=logit_grads,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _WrittenOut:
    reads: TableReads
    values: Tensor
    """[batch, reads, 1 + factors]."""
    sums: Tensor
    squares: Tensor

    def contribution(self, sums: Tensor, logit_grads: Tensor) -> TableContribution:
        # By linear term and factors of each read: 1 and S - v.
        grads = sums.unsqueeze(1) - self.values
        grads[:, :, 0] = 1
        return TableContribution(
            table=self.reads.table,
            ids=self.reads.rows,
            grads=grads.mul_(logit_grads[:, None, None]),
            reads=self.reads,
        )
