"""RMSprop (Tieleman and Hinton 2012)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tulle.train.optimizers.parameter_updates import ParameterUpdates
from tulle.train.optimizers.setting_checks import (
    check_learning_rate,
    check_memory,
    check_stabilizer,
    check_weight_decay,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RMSprop:
    """Steps by gradient / (root of mean square + stabilizer), as PyTorch does, from 0."""

    kind: ClassVar[str] = "rmsprop"

    learning_rate: float
    """The rate that the schedule's factor multiplies."""
    square_memory: float = 0.99
    """Share of the running mean square that stays in each step."""
    stabilizer: float = 1e-8
    """Added to the root of the mean square."""
    weight_decay: float = 0.0
    """Decoupled: weights -= rate * weight_decay * weights, for the entries that are updated."""

    def __post_init__(self) -> None:
        check_learning_rate(self.learning_rate)
        check_memory("square_memory", self.square_memory)
        check_stabilizer(self.stabilizer)
        check_weight_decay(self.weight_decay)

    def start(self, parameters: Mapping[str, Tensor]) -> ParameterUpdates:
        """A fresh optimizer for these parameters. It holds them and changes them in place."""
        return ParameterUpdates(parameters, self)

    @property
    def initial_state(self) -> dict[str, float]:
        """The state tensors: the running mean square."""
        return {"mean_square": 0.0}

    def apply(
        self,
        weights: Tensor,
        gradient: Tensor,
        state: Sequence[Tensor],
        *,
        rate: float,
        num_steps: int,  # noqa: ARG002
    ) -> None:
        """Changes weights and state in place."""
        (mean_square,) = state
        mean_square.mul_(self.square_memory)
        mean_square.addcmul_(gradient, gradient, value=1 - self.square_memory)
        divisor = torch.sqrt(mean_square).add_(self.stabilizer)
        weights.addcdiv_(gradient, divisor, value=-rate)
