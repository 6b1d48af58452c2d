"""Yogi (Zaheer et al. 2018, Algorithm 2), with Adam's correction of the first steps."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite
from tulle.train.optimizers.parameter_updates import ParameterUpdates
from tulle.train.optimizers.setting_checks import (
    check_learning_rate,
    check_memory,
    check_stabilizer,
    check_weight_decay,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yogi:
    """Adam with a mean square v that moves towards each square by a share of that square.

    v -= (1 - square_memory) * sign(v - gradient^2) * gradient^2, so that v falls slowly
    where gradients are small. The correction goes by the steps of the whole run, also
    for rows that few of them touch.
    """

    kind: ClassVar[str] = "yogi"

    learning_rate: float
    """The rate that the schedule's factor multiplies."""
    momentum: float = 0.9
    """Share of the running mean that stays in each step (beta 1)."""
    square_memory: float = 0.999
    """One less the share of a square that v moves by (beta 2)."""
    stabilizer: float = 1e-3
    """Added to the root of the corrected mean square; the paper's value."""
    initial_square: float = 1e-6
    """What v starts from."""
    weight_decay: float = 0.0
    """Decoupled: weights -= rate * weight_decay * weights, for the entries that are updated."""

    def __post_init__(self) -> None:
        check_learning_rate(self.learning_rate)
        check_memory("momentum", self.momentum)
        check_memory("square_memory", self.square_memory)
        check_stabilizer(self.stabilizer)
        if check_finite("initial_square", self.initial_square) < 0:
            raise ConfigError(f"initial_square={self.initial_square} must be >= 0.")
        check_weight_decay(self.weight_decay)

    def start(self, parameters: Mapping[str, Tensor]) -> ParameterUpdates:
        """A fresh optimizer for these parameters. It holds them and changes them in place."""
        return ParameterUpdates(parameters, self)

    @property
    def initial_state(self) -> dict[str, float]:
        """The state tensors: running mean and mean square."""
        return {"mean": 0.0, "mean_square": self.initial_square}

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
        squares = gradient * gradient
        signs = torch.sub(mean_square, squares).sign_()
        # v cannot fall below 0: where it is above the square it loses a share of that square.
        mean_square.addcmul_(signs, squares, value=self.square_memory - 1)
        divisor = torch.sqrt(mean_square, out=squares)
        divisor.div_(math.sqrt(1 - self.square_memory**num_steps)).add_(self.stabilizer)
        weights.addcdiv_(mean, divisor, value=-rate / (1 - self.momentum**num_steps))
