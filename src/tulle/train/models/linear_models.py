"""Models without layers: factorization machines and logistic regression.

A factorization machine has linear terms and all pairwise products of embeddings. With S the sum
of the factors v_f of all features of both roles, logit = bias + sum of linear terms +
(|S|^2 - sum |v_f|^2) / 2. As towers (the semi-sensitive paper, section 5.1): the tower of a role
gives the scalar of its linear terms and its own pairs, and the vector of its sum of factors; the
common tower adds the bias and the product of both vectors. Column 0 of a table holds the linear
terms. Logistic regression is the same without factors: a bias and one weight for every id.
"""

import dataclasses
from typing import Protocol

import torch
from torch import Tensor

from tulle.train.models.contributions import (
    BiasContribution,
    Contribution,
    FactorContribution,
    TableContribution,
)
from tulle.train.models.embeddings import BiasedModel, Lookup
from tulle.train.models.exported_model import factor_logits, factor_squares, linear_logits
from tulle.train.models.table_reads import BatchReads, TableReads
from tulle.train.models.tower_model import check_towers


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
          sums: [batch, 1 + factors]: sums over the reads of all tables.
          logit_grads: [batch]: gradients by the logits.
        """
        ...


def read_factors(reads: TableReads, table: Tensor) -> ReadFactors:
    """Reads a table in the way that suits its device.

    A CPU is limited by memory: it sums rows as it reads them, and squares each distinct row once.
    Other devices would have to be waited for to learn which rows are distinct, and write out
    what each example reads.
    """
    return _summed(reads, table) if table.device.type == "cpu" else _written_out(reads, table)


def _written_out(reads: TableReads, table: Tensor) -> "_WrittenOut":
    values = torch.nn.functional.embedding(reads.rows, table)
    squares = factor_squares(values)
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


class FactorizationMachineModel(BiasedModel):
    """The parameters of a factorization machine. Make one with `build`."""

    def forward(
        self, public_ids: Tensor, sensitive_ids: Tensor | None
    ) -> "FactorizationMachineForward":
        """Computes logits; None for sensitive ids is the truncated form.

        Privacy:
          The same as for `TowerModel.forward`.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> "FactorizationMachineForward":
        """Computes logits from rows that were found already.

        Privacy:
          The same as for `TowerModel.forward`.
        """
        roles = {"public": (self._public_rows, reads.public)}
        if reads.sensitive is not None:
            roles["sensitive"] = (self._sensitive_rows, reads.sensitive)
        read = {
            tower: tuple(
                read_factors(found, found.source(tables.parameters[found.table]))
                for found in of_tower
            )
            for tower, (tables, of_tower) in roles.items()
        }
        parts = [part for of_tower in read.values() for part in of_tower]
        if not parts:
            logits = self._bias.repeat(reads.num_rows)
            sums = logits.new_zeros(len(logits), 1)
            return FactorizationMachineForward(logits=logits, read=read, sums=sums)
        sums = parts[0].sums
        for part in parts[1:]:
            sums = sums + part.sums
        logits = factor_logits(self._bias, sums, [part.squares for part in parts])
        return FactorizationMachineForward(logits=logits, read=read, sums=sums)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorizationMachineForward:
    """One batch that went through a factorization machine."""

    logits: Tensor
    """[batch]: log odds of label 1."""
    read: dict[str, tuple[ReadFactors, ...]]
    """What each tower read; a tower that is cut off is not there."""
    sums: Tensor
    """[batch, 1 + factors]: over all features."""

    @torch.no_grad()
    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Privacy:
          The same as for `Contribution`: all of it is raw.
        """
        check_towers(towers)
        contributions: list[Contribution] = [
            part.contribution(self.sums, logit_grads)
            for tower, parts in self.read.items()
            if tower in towers
            for part in parts
        ]
        if "common" in towers:
            contributions.append(BiasContribution(name=BiasedModel.BIAS, grads=logit_grads))
        return contributions


class LogisticRegressionModel(BiasedModel):
    """The parameters of a logistic regression. Make one with `build`."""

    def forward(
        self, public_ids: Tensor, sensitive_ids: Tensor | None
    ) -> "LogisticRegressionForward":
        """Computes logits; None for sensitive ids is the truncated form.

        Privacy:
          The same as for `TowerModel.forward`.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> "LogisticRegressionForward":
        """Computes logits from rows that were found already.

        Privacy:
          The same as for `TowerModel.forward`.
        """
        lookups = self._look_up(reads)
        values = [lookup.values for found in lookups.values() for lookup in found]
        logits = linear_logits(self._bias, values, reads.num_rows)
        return LogisticRegressionForward(logits=logits, lookups=lookups)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogisticRegressionForward:
    """One batch that went through a logistic regression."""

    logits: Tensor
    """[batch]: log odds of label 1."""
    lookups: dict[str, tuple[Lookup, ...]]
    """What each tower read; a tower that is cut off is not there."""

    @torch.no_grad()
    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Privacy:
          The same as for `Contribution`: all of it is raw.
        """
        check_towers(towers)
        contributions: list[Contribution] = []
        for tower, lookups in self.lookups.items():
            if tower in towers:
                contributions += [
                    lookup.contribution(logit_grads[:, None, None].expand_as(lookup.values))
                    for lookup in lookups
                ]
        if "common" in towers:
            contributions.append(BiasContribution(name=BiasedModel.BIAS, grads=logit_grads))
        return contributions
