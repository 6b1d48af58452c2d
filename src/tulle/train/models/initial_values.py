"""Initial parameters from a public seed, the same on every device and in every precision."""

import math

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.train.table_memory import table_empty

_LARGEST_SEED = 2**63 - 1


class InitialValues:
    """Draws the parameters of one model in the order in which they are asked for."""

    def __init__(self, seed: int, device: torch.device | str, dtype: torch.dtype) -> None:
        if check_count("seed", seed, least=0) > _LARGEST_SEED:
            raise ConfigError(f"seed={seed} must be at most {_LARGEST_SEED}.")
        self._generator = torch.Generator().manual_seed(seed)
        self._device = device
        self._dtype = dtype

    def normal(self, num_rows: int, dim: int, stddev: float) -> Tensor:
        """Rows of a table."""
        values = table_empty(num_rows, dim, torch.float32)
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
