"""Private steps of one process: noise on every row at once, or when it is read.

Both ways give models of the same distribution. The lazy one is exact for independent noise and SGD
with momentum only, and costs what the rows of the batch cost; other optimizers are not
linear in the noise and need it on every row in every step.
"""

import abc
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.data.samplers.user_sampling import UserBatch, UserSampling, group_rows
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.examples import ExampleSet
from tulle.train.models.batches import BatchSource, ExampleBatch, batch_source
from tulle.train.models.contributions import BatchReads, Gradient, RowGradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import SGD, Optimizer
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.gradient_noise import GradientNoise, IndependentGradientNoise
from tulle.train.steps.lazy_rows import MOMENTUM, LazyRows
from tulle.train.steps.private_step import BatchUnits, PrivateStep, trained_parameters
from tulle.train.steps.step_settings import Monitored, StepSettings
from tulle.train.steps.training_noise import TrainingNoise


class ModelStep(PrivateStep, abc.ABC):
    """A private step that moves the weights of its model, batch after batch."""

    settled: list[Tensor]
    """Parameters whose weights are private right after every step."""
    noise_description: str
    """Source of the noise, in words for the card."""

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """Takes one step: clip, sum, add noise, update.

        Args:
          batch: Rows of the batch and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: Units of the rows if users are clipped; None if each row is a unit.
          rate: Learning rate of the step.

        Returns:
          The noisy monitor, which may be shown; None if nothing is monitored.

        Privacy:
          The same as for `PrivateStep`; with several processes, for the batch of all of them.
        """
        released = self.release(batch, weights, units)
        self._update(released.gradients, rate)
        return released.monitored

    @abc.abstractmethod
    def _update(self, gradients: list[Gradient], rate: float) -> None:
        """Moves the weights by noisy gradients, and ends the step."""

    @abc.abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What a run needs to go on, besides the weights; settles these first.

        Privacy:
          After this call the weights of the model, and what is returned, are private.
        """

    @abc.abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what `state` returned, with the weights that belong to it."""


class DenseStep(ModelStep):
    """Noise on every parameter in every step; for any optimizer and any noise of sums.

    A state holds no noise: where it is loaded, correlated noise starts again.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: Optimizer,
        noise: GradientNoise,
    ) -> None:
        """Starts from the present weights.

        Args:
          model: The model, which is trained in place.
          settings: What every step does.
          optimizer: Settings of any optimizer.
          noise: Noise of the sums, step after step.
        """
        super().__init__(model, settings, noise)
        trained = trained_parameters(model, settings.towers)
        self._optimizer = ParameterUpdates(trained, optimizer)
        self.noise_description = noise.description
        self.settled = list(trained.values())

    def _update(self, gradients: list[Gradient], rate: float) -> None:
        self._optimizer.update(gradients, rate=rate)

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state."""
        return self._optimizer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, with noise that knows no earlier one."""
        self._optimizer.load_state(state)
        # A state holds no past noise, so that none of it can be taken back any more.
        self._noise.restart()


class LazyStep(ModelStep):
    """Tables get their noise when rows are read; SGD with momentum and any schedule.

    The clipped gradient of a table goes into its `LazyRows`, which add the noise of every step
    to every row, but only when somebody looks. All other parameters get their noise at once.
    Its state is that of the dense way, so that a run may change between both.

    Privacy:
      The same as for `PrivateStep`, for weights that were flushed by `state`. Until then the memory
      of the tables holds raw gradients.
    """

    def __init__(
        self, model: TowerModel, settings: StepSettings, optimizer: SGD, noise: TrainingNoise
    ) -> None:
        """Starts from the present weights.

        Args:
          model: The model, which is trained in place.
          settings: What every step does; its mechanism must be `IndependentNoise`.
          optimizer: Settings of SGD.
          noise: Noise of rows and of all other parameters.
        """
        super().__init__(model, settings, IndependentGradientNoise(noise))
        trained = trained_parameters(model, settings.towers)
        names = model.tables & trained.keys()
        self._tables = {name: trained[name] for name in sorted(names)}
        for name in self._tables:
            # A dense sum would get noise in every row, which is what lazy rows save.
            del self._sums[name]
        dense = {name: values for name, values in trained.items() if name not in names}
        self._sgd, self._row_noise = optimizer, noise
        self._dense = ParameterUpdates(dense, optimizer)
        self.settled = list(dense.values())
        self.noise_description = noise.description
        self._begin(step=0)

    def _update(self, gradients: list[Gradient], rate: float) -> None:
        self._dense.update(gradients, rate=rate)
        # Last of all: the clock must stand still while the parts of a batch are read and added.
        self._ages.end_step(rate)

    def state(self) -> dict[str, Tensor]:
        """Flushes all rows and draws their momentum: the state of the dense optimizer."""
        state = self._dense.state()
        for name, rows in self._rows.items():
            released = rows.release_state()
            if MOMENTUM in released:
                state[f"{MOMENTUM}.{name}"] = released[MOMENTUM]
        # Only after all tables were flushed: they share the clock.
        self._ages.forget_past()
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, lazy or dense. Nothing changes if anything in it is wrong."""
        own = {f"{MOMENTUM}.{name}": name for name in self._tables} if self._sgd.momentum else {}
        if missing := [key for key in own if key not in state]:
            raise RunStateError(
                f"optimizer state has no entry {missing[0]!r}; resume with the run's own settings."
            )
        for key, name in own.items():
            # All entries are checked before one is loaded: half a state is that of no run.
            self._rows[name].check_state({MOMENTUM: state[key]})
        self._dense.load_state({key: value for key, value in state.items() if key not in own})
        self._begin(step=int(state["num_steps"]))
        for key, name in own.items():
            self._rows[name].load_state({MOMENTUM: state[key]})

    def _begin(self, step: int) -> None:
        device = next(iter(self._model.parameters.values())).device
        self._ages = AgeTable(
            momentum=self._sgd.momentum,
            weight_decay=self._sgd.weight_decay,
            step=step,
            device=device,
        )
        # Rows take mean gradients, so their noise is divided by the same public size.
        stddev = self._settings.noise_stddev / self._settings.expected_size
        self._rows = {
            name: LazyRows(values, self._ages, noise=self._row_noise, noise_stddev=stddev)
            for name, values in self._tables.items()
        }

    def _prepare(self, reads: BatchReads) -> None:
        for read in reads.tables:
            if read.table in self._rows:
                self._rows[read.table].catch_up(read.in_order.rows)

    def _accumulate(self, gradient: Gradient) -> None:
        rows = self._rows.get(gradient.name)
        if rows is None or not isinstance(gradient, RowGradient):
            super()._accumulate(gradient)
            return
        rows.add_gradient(gradient.rows, gradient.values, 1 / self._settings.expected_size)


class HostPlace:
    """Takes one step at a time, on any device and with any sampler and optimizer.

    Privacy:
      The same as for `ModelStep.take`, on batches of the sampler, each used once.
    """

    steps_at_a_time = 1

    def __init__(
        self,
        examples: ExampleSet,
        sampler: StepSampler,
        step: ModelStep,
        *,
        rng: NoiseSource,
        device: torch.device,
    ) -> None:
        """Starts with no batch drawn.

        Args:
          examples: The rows that the sampler draws from.
          sampler: What draws the batches.
          step: What a step does to the model.
          rng: Source of the batches. Sensitive: never log or save its state.
          device: Device that the model is on.
        """
        self.noise_description = step.noise_description
        self._sampler, self._step, self._rng, self._device = sampler, step, rng, device
        self._source = batch_source(examples, device)
        self._units = examples.units
        self._batches: Iterator[Batch | UserBatch] = iter(())

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        return self._step.settled

    def begin(self, first_step: int) -> None:
        """Batches are drawn from this step of the plan on."""
        sampler = self._sampler
        if not isinstance(sampler, UserSampling):
            self._batches = sampler.batches(self._rng, first_step=first_step)
            return
        if self._units is None:
            raise ConfigError("clipped users need data with a unit column.")
        self._batches = sampler.batches(
            self._rng, user_rows=group_rows(self._units), first_step=first_step
        )

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate."""
        return [
            take_batch(self._step, self._source, next(self._batches), rate, self._device)
            for rate in rates
        ]

    def state(self) -> dict[str, Tensor]:
        """The state of the step, see `ModelStep.state`."""
        return self._step.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, see `ModelStep.load_state`."""
        self._step.load_state(state)


def take_batch(
    step: ModelStep,
    source: BatchSource,
    batch: Batch | UserBatch,
    rate: float,
    device: torch.device,
) -> Monitored | None:
    """One step with a batch that was drawn on the processor.

    Args:
      step: What a step does to the model.
      source: The rows that the sampler draws from.
      batch: A draw of the sampler.
      rate: The learning rate.
      device: Device that the model is on.

    Privacy:
      The same as for `ModelStep.take`. Relies on: the batch is a fresh draw of the plan's sampler.
    """
    rows = source.batch(batch.indices)
    weights = torch.from_numpy(batch.weights).to(device)
    if isinstance(batch, Batch):
        return step.take(rows, weights, None, rate)
    units = BatchUnits(
        segments=torch.from_numpy(batch.segments).to(device),
        weights=weights,
        num_segments=batch.num_segments,
    )
    return step.take(rows, weights, units, rate)
