"""Passes of a factorization machine on a device; without factors, of a logistic regression."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.train.graphed.device_rows import RowSums
from tulle.train.graphed.row_ops import add_table_norms, gather_rows
from tulle.train.models.embedded_model import BiasedModel
from tulle.train.table_reads import BatchReads, TableReads


class DeviceFactors:
    """Forward and backward passes of one model; `DevicePasses`.

    Column 0 of a table holds linear terms, all others the factors; with S the sum of the
    factors that an example reads, the gradients of a read are 1 and S - v.
    """

    def __init__(self, model: BiasedModel, towers: frozenset[str]) -> None:
        self._parameters, self._bias, self._towers = model.parameters, model.output_bias, towers
        self._read: list[tuple[TableReads, Tensor]] = []

    def forward(self, reads: BatchReads) -> Tensor:
        """[batch]: logits."""
        logits = self._bias.repeat(reads.num_rows)
        self._read = [(read, self._look_up(read)) for read in reads.tables]
        self._sums: Tensor | None = None
        for _, values in self._read:
            sums = values.sum(1)
            self._sums = sums if self._sums is None else self._sums + sums
            logits -= _squares(values[:, :, 1:].flatten(1)) / 2
        if self._sums is not None:
            logits += self._sums[:, 0] + _squares(self._sums[:, 1:]) / 2
        return logits

    def backward(self, logit_grads: Tensor) -> Tensor:
        """[batch]: the squared norm of each example's gradient, over all trained parameters."""
        self._logit_grads = logit_grads
        squares = torch.zeros_like(logit_grads)
        if "common" in self._towers:
            squares += logit_grads.square()
        self._grads: list[tuple[TableReads, Tensor]] = []
        for read, values in self._read:
            if read.table.partition(".")[0] in self._towers and self._sums is not None:
                grads = self._sums.unsqueeze(1) - values
                grads[:, :, 0] = 1
                flat = grads.mul_(logit_grads[:, None, None]).flatten(1)
                add_table_norms(squares, flat, read, values.shape[2])
                self._grads.append((read, flat))
        return squares

    def add_rows(self, factors: Tensor, scale: Tensor, rows: Mapping[str, RowSums]) -> None:
        """Adds the clipped gradients of tables."""
        for read, grads in self._grads:
            rows[read.table].add_gradient(grads, read.rows, factors, scale)

    def layer_sums(self, factors: Tensor) -> dict[str, Tensor]:
        """The sum of clipped gradients of the bias."""
        if "common" not in self._towers:
            return {}
        grads = self._logit_grads.masked_fill(factors == 0, 0) * factors
        return {BiasedModel.BIAS: grads.sum().unsqueeze(0)}

    def _look_up(self, read: TableReads) -> Tensor:
        table = self._parameters[read.table]
        num_rows, num_reads = read.rows.shape
        values = table.new_empty(num_rows, num_reads * table.shape[1])
        gather_rows(table, read.rows, values, table.new_empty(num_rows), has_one=False)
        return values.view(num_rows, num_reads, table.shape[1])


def _squares(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms.square()
