"""Which passes through a model can be recorded, and what they have in common."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.models.contributions import BatchReads, TableReads
from tulle.train.models.exported_model import factor_logits, factor_squares
from tulle.train.models.mlp import MLPModel
from tulle.train.models.tower_model import BiasedModel, TowerModel
from tulle.train.steps.gpu.device_mlp import DevicePerceptron
from tulle.train.steps.gpu.device_rows import DeviceRows
from tulle.train.steps.gpu.row_ops import add_table_norms, gather_rows


class DeviceFactors:
    """Passes of a factorization machine; without factors, of a logistic regression.

    Column 0 of a table holds linear terms, all others the factors; with S the sum of the
    factors that an example reads, the gradients of a read are 1 and S - v.
    """

    def __init__(self, model: BiasedModel, towers: frozenset[str]) -> None:
        self._parameters, self._bias, self._towers = model.parameters, model.output_bias, towers
        self._read: list[tuple[TableReads, Tensor]] = []

    def forward(self, reads: BatchReads) -> Tensor:
        """[batch]: logits."""
        self._read = [(read, self._look_up(read)) for read in reads.tables]
        if not self._read:
            return self._bias.repeat(reads.num_rows)
        self._sums = self._read[0][1].sum(1)
        for _, values in self._read[1:]:
            self._sums = self._sums + values.sum(1)
        squares = [factor_squares(values) for _, values in self._read]
        return factor_logits(self._bias, self._sums, squares)

    def backward(self, logit_grads: Tensor) -> Tensor:
        """[batch]: the squared norm of each example's gradient, over all trained parameters."""
        self._logit_grads = logit_grads
        squares = torch.zeros_like(logit_grads)
        if "common" in self._towers:
            squares += logit_grads.square()
        self._grads: list[tuple[TableReads, Tensor]] = []
        for read, values in self._read:
            if read.table.partition(".")[0] in self._towers:
                grads = self._sums.unsqueeze(1) - values
                grads[:, :, 0] = 1
                flat = grads.mul_(logit_grads[:, None, None]).flatten(1)
                add_table_norms(squares, flat, read, values.shape[2])
                self._grads.append((read, flat))
        return squares

    def add_rows(self, factors: Tensor, scale: Tensor, rows: Mapping[str, DeviceRows]) -> None:
        """Adds the clipped gradients of tables.

        Args:
          factors: [batch]: factor that clips the gradient of each row of the batch.
          scale: [1]: factor of all gradients.
          rows: What the gradients are added to, by table.
        """
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


DevicePasses = DevicePerceptron | DeviceFactors
"""One batch after the other through a model, without a look at any number. All of it is raw."""


def device_passes(
    model: TowerModel, towers: frozenset[str], products: torch.dtype = torch.float32
) -> DevicePasses:
    """Passes through a model.

    Args:
      model: A model of a kind that tulle builds.
      towers: Names of the towers that are trained.
      products: Type of the inputs of matrix products.
    """
    if isinstance(model, MLPModel):
        return DevicePerceptron(model, towers, products)
    if isinstance(model, BiasedModel):
        return DeviceFactors(model, towers)
    raise ConfigError(f"a model of type {type(model).__name__} cannot be recorded.")
