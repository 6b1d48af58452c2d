"""Private steps of several processes: the part of each, and how one of them leads all."""

import abc
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.examples import ExampleSet
from tulle.train.models.batches import batch_source
from tulle.train.models.contributions import Gradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import Optimizer
from tulle.train.steps.gradient_noise import GradientNoise
from tulle.train.steps.host import ModelStep, take_batch
from tulle.train.steps.private_step import StepRelease, trained_parameters
from tulle.train.steps.processes.batches import SharedBatches
from tulle.train.steps.processes.processes import (
    LEADER,
    Message,
    MessageKind,
    Processes,
    failing_together,
    spread_all,
    sum_all_at_leader,
    tell,
)
from tulle.train.steps.step_context import Surroundings
from tulle.train.steps.step_settings import Monitored, StepSettings


class SharedStep(ModelStep):
    """A private step of several processes: the leader alone gets all sums and adds the noise.

    If each process added noise to its own sums, there would be too much noise or, with one key,
    the same noise several times. All call `share`, `take` and `state` together. A state is loaded
    at the leader, before `share`, and may be of any number of processes; what `take` and `state`
    return is for the leader, whose weights alone are private then.

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
        self._optimizer: ParameterUpdates | None = None

    @abc.abstractmethod
    def share(self) -> None:
        """The leader's weights and state come to all."""

    def _update(self, gradients: list[Gradient], rate: float) -> None:
        if self._optimizer is not None:
            self._optimizer.update(gradients, rate=rate)
        spread_all(self.settled, self._processes)

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
        if processes.rank == LEADER:
            self._optimizer = ParameterUpdates(trained, optimizer)
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

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state, at the leader; others have none."""
        return {} if self._optimizer is None else self._optimizer.state()


class RankSteps:
    """The part of one process in the private steps of a run; the same code in every process.

    Privacy:
      Unit, event and guarantee of the plan, which does not know how many processes there
      are, for all of them together. Relies on: all have the same examples and the same plan,
      and each has randomness of its own.
    """

    def __init__(
        self,
        own_rows: ExampleSet,
        batches: SharedBatches,
        step: SharedStep,
        device: torch.device,
    ) -> None:
        """Takes the part of this process.

        Args:
          own_rows: The rows that this process owns.
          batches: The part of this process in each batch.
          step: What a step does to the model that all share.
          device: Device that the model is on.
        """
        self._source, self._batches = batch_source(own_rows, device), batches
        self._step, self._device = step, device

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private at the leader right after every step."""
        return self._step.settled

    @property
    def noise_description(self) -> str:
        """Source of the noise, in words for the card."""
        return self._step.noise_description

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state: at the leader, before `share`."""
        self._step.load_state(state)

    def share(self, first_step: int) -> None:
        """All begin at this step of the plan, with the leader's weights and state."""
        self._batches.begin(first_step)
        self._step.share()

    def take(self, rate: float) -> Monitored | None:
        """The next step of all processes. The leader may show what it returns."""
        batch = self._batches.draw()
        return take_batch(self._step, self._source, batch, rate, self._device)

    def state(self) -> dict[str, Tensor]:
        """What one process would return, at the leader; settles its weights first."""
        return self._step.state()


class SharedPlace:
    """Takes one step at a time together with all followers; a `StepPlace`.

    Privacy:
      The same as for `RankSteps`. A step that one process cannot finish ends the run in all of
      them.
    """

    steps_at_a_time = 1

    def __init__(self, steps: RankSteps, processes: Processes) -> None:
        """Takes the leader's own part."""
        self.noise_description = steps.noise_description
        self._steps, self._processes = steps, processes
        self._first_step = 0
        self._is_shared = False

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        return self._steps.settled

    def begin(self, first_step: int) -> None:
        """Batches are drawn from this step of the plan on."""
        self._first_step, self._is_shared = first_step, False

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate."""
        return [self._take(rate) for rate in rates]

    def state(self) -> dict[str, Tensor]:
        """What one process would return; settles the weights first."""
        with failing_together(self._processes):
            self._share()
            tell(self._processes, Message(kind=MessageKind.STATE))
            return self._steps.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state of any number of processes."""
        self._steps.load_state(state)
        self._is_shared = False

    def _take(self, rate: float) -> Monitored | None:
        with failing_together(self._processes):
            self._share()
            tell(self._processes, Message(kind=MessageKind.TAKE, number=rate))
            return self._steps.take(rate)

    def _share(self) -> None:
        """Gives the followers their weights, at the last moment.

        Weights are loaded after the engine was made, so that they are not known earlier.
        """
        if not self._is_shared:
            tell(self._processes, Message(kind=MessageKind.SHARE, number=float(self._first_step)))
            self._steps.share(self._first_step)
            self._is_shared = True


def shared_by(around: Surroundings) -> Processes:
    """The processes of a run that has several."""
    if around.processes is None:
        raise ConfigError("processes=None: this run has one process.")
    return around.processes
