"""What a private step of several processes does to the model that they share."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from tulle.train.banded.banded_noise import BandedGradientNoise
from tulle.train.distributed.bundles import spread_all
from tulle.train.distributed.processes import LEADER, Processes
from tulle.train.distributed.summed_step import SummedStep
from tulle.train.examples import ExampleBatch
from tulle.train.gradient_noise import GradientNoise
from tulle.train.models.tower_model import TowerModel
from tulle.train.monitor import Monitored
from tulle.train.optimizers.optimizer import OptimizerSettings
from tulle.train.private_step import BatchUnits, StepSettings, trained_parameters


class SharedUpdates(Protocol):
    """One process's part in the private steps of all. All call `share`, `take` and `state`."""

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private at the leader right after every step."""
        ...

    @property
    def noise_description(self) -> str:
        """Where the noise comes from, in words for the card."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """At the leader, before `share`: goes on from a state of any number of processes."""
        ...

    def share(self) -> None:
        """The leader's weights and state come to all."""
        ...

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """One step: clip, sum over all processes, noise once, update. The leader may show
        what it returns."""
        ...

    def state(self) -> dict[str, Tensor]:
        """At the leader what one process would return; settles its weights first.

        Privacy:
          After this call the leader's weights, and what is returned to it, are private.
        """
        ...


class ReplicatedUpdates:
    """Every process has all weights; for any optimizer and any noise of dense sums.

    Clipped sums go to the leader, which adds the noise and moves the weights. The others
    get the new weights, and nothing else that is private.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: OptimizerSettings,
        noise: GradientNoise,
        processes: Processes,
    ) -> None:
        trained = trained_parameters(model, settings.towers)
        self._model, self._noise, self._processes = model, noise, processes
        self._step = SummedStep(model, settings, noise, processes)
        self._optimizer = optimizer.start(trained) if processes.rank == LEADER else None
        self.settled = list(trained.values())
        self.noise_description = noise.description

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """At the leader: goes on from a state, with noise that knows no earlier one."""
        if self._optimizer is not None:
            self._optimizer.load_state(state)
        if isinstance(self._noise, BandedGradientNoise):
            self._noise.restart()

    def share(self) -> None:
        """The leader's weights come to all. Its state stays where it is used."""
        spread_all(self._model.parameters.values(), self._processes)

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """One step: clip, sum, noise, update.

        Privacy:
          As `PrivateStep`, for the batch of all processes together.
        """
        released = self._step.release(batch, weights, units)
        if self._optimizer is not None:
            self._optimizer.update(released.gradients, rate=rate)
        spread_all(self.settled, self._processes)
        return released.monitored

    def state(self) -> dict[str, Tensor]:
        """At the leader, the optimizer's state."""
        return {} if self._optimizer is None else self._optimizer.state()
