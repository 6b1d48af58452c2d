"""Stochastic gradient descent with momentum."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from tulle.train.optimizers.parameter_updates import ParameterUpdates
from tulle.train.optimizers.setting_checks import (
    check_learning_rate,
    check_memory,
    check_weight_decay,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SGD:
    """m = momentum * m + gradient; weights -= rate * m (PyTorch's convention)."""

    kind: ClassVar[str] = "sgd"

    learning_rate: float
    """The rate that the schedule's factor multiplies."""
    momentum: float = 0.9
    """Share of m that stays in each step; 0 needs no state."""
    weight_decay: float = 0.0
    """Decoupled: weights -= rate * weight_decay * weights, for the entries that are updated."""

    def __post_init__(self) -> None:
        check_learning_rate(self.learning_rate)
        check_memory("momentum", self.momentum)
        check_weight_decay(self.weight_decay)

    def start(self, parameters: Mapping[str, Tensor]) -> ParameterUpdates:
        """A fresh optimizer for these parameters. It holds them and changes them in place."""
        return ParameterUpdates(parameters, self)

    @property
    def initial_state(self) -> dict[str, float]:
        """The state tensors: the momentum."""
        return {"momentum": 0.0} if self.momentum else {}

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
        if not state:
            weights.add_(gradient, alpha=-rate)
            return
        (mean,) = state
        mean.mul_(self.momentum).add_(gradient)
        weights.add_(mean, alpha=-rate)
