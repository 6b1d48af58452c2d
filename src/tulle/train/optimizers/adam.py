"""Adam (Kingma and Ba 2015), with decoupled weight decay (Loshchilov and Hutter 2019)."""

import dataclasses
import math
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
class Adam:
    """Steps by mean / (root of mean square + stabilizer), both means corrected for their start.

    The correction goes by the steps of the whole run, also for rows that few of them touch.
    """

    kind: ClassVar[str] = "adam"

    learning_rate: float
    """The rate that the schedule's factor multiplies."""
    momentum: float = 0.9
    """Share of the running mean that stays in each step (beta 1)."""
    square_memory: float = 0.999
    """Share of the running mean square that stays in each step (beta 2)."""
    stabilizer: float = 1e-8
    """Added to the root of the corrected mean square (epsilon in the paper)."""
    weight_decay: float = 0.0
    """Decoupled: weights -= rate * weight_decay * weights, for the entries that are updated."""

    def __post_init__(self) -> None:
        check_learning_rate(self.learning_rate)
        check_memory("momentum", self.momentum)
        check_memory("square_memory", self.square_memory)
        check_stabilizer(self.stabilizer)
        check_weight_decay(self.weight_decay)

    def start(self, parameters: Mapping[str, Tensor]) -> ParameterUpdates:
        """A fresh optimizer for these parameters. It holds them and changes them in place."""
        return ParameterUpdates(parameters, self)

    @property
    def initial_state(self) -> dict[str, float]:
        """The state tensors: running mean and mean square."""
        return {"mean": 0.0, "mean_square": 0.0}

    def apply(
        self,
        weights: Tensor,
        gradient: Tensor,
        state: Sequence[Tensor],
        *,
        rate: float,
        num_steps: int,
    ) -> None:
        """Changes weights and state in place."""
        mean, mean_square = state
        mean.lerp_(gradient, 1 - self.momentum)
        mean_square.mul_(self.square_memory)
        mean_square.addcmul_(gradient, gradient, value=1 - self.square_memory)
        divisor = torch.sqrt(mean_square)
        divisor.div_(math.sqrt(1 - self.square_memory**num_steps)).add_(self.stabilizer)
        weights.addcdiv_(mean, divisor, value=-rate / (1 - self.momentum**num_steps))
