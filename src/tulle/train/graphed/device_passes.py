"""Which passes through a model can be recorded, and what they have in common."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.graphed.device_factors import DeviceFactors
from tulle.train.graphed.device_mlp import DevicePerceptron
from tulle.train.graphed.device_rows import RowSums
from tulle.train.models.embedded_model import BiasedModel
from tulle.train.models.mlp import MLPModel
from tulle.train.models.tower_model import TowerModel
from tulle.train.table_reads import BatchReads


class DevicePasses(Protocol):
    """One batch after the other through a model, without a look at any number.

    Privacy:
      All that it holds and returns is raw.
    """

    def forward(self, reads: BatchReads) -> Tensor:
        """[batch]: logits."""
        ...

    def backward(self, logit_grads: Tensor) -> Tensor:
        """[batch]: the squared norm of each example's gradient, over all trained parameters."""
        ...

    def add_rows(self, factors: Tensor, scale: Tensor, rows: Mapping[str, RowSums]) -> None:
        """Adds the clipped gradients of tables where their noise waits.

        Args:
          factors: [batch]: what each example's gradient is multiplied with; one of factor 0
            adds nothing, whatever it is.
          scale: [1]: what all are multiplied with on top.
          rows: The trained tables.
        """
        ...

    def layer_sums(self, factors: Tensor) -> dict[str, Tensor]:
        """The sums of clipped gradients of all trained parameters but tables."""
        ...


def device_passes(
    model: TowerModel, towers: frozenset[str], products: torch.dtype = torch.float32
) -> DevicePasses:
    """Passes through a model.

    Args:
      model: Of a kind that tulle builds.
      towers: Those that are trained.
      products: Of which type the inputs of matrix products are.
    """
    if isinstance(model, MLPModel):
        return DevicePerceptron(model, towers, products)
    if isinstance(model, BiasedModel):
        return DeviceFactors(model, towers)
    raise ConfigError(f"a model of type {type(model).__name__} cannot be recorded.")
