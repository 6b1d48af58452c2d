"""A model whose tables are elsewhere: it reads rows that were fetched for one batch."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.train.models.tower_model import ForwardPass, TowerModel
from tulle.train.table_reads import BatchReads, TableReads


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FetchedRows:
    """Some rows of a table, as they are now."""

    rows: Tensor
    """Distinct and in order."""
    values: Tensor
    """[rows, dim]."""


class FetchedTables:
    """A `TowerModel` that looks up fetched rows; gradients are by their places among these."""

    def __init__(self, model: TowerModel, tables: frozenset[str]) -> None:
        """Takes the model and which of its tables are elsewhere."""
        self._model, self._elsewhere = model, tables
        self._fetched: Mapping[str, FetchedRows] = {}

    def hold(self, fetched: Mapping[str, FetchedRows]) -> None:
        """These rows are read until the next call: all that a batch needs."""
        self._fetched = fetched

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; tables that are elsewhere have no rows."""
        return {
            name: values.new_empty(0, values.shape[1]) if name in self._elsewhere else values
            for name, values in self._model.parameters.items()
        }

    @property
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""
        return self._model.output_bias

    @property
    def tables(self) -> frozenset[str]:
        """Names of the parameters of which an example reads few rows."""
        return self._model.tables

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> ForwardPass:
        """Computes logits from rows that were fetched.

        Privacy:
          As `TowerModel.forward`.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))

    def reads(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> BatchReads:
        """Which of the fetched rows the model would read."""
        reads = self._model.reads(public_ids, sensitive_ids)
        sensitive = reads.sensitive
        return dataclasses.replace(
            reads,
            public=tuple(self._placed(read) for read in reads.public),
            sensitive=None if sensitive is None else tuple(map(self._placed, sensitive)),
        )

    def forward_reads(self, reads: BatchReads) -> ForwardPass:
        """Computes logits from reads of fetched rows."""
        return self._model.forward_reads(reads)

    def _placed(self, read: TableReads) -> TableReads:
        if read.table not in self._elsewhere:
            return read
        fetched = self._fetched[read.table]
        places = torch.searchsorted(fetched.rows, read.rows)
        return dataclasses.replace(read, rows=places, values=fetched.values)
