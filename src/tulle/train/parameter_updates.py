"""One update of many parameters: which entries a rule is applied to.

A rule says what happens to an entry given its gradient and its state; every entry
goes the same way. Here are the rest: dense gradients, row gradients, weight decay,
and the state that a checkpoint keeps. State is as large as its parameter. Entries
are taken in pieces, so that what a rule needs on the way stays in the cache.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import did_you_mean
from tulle.train.models.contributions import Gradient, RowGradient
from tulle.train.settings.optimizers import Optimizer

# Measured on 2 cores: pieces of 2^18 to 2^22 entries are 4 times as fast as whole tables.
_PIECE_ON_CPU = 1 << 20
# A GPU needs no cache-sized pieces: this only bounds each temporary tensor to 256 MiB of float32.
_PIECE_ON_DEVICE = 1 << 26
_NUM_STEPS = "num_steps"


class ParameterUpdates:
    """The optimizer that applies one rule to named parameters.

    The number of steps is one for the whole run: a row that a step leaves out is
    not updated in it, but its bias correction goes on.
    """

    def __init__(self, parameters: Mapping[str, Tensor], rule: Optimizer) -> None:
        self._parameters = dict(parameters)
        self._rule = rule
        self._num_steps = 0
        self._state = {
            name: [torch.full_like(weights, start) for start in rule.initial_state.values()]
            for name, weights in self._parameters.items()
        }

    def update(self, gradients: Sequence[Gradient], *, rate: float) -> None:
        """One step against the gradients, at most one a parameter."""
        self._check(gradients, rate)
        self._num_steps += 1
        for gradient in gradients:
            tensors = (self._parameters[gradient.name], *self._state[gradient.name])
            if isinstance(gradient, RowGradient):
                self._update_rows(tensors, gradient, rate)
            else:
                for piece in _pieces((gradient.values, *tensors)):
                    self._update_piece(piece, rate)

    def state(self) -> dict[str, Tensor]:
        """The live state, not a copy, by name, with the number of steps."""
        named = {
            f"{slot}.{name}": tensor
            for name, tensors in self._state.items()
            for slot, tensor in zip(self._rule.initial_state, tensors, strict=True)
        }
        return named | {_NUM_STEPS: torch.tensor(self._num_steps)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies what `state` gave. Nothing changes if anything in it is wrong."""
        own = self.state()
        if unknown := [name for name in state if name not in own]:
            raise RunStateError(
                f"optimizer state has an entry {unknown[0]!r} that this model and optimizer "
                f"have not{did_you_mean(unknown[0], own)}; resume with the run's own settings."
            )
        for name, tensor in own.items():
            check_entry(name, state.get(name), tensor)
        num_steps = int(state[_NUM_STEPS])
        if num_steps < 0:
            raise RunStateError(f"optimizer state has num_steps={num_steps}; it must be >= 0.")
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self._num_steps = num_steps

    def _update_rows(self, tensors: Sequence[Tensor], gradient: RowGradient, rate: float) -> None:
        for values, rows in _pieces((gradient.values, gradient.rows)):
            picked = [tensor.index_select(0, rows) for tensor in tensors]
            self._update_piece((values, *picked), rate)
            for tensor, changed in zip(tensors, picked, strict=True):
                tensor.index_copy_(0, rows, changed)

    def _update_piece(self, piece: Sequence[Tensor], rate: float) -> None:
        gradient, weights, *state = piece
        self._rule.apply(weights, gradient, state, rate=rate, num_steps=self._num_steps)

    def _check(self, gradients: Sequence[Gradient], rate: float) -> None:
        if not (math.isfinite(rate) and rate >= 0):
            raise ConfigError(f"rate={rate} must be finite and >= 0; check learning_rate.")
        seen: set[str] = set()
        for gradient in gradients:
            if gradient.name in seen:
                raise ConfigError(
                    f"parameter {gradient.name!r} has two gradients in one step; add them up first."
                )
            seen.add(gradient.name)
            _check_gradient(gradient, self._parameters)


def _check_gradient(gradient: Gradient, parameters: Mapping[str, Tensor]) -> None:
    weights = parameters.get(gradient.name)
    if weights is None:
        raise ConfigError(
            f"gradient for {gradient.name!r}, which the optimizer was not started with"
            f"{did_you_mean(gradient.name, parameters)}."
        )
    expected = weights.shape
    if isinstance(gradient, RowGradient):
        expected = torch.Size((len(gradient.rows), *weights.shape[1:]))
    if gradient.values.shape != expected:
        raise ConfigError(
            f"gradient of {gradient.name!r} has the shape {tuple(gradient.values.shape)}; "
            f"its parameter needs {tuple(expected)}."
        )


def check_entry(name: str, found: Tensor | None, own: Tensor) -> None:
    """Refuses an entry of a stored state that is missing, or of another shape or type.

    Args:
      name: Name of the entry, for messages.
      found: The stored entry; None if there is none.
      own: What it is to be copied to.
    """
    if found is None:
        raise RunStateError(
            f"optimizer state has no entry {name!r}; resume with the run's own settings."
        )
    if found.shape != own.shape or found.dtype != own.dtype:
        raise RunStateError(
            f"optimizer state {name!r} is {found.dtype} of shape {tuple(found.shape)}; the model "
            f"needs {own.dtype} of shape {tuple(own.shape)}. Resume with the run's own settings."
        )


def _pieces(tensors: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """The tensors cut alike along their first dimension, by the size of the first tensor."""
    first = tensors[0]
    limit = _PIECE_ON_CPU if first.device.type == "cpu" else _PIECE_ON_DEVICE
    if first.numel() <= limit:
        yield tensors
        return
    num_rows = max(1, limit * len(first) // first.numel())
    yield from zip(*(torch.split(tensor, num_rows) for tensor in tensors), strict=True)
