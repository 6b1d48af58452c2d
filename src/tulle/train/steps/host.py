"""Private steps of one process, each with a batch that the processor draws."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.data.samplers.user_sampling import UserBatch, UserSampling, group_rows
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.examples import ExampleSet
from tulle.train.models.batches import BatchSource, batch_source
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.steps.monitor import Monitored
from tulle.train.steps.private_step import BatchUnits
from tulle.train.steps.updates import ModelStep


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
