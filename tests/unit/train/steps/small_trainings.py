"""The same small training twice: by the dense optimizer, and with lazy noise.

Every entry of the table is a training of its own, with the same reads and the same
gradient as a function of its weight. What each one shows on its way (weights at reads,
weights and momentum at checkpoints and at the end) is returned side by side.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from tulle.train.models.contributions import DenseGradient
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.lazy_rows import LazyRows, Normals

GradientOf = Callable[[Tensor, int], Tensor]


def linear_gradient(weights: Tensor, step: int) -> Tensor:
    return 0.6 * weights + 0.2 - 0.05 * step


def tanh_gradient(weights: Tensor, step: int) -> Tensor:
    return torch.tanh(3 * weights - 0.3 + 0.1 * (step % 3))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallTraining:
    """Which steps read a row; all others leave it alone."""

    rates: tuple[float, ...]
    reads: tuple[int, ...]
    """Steps that read the weights and have a gradient for them."""
    looks: tuple[int, ...] = ()
    """Steps that read the weights only, as an evaluation does."""
    saves: tuple[int, ...] = ()
    """Steps before which a checkpoint is written, and training goes on from what it says."""
    momentum: float = 0.9
    weight_decay: float = 0.0
    noise_stddev: float = 0.5
    gradient: GradientOf = linear_gradient

    @property
    def num_seen(self) -> int:
        """Numbers that each training shows."""
        num_states = len(self.saves) + 1
        states = num_states * (2 if self.momentum else 1)
        return len(set(self.reads) | set(self.looks)) + states


def dense_run(training: SmallTraining, weights: Tensor, noise: Normals) -> Tensor:
    """[numbers seen, entries], by noise on the whole table in every step."""
    settings = SGD(
        learning_rate=1.0, momentum=training.momentum, weight_decay=training.weight_decay
    )
    optimizer = ParameterUpdates({"table": weights}, settings)
    seen = []
    for step, rate in enumerate(training.rates):
        if step in training.saves:
            seen += [weights.clone(), *_momentum(optimizer.state())]
        if step in training.reads or step in training.looks:
            seen.append(weights.clone())
        gradient = torch.zeros_like(weights)
        if step in training.reads:
            gradient += training.gradient(weights, step)
        noise.add_to(gradient, training.noise_stddev)
        optimizer.update([DenseGradient(name="table", values=gradient)], rate=rate)
    seen += [weights.clone(), *_momentum(optimizer.state())]
    return torch.stack([values.flatten() for values in seen])


def lazy_run(
    training: SmallTraining,
    weights: Tensor,
    noise: Normals,
    rows_class: type[LazyRows] = LazyRows,
    ages_class: type[AgeTable] = AgeTable,
) -> Tensor:
    """[numbers seen, entries], by noise at reads."""

    def start(step: int) -> tuple[AgeTable, LazyRows]:
        ages = ages_class(momentum=training.momentum, weight_decay=training.weight_decay, step=step)
        stddev = training.noise_stddev
        return ages, rows_class(weights, ages, noise=noise, noise_stddev=stddev)

    ages, table = start(0)
    rows = torch.arange(len(weights))
    seen = []
    for step, rate in enumerate(training.rates):
        if step in training.saves:
            state = table.release_state()
            seen += [weights.clone(), *_momentum(state)]
            ages, table = start(step)
            table.load_state(state)
        if step in training.reads or step in training.looks:
            table.catch_up(rows)
            seen.append(weights.clone())
        if step in training.reads:
            table.add_gradient(rows, training.gradient(weights, step))
        ages.end_step(rate)
    state = table.release_state()
    seen += [weights.clone(), *_momentum(state)]
    return torch.stack([values.flatten() for values in seen])


def _momentum(state: dict[str, Tensor]) -> list[Tensor]:
    return [tensor.clone() for name, tensor in state.items() if name.startswith("momentum")]
