"""What a private step of several processes does to the model that they share."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import Optimizer
from tulle.train.steps.gradient_noise import GradientNoise
from tulle.train.steps.monitor import Monitored
from tulle.train.steps.private_step import (
    BatchUnits,
    PrivateStep,
    StepRelease,
    StepSettings,
    trained_parameters,
)
from tulle.train.steps.processes.processes import LEADER, Processes, spread_all, sum_all_at_leader


class SharedModelStep(Protocol):
    """One process's part in the private steps of all. All call `share`, `take` and `state`."""

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private at the leader right after every step."""
        ...

    @property
    def noise_description(self) -> str:
        """Source of the noise, in words for the card."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state of any number of processes: at the leader, before `share`."""
        ...

    def share(self) -> None:
        """The leader's weights and state come to all."""
        ...

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """Takes one step: clip, sum over all processes, add noise once, update.

        Args:
          batch: Rows of this process and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: Units of the rows if users are clipped; None if each row is a unit.
          rate: Learning rate of the step.

        Returns:
          The noisy monitor, which the leader may show; None if nothing is monitored.
        """
        ...

    def state(self) -> dict[str, Tensor]:
        """What one process would return, at the leader; settles its weights first.

        Privacy:
          After this call the leader's weights, and what is returned to it, are private.
        """
        ...


class SharedStep(PrivateStep):
    """A `PrivateStep` of several processes: the leader alone gets all sums and adds the noise.

    If each process added noise to its own sums, there would be too much noise or, with one key,
    the same noise several times.

    Privacy:
      The same as for `PrivateStep`, for the batch of all processes together. A follower releases
      nothing, and is left with zeros: no raw sum can be taken for a noisy one.
    """

    def __init__(
        self, model: TowerModel, settings: StepSettings, noise: GradientNoise, processes: Processes
    ) -> None:
        """Takes the noise of whole sums; a follower never uses its own."""
        super().__init__(model, settings, noise)
        self._processes = processes

    def _noisy(self) -> StepRelease:
        sum_all_at_leader([*self._sums.values(), self._monitor_sums], self._processes)
        if self._processes.rank != LEADER:
            return StepRelease(gradients=[], monitored=None)
        return super()._noisy()


class ReplicatedStep(SharedStep):
    """Every process has all weights; for any optimizer and any noise of dense sums.

    Clipped sums go to the leader, which adds the noise and moves the weights. The others
    get the new weights, and nothing else that is private.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: Optimizer,
        noise: GradientNoise,
        processes: Processes,
    ) -> None:
        """Starts from the present weights of the leader.

        Args:
          model: The model, which is trained in place, in every process.
          settings: What every step does.
          optimizer: Settings of any optimizer; only the leader has its state.
          noise: Noise of whole sums; a follower never uses its own.
          processes: The processes that share the steps.
        """
        super().__init__(model, settings, noise, processes)
        trained = trained_parameters(model, settings.towers)
        self._optimizer = ParameterUpdates(trained, optimizer) if processes.rank == LEADER else None
        self.settled = list(trained.values())
        self.noise_description = noise.description

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, at the leader, with noise that knows no earlier one."""
        if self._optimizer is not None:
            self._optimizer.load_state(state)
        self._noise.restart()

    def share(self) -> None:
        """The leader's weights come to all. Its state stays where it is used."""
        spread_all(self._model.parameters.values(), self._processes)

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """Takes one step: clip, sum, add noise, update.

        Args:
          batch: Rows of this process and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: Units of the rows if users are clipped; None if each row is a unit.
          rate: Learning rate of the step.

        Privacy:
          The same as for `PrivateStep`, for the batch of all processes together.
        """
        released = self.release(batch, weights, units)
        if self._optimizer is not None:
            self._optimizer.update(released.gradients, rate=rate)
        spread_all(self.settled, self._processes)
        return released.monitored

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state, at the leader; others have none."""
        return {} if self._optimizer is None else self._optimizer.state()
