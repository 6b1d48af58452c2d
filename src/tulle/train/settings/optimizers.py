"""The optimizers of training steps: their public settings, and what each does to a weight.

A rule says what happens to a weight given its gradient and its state; every entry goes the same
way. Which entries it is applied to, and what a checkpoint keeps, is in `parameter_updates`. They
stand in place of `torch.optim` because rows of embedding tables may get their noise late, and
several processes may each hold a part of the state. A plan needs the settings and no PyTorch, so
nothing here imports it.

Privacy: an optimizer works on gradients that carry their noise already. Weights and state are
then computed from noisy values alone, and cost nothing more.
"""

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(abc.ABC):
    """Public settings of an optimizer, and its rule."""

    kind: ClassVar[str]
    """The word for the optimizer in settings files and options."""

    learning_rate: float
    """Learning rate, which the schedule's factor multiplies."""
    weight_decay: float = 0.0
    """Decoupled decay: weights -= rate * weight_decay * weights, for entries that are updated."""

    def __post_init__(self) -> None:
        if check_finite("learning_rate", self.learning_rate) <= 0:
            raise ConfigError(f"learning_rate={self.learning_rate} must be > 0.")
        check_weight_decay(self.weight_decay)

    @property
    @abc.abstractmethod
    def initial_state(self) -> dict[str, float]:
        """Names of the state tensors, each with the value that it starts from."""

    def apply(
        self,
        weights: "Tensor",
        gradient: "Tensor",
        state: "Sequence[Tensor]",
        *,
        rate: float,
        num_steps: int,
    ) -> None:
        """Changes weights and state in place; all tensors have one shape.

        Args:
          weights: Parameters, or some rows of a table.
          gradient: Their noisy mean gradient, which is left alone.
          state: State tensors in the order of `initial_state`.
          rate: Learning rate of this step.
          num_steps: Number of steps of the whole run so far, this one included; it corrects the
            start of running means.
        """
        if self.weight_decay:
            weights.mul_(1 - rate * self.weight_decay)
        self._move(weights, gradient, state, rate, num_steps)

    @abc.abstractmethod
    def _move(
        self,
        weights: "Tensor",
        gradient: "Tensor",
        state: "Sequence[Tensor]",
        rate: float,
        num_steps: int,
    ) -> None:
        """Applies the rule without weight decay; arguments as for `apply`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Gradient descent with momentum: m = momentum * m + gradient; weights -= rate * m.

    The convention is PyTorch's.
    """

    kind: ClassVar[str] = "sgd"

    momentum: float = 0.9
    """Share of m that stays in each step; 0 needs no state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_memory("momentum", self.momentum)

    @property
    def initial_state(self) -> dict[str, float]:
        """The momentum, if there is any."""
        return {"momentum": 0.0} if self.momentum else {}

    def _move(
        self,
        weights: "Tensor",
        gradient: "Tensor",
        state: "Sequence[Tensor]",
        rate: float,
        num_steps: int,  # noqa: ARG002
    ) -> None:
        if not state:
            weights.add_(gradient, alpha=-rate)
            return
        (mean,) = state
        mean.mul_(self.momentum).add_(gradient)
        weights.add_(mean, alpha=-rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012): gradient / (root of mean square + stabilizer).

    The mean square starts at 0, as in PyTorch.
    """

    kind: ClassVar[str] = "rmsprop"

    square_memory: float = 0.99
    """Share of the running mean square that stays in each step."""
    stabilizer: float = 1e-8
    """Addend to the root of the mean square."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_memory("square_memory", self.square_memory)
        _check_stabilizer(self.stabilizer)

    @property
    def initial_state(self) -> dict[str, float]:
        """The running mean square."""
        return {"mean_square": 0.0}

    def _move(
        self,
        weights: "Tensor",
        gradient: "Tensor",
        state: "Sequence[Tensor]",
        rate: float,
        num_steps: int,  # noqa: ARG002
    ) -> None:
        (mean_square,) = state
        mean_square.mul_(self.square_memory)
        mean_square.addcmul_(gradient, gradient, value=1 - self.square_memory)
        divisor = mean_square.sqrt().add_(self.stabilizer)
        weights.addcdiv_(gradient, divisor, value=-rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015): mean / (root of mean square + stabilizer).

    Both means are corrected for their start. The correction goes by the steps of the whole run,
    also for rows that few of them touch. Weight decay is decoupled (Loshchilov and Hutter 2019).
    """

    kind: ClassVar[str] = "adam"

    momentum: float = 0.9
    """Share of the running mean that stays in each step (beta 1)."""
    square_memory: float = 0.999
    """Share of the running mean square that stays in each step (beta 2)."""
    stabilizer: float = 1e-8
    """Addend to the root of the corrected mean square (epsilon in the paper)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_memory("momentum", self.momentum)
        check_memory("square_memory", self.square_memory)
        _check_stabilizer(self.stabilizer)

    @property
    def initial_state(self) -> dict[str, float]:
        """Running mean and mean square."""
        return {"mean": 0.0, "mean_square": 0.0}

    def _move(
        self,
        weights: "Tensor",
        gradient: "Tensor",
        state: "Sequence[Tensor]",
        rate: float,
        num_steps: int,
    ) -> None:
        mean, mean_square = state
        mean.lerp_(gradient, 1 - self.momentum)
        divisor = self._add_squares(gradient, mean_square)
        divisor.div_(math.sqrt(1 - self.square_memory**num_steps)).add_(self.stabilizer)
        weights.addcdiv_(mean, divisor, value=-rate / (1 - self.momentum**num_steps))

    def _add_squares(self, gradient: "Tensor", mean_square: "Tensor") -> "Tensor":
        """Moves the mean square towards the squares of a gradient, and returns its root."""
        mean_square.mul_(self.square_memory)
        mean_square.addcmul_(gradient, gradient, value=1 - self.square_memory)
        return mean_square.sqrt()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yogi(Adam):
    """Yogi (Zaheer et al. 2018, Algorithm 2), with Adam's correction of the first steps.

    The mean square v moves towards each square by a share of that square,
    v -= (1 - square_memory) * sign(v - gradient^2) * gradient^2, so that it falls slowly where
    gradients are small.
    """

    kind: ClassVar[str] = "yogi"

    stabilizer: float = 1e-3
    """Addend to the root of the corrected mean square; the paper's value."""
    initial_square: float = 1e-6
    """Value that v starts from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if check_finite("initial_square", self.initial_square) < 0:
            raise ConfigError(f"initial_square={self.initial_square} must be >= 0.")

    @property
    def initial_state(self) -> dict[str, float]:
        """Running mean and mean square."""
        return {"mean": 0.0, "mean_square": self.initial_square}

    def _add_squares(self, gradient: "Tensor", mean_square: "Tensor") -> "Tensor":
        squares = gradient * gradient
        signs = mean_square.sub(squares).sign_()
        # v cannot fall below 0: where it is above the square it loses a share of that square.
        mean_square.addcmul_(signs, squares, value=self.square_memory - 1)
        return squares.copy_(mean_square).sqrt_()


AnyOptimizer = SGD | Adam | RMSprop | Yogi
"""All optimizers, as one type for settings files."""


def check_weight_decay(weight_decay: object) -> None:
    """Refuses a decay below 0, with which weights would grow."""
    if check_finite("weight_decay", weight_decay) < 0:
        raise ConfigError(f"weight_decay={weight_decay} must be >= 0; 0 switches it off.")


def check_memory(name: str, value: object) -> None:
    """Refuses what is no share of a running mean that stays in each step."""
    if not 0 <= check_finite(name, value) < 1:
        raise ConfigError(f"{name}={value} must be in [0, 1); 0 keeps nothing of earlier steps.")


def _check_stabilizer(stabilizer: object) -> None:
    if check_finite("stabilizer", stabilizer) <= 0:
        raise ConfigError(
            f"stabilizer={stabilizer} must be > 0; without it a zero gradient divides by 0."
        )
