"""A model in three towers: public features, sensitive features, and what joins them.

The truncated form of a model sees zeros where the sensitive tower's output would be, so that it
can be trained where no sensitive column may be read. What all models share is here: the embeddings
of both roles, read row by row, and the bias of models without layers. Initial values come from a
public seed and are the same on every device.
"""

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, did_you_mean
from tulle.train.models.contributions import BatchReads, Contribution, TableContribution, TableReads
from tulle.train.settings.models import TOWERS, TableLayout, TowerLayout


class ForwardPass(Protocol):
    """One batch that went through a model, with what the way back needs."""

    @property
    def logits(self) -> Tensor:
        """[batch]: log odds of label 1."""
        ...

    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Args:
          logit_grads: [batch]: derivative of each example's loss by its logit.
          towers: Those that are trained. All others get nothing and cost nothing. The
            sensitive tower gets nothing in the truncated form.
        """
        ...


class TowerModel(abc.ABC):
    """Parameters and how they make logits."""

    @property
    @abc.abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; change them in place only."""

    @property
    @abc.abstractmethod
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""

    @property
    @abc.abstractmethod
    def tables(self) -> frozenset[str]:
        """Names of the parameters of which an example reads few rows."""

    @abc.abstractmethod
    def reads(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> BatchReads:
        """Which rows of its tables the model would read, for whoever must touch them first.

        Privacy:
          As sensitive as the ids.
        """

    @abc.abstractmethod
    def forward_reads(self, reads: BatchReads) -> ForwardPass:
        """Computes logits from rows that were found already.

        Privacy:
          The same as for `forward`.
        """

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> ForwardPass:
        """Computes logits, without an autograd graph.

        Args:
          public_ids: [batch, public features], int64; [batch, 0] if there are none.
            Ids are trusted: check them once, when data are opened.
          sensitive_ids: [batch, sensitive features], or None for the truncated form.

        Privacy:
          With `sensitive_ids=None` nothing sensitive is read. Otherwise logits are raw:
          they depend on the example's own sensitive values.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))


def check_towers(towers: frozenset[str]) -> None:
    """Refuses a name that is no tower: a misspelt one would stay untrained in silence."""
    if unknown := sorted(towers - TOWERS):
        raise ConfigError(
            f"tower {unknown[0]!r} is unknown{did_you_mean(unknown[0], TOWERS)}; "
            f"use {', '.join(sorted(TOWERS))}."
        )


# Largest signed integer of 64 bits; a larger seed is refused, not wrapped around.
_LARGEST_SEED = 2**63 - 1
# A table of millions of rows has more small pages than a processor keeps addresses of, so that
# most reads of a row first look one up. On Linux numpy asks for large pages for what it
# allocates, and torch does not: measured, gathers and updates of rows take a third less time.
_NUMPY_TYPES = {torch.float32: np.float32, torch.float64: np.float64}


def table_empty(num_rows: int, dim: int, dtype: torch.dtype) -> Tensor:
    """A table on the CPU whose values are still to be written.

    Args:
      num_rows: Number of rows.
      dim: Numbers in each row.
      dtype: Type of the numbers.
    """
    if dtype not in _NUMPY_TYPES:
        return torch.empty(num_rows, dim, dtype=dtype)
    return torch.from_numpy(np.empty((num_rows, dim), _NUMPY_TYPES[dtype]))


def zeros_like_table(table: Tensor) -> Tensor:
    """Zeros of the shape, type and device of a table, in memory of their own."""
    if table.device.type != "cpu" or table.dtype not in _NUMPY_TYPES:
        return torch.zeros_like(table)
    return torch.from_numpy(np.zeros(tuple(table.shape), _NUMPY_TYPES[table.dtype]))


class InitialValues:
    """Draws the parameters of one model in the order in which they are asked for."""

    def __init__(self, seed: int, device: torch.device | str, dtype: torch.dtype) -> None:
        if check_count("seed", seed, least=0) > _LARGEST_SEED:
            raise ConfigError(f"seed={seed} must be at most {_LARGEST_SEED}.")
        self._generator = torch.Generator().manual_seed(seed)  # The same weights on every device.
        self._device = device
        self._dtype = dtype

    def normal(self, num_rows: int, dim: int, stddev: float) -> Tensor:
        """Rows of a table, drawn from N(0, stddev^2).

        Args:
          num_rows: Number of rows.
          dim: Numbers in each row.
          stddev: Standard deviation of each number.
        """
        values = table_empty(num_rows, dim, torch.float32)  # Other types draw other numbers.
        torch.randn(num_rows, dim, generator=self._generator, out=values)
        return self._place(values.mul_(stddev))

    def before_relu(self, num_outputs: int, num_inputs: int) -> Tensor:
        """The weight of a layer with a ReLU behind it (He et al. 2015, uniform)."""
        return self._uniform(num_outputs, num_inputs, math.sqrt(6 / max(num_inputs, 1)))

    def linear(self, num_outputs: int, num_inputs: int) -> Tensor:
        """The weight of a layer with nothing behind it (Glorot and Bengio 2010, uniform)."""
        return self._uniform(num_outputs, num_inputs, math.sqrt(6 / (num_inputs + num_outputs)))

    def zeros(self, size: int) -> Tensor:
        """A bias."""
        return self._place(torch.zeros(size))

    def _uniform(self, num_outputs: int, num_inputs: int, bound: float) -> Tensor:
        unit = torch.rand(num_outputs, num_inputs, generator=self._generator)
        return self._place(unit.mul_(2 * bound).sub_(bound))

    def _place(self, values: Tensor) -> Tensor:
        return values.to(device=self._device, dtype=self._dtype)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Lookup:
    """Rows that the examples of a batch read from one tensor."""

    reads: TableReads
    values: Tensor
    """[batch, features, dim]."""

    def contribution(self, grads: Tensor) -> TableContribution:
        """What the examples add to the gradient of the tensor, from that by `values`."""
        reads = self.reads
        return TableContribution(table=reads.table, ids=reads.rows, grads=grads, reads=reads)


class RoleEmbeddings:
    """The embedding rows of the features of one role. Make one with `build_embeddings`."""

    def __init__(self, tables: Sequence["_Table"]) -> None:
        self._tables = tuple(tables)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """One tensor [rows, dim] for each dimension."""
        return {table.name: table.values for table in self._tables}

    @property
    def width(self) -> int:
        """Numbers in the embeddings of one example."""
        return sum(len(table.columns) * table.values.shape[1] for table in self._tables)

    def reads(self, ids: Tensor) -> tuple[TableReads, ...]:
        """The rows that ids stand for, one entry for each tensor.

        Args:
          ids: [batch, features of the role], int64.

        Privacy:
          What it returns is as sensitive as the ids.
        """
        return tuple(table.reads(ids) for table in self._tables)

    def look_up(self, reads: Sequence[TableReads]) -> tuple[Lookup, ...]:
        """One gather for each tensor; nothing if the role has no features."""
        return tuple(
            Lookup(
                reads=read,
                values=torch.nn.functional.embedding(read.rows, read.source(table.values)),
            )
            for read, table in zip(reads, self._tables, strict=True)
        )


def build_embeddings(
    layout: Sequence[TableLayout], *, stddev: float, initial: InitialValues
) -> RoleEmbeddings:
    """Embeddings of one role with normal initial values.

    Args:
      layout: The tables of the role.
      stddev: Standard deviation of the initial values.
      initial: Draws them.
    """
    num_columns = sum(len(table.columns) for table in layout)
    return RoleEmbeddings([_table(table, num_columns, stddev, initial) for table in layout])


def flat_values(lookups: Sequence[Lookup]) -> list[Tensor]:
    """[batch, features x dim] for each lookup; views, no copies."""
    return [lookup.values.flatten(1) for lookup in lookups]


def table_contributions(lookups: Sequence[Lookup], grads: Tensor) -> list[TableContribution]:
    """Contributions from the gradient by the concatenated flat values."""
    if not lookups:
        return []
    widths = [lookup.values.shape[1] * lookup.values.shape[2] for lookup in lookups]
    parts = torch.split(grads, widths, dim=1)
    return [
        lookup.contribution(part.reshape(lookup.values.shape))
        for lookup, part in zip(lookups, parts, strict=True)
    ]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Table:
    """Spaces of one dimension in one tensor."""

    name: str
    values: Tensor
    """[rows, dim]."""
    columns: tuple[int, ...]
    """Columns among the ids of the role."""
    column_index: Tensor | None
    """The same as a tensor, or None if they are all of the role's columns in order."""
    first_rows: Tensor | None
    """First row of each column, or None if all begin at row 0."""
    may_repeat: bool
    """True if two columns share a space, so that an example can read a row twice."""

    def reads(self, ids: Tensor) -> TableReads:
        rows = ids if self.column_index is None else ids[:, self.column_index]
        if self.first_rows is not None:
            rows = rows + self.first_rows
        return TableReads(table=self.name, rows=rows, may_repeat=self.may_repeat)


def _table(layout: TableLayout, num_columns: int, stddev: float, initial: InitialValues) -> _Table:
    values = initial.normal(layout.num_rows, layout.dim, stddev)
    columns, offsets, device = layout.columns, layout.first_rows, values.device
    is_whole = len(columns) == num_columns
    return _Table(
        name=layout.tensor,
        values=values,
        columns=columns,
        column_index=None if is_whole else torch.tensor(columns, device=device),
        first_rows=torch.tensor(offsets, device=device) if any(offsets) else None,
        may_repeat=layout.may_repeat,
    )


class EmbeddedModel(TowerModel):
    """The embeddings of a model; MLP, factorization machine and logistic regression are ones."""

    def __init__(self, public_rows: RoleEmbeddings, sensitive_rows: RoleEmbeddings) -> None:
        self._public_rows = public_rows
        self._sensitive_rows = sensitive_rows

    @property
    def tables(self) -> frozenset[str]:
        """Names of the parameters of which an example reads few rows."""
        return frozenset(self._public_rows.parameters | self._sensitive_rows.parameters)

    def reads(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> BatchReads:
        """Which rows of its tables the model would read."""
        sensitive = self._sensitive_rows
        return BatchReads(
            num_rows=len(public_ids),
            public=self._public_rows.reads(public_ids),
            sensitive=None if sensitive_ids is None else sensitive.reads(sensitive_ids),
        )


class BiasedModel(EmbeddedModel):
    """Embeddings and one bias: all parameters of a model without layers."""

    BIAS = "common.bias"

    def __init__(
        self, public_rows: RoleEmbeddings, sensitive_rows: RoleEmbeddings, bias: Tensor
    ) -> None:
        super().__init__(public_rows, sensitive_rows)
        self._bias = bias

    @classmethod
    def of(cls, layout: TowerLayout, initial: InitialValues, *, stddev: float) -> Self:
        """Makes a model with normal rows and a bias of 0.

        Args:
          layout: Tables of the embeddings.
          initial: Draws the rows.
          stddev: Standard deviation of the rows.
        """
        public, sensitive = (
            build_embeddings(layout[role], stddev=stddev, initial=initial)
            for role in ("public", "sensitive")
        )
        return cls(public, sensitive, initial.zeros(1))

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; change them in place only."""
        rows = self._public_rows.parameters | self._sensitive_rows.parameters
        return rows | {self.BIAS: self._bias}

    @property
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""
        return self._bias
