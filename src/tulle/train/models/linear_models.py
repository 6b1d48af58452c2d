"""Models without layers: factorization machines and logistic regression.

A factorization machine has linear terms and all pairwise products of embeddings. With S the sum
of the factors v_f of all features of both roles, logit = bias + sum of linear terms +
(|S|^2 - sum |v_f|^2) / 2. As towers (the semi-sensitive paper, section 5.1): the tower of a role
gives the scalar of its linear terms and its own pairs, and the vector of its sum of factors; the
common tower adds the bias and the product of both vectors. Column 0 of a table holds the linear
terms. Logistic regression is the same without factors: a bias and one weight for every id.
"""

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from tulle.train.models.contributions import (
    BatchReads,
    BiasContribution,
    Contribution,
    Gradient,
    RowGradient,
    TableContribution,
    TableReads,
)
from tulle.train.models.exported_model import factor_logits, factor_squares, linear_logits
from tulle.train.models.tower_model import BiasedModel, Lookup, check_towers


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
        # A copy: what comes next writes over the column that it reads.
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
        # The first read of a run is no repeat of another, and belongs to it all the same.
        is_merged[:-1] |= reads.is_repeat[1:]
        opens_run = is_merged & ~reads.is_repeat
        opening = opens_run.nonzero().squeeze(1)
        run = opens_run.cumsum(0)[reads.is_repeat] - 1
        counts = 1 + torch.bincount(run, minlength=len(opening)).to(squares.dtype)
        places = torch.searchsorted(reads.starts, opening, right=True) - 1
        examples = reads.examples[opening]
        differences = self.sums[examples, 1:] - self.row_values[places, 1:]
        terms = _squares(differences).add_(1)
        # m^2 - m, as the m reads were counted once each before.
        squares.index_add_(0, examples, terms.mul_(counts * (counts - 1)))


def _squares(values: Tensor) -> Tensor:
    # Many times faster than a sum of squares.
    squares: Tensor = torch.linalg.vector_norm(values, dim=1).square_()
    return squares


def read_factors(reads: TableReads, table: Tensor) -> "_Summed | _WrittenOut":
    """Reads a table in the way that suits its device; column 0 has the linear terms.

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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BiasedForward:
    """One batch that went through a model without layers."""

    logits: Tensor
    """[batch]: log odds of label 1."""
    parts: dict[str, list[Callable[[Tensor], Contribution]]]
    """Functions from the gradients by the logits to what the examples add to the gradient of a
    table, one for each table that a tower read. A tower that is cut off is not there."""

    @torch.no_grad()
    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Privacy:
          The same as for `Contribution`: all of it is raw.
        """
        check_towers(towers)
        contributions = [
            part(logit_grads)
            for tower, parts in self.parts.items()
            if tower in towers
            for part in parts
        ]
        if "common" in towers:
            contributions.append(BiasContribution(name=BiasedModel.BIAS, grads=logit_grads))
        return contributions


class FactorizationMachineModel(BiasedModel):
    """The parameters of a factorization machine. Make one with `build_model`."""

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> BiasedForward:
        """Computes logits from rows that were found already.

        Privacy:
          The same as for `TowerModel.forward`.
        """
        parameters = self.parameters
        roles = {"public": reads.public}
        if reads.sensitive is not None:
            roles["sensitive"] = reads.sensitive
        read = {
            tower: [read_factors(found, found.source(parameters[found.table])) for found in tables]
            for tower, tables in roles.items()
        }
        parts = [part for of_tower in read.values() for part in of_tower]
        if not parts:
            return BiasedForward(logits=self._bias.repeat(reads.num_rows), parts={})
        sums = parts[0].sums
        for part in parts[1:]:
            sums = sums + part.sums
        return BiasedForward(
            logits=factor_logits(self._bias, sums, [part.squares for part in parts]),
            parts={
                tower: [functools.partial(part.contribution, sums) for part in of_tower]
                for tower, of_tower in read.items()
            },
        )


class LogisticRegressionModel(BiasedModel):
    """The parameters of a logistic regression. Make one with `build_model`."""

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> BiasedForward:
        """Computes logits from rows that were found already.

        Privacy:
          The same as for `TowerModel.forward`.
        """
        lookups = {"public": self._public_rows.look_up(reads.public)}
        if reads.sensitive is not None:
            lookups["sensitive"] = self._sensitive_rows.look_up(reads.sensitive)
        values = [lookup.values for found in lookups.values() for lookup in found]
        return BiasedForward(
            logits=linear_logits(self._bias, values, reads.num_rows),
            parts={
                tower: [functools.partial(_linear_contribution, lookup) for lookup in found]
                for tower, found in lookups.items()
            },
        )


def _linear_contribution(lookup: Lookup, logit_grads: Tensor) -> Contribution:
    """Every weight that an example reads has the gradient of its logit."""
    return lookup.contribution(logit_grads[:, None, None].expand_as(lookup.values))
