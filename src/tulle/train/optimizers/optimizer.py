"""What the training loop needs from an optimizer, and an optimizer from its settings.

Privacy: an optimizer works on gradients that carry their noise already. Weights
and state are then computed from noisy values alone, and cost nothing more.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from tulle.train.gradients import Gradient


class Optimizer(Protocol):
    """Changes the parameters it was started with, in place."""

    def update(self, gradients: Sequence[Gradient], *, rate: float) -> None:
        """One step against the gradients, at most one a parameter.

        A parameter without a gradient keeps its weights and its state. A row
        gradient changes its rows only: all other rows keep weights, state and size.

        Args:
          gradients: Noisy where the run is private.
          rate: The learning rate of this step.
        """

    def state(self) -> dict[str, Tensor]:
        """The live state, not a copy, by name. With the weights it is all a run needs to go on."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies what `state` gave. Nothing changes if anything in it is wrong."""


class OptimizerSettings(Protocol):
    """Public settings of an optimizer."""

    @property
    def learning_rate(self) -> float:
        """The rate that the schedule's factor multiplies."""

    def start(self, parameters: Mapping[str, Tensor]) -> Optimizer:
        """A fresh optimizer for these parameters. It holds them and changes them in place."""
