"""Private steps of one process, each with a batch that the processor draws."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.data.samplers.user_sampling import UserBatch, UserSampling, group_rows
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.batch_source import BatchSource, batch_source
from tulle.train.examples import ExampleSet
from tulle.train.monitor import Monitored
from tulle.train.private_step import BatchUnits
from tulle.train.private_updates import PrivateUpdates
from tulle.train.step_sampling import StepSampler


class HostEngine:
    """Takes one step at a time, on any device and with any sampler and optimizer.

    Privacy:
      As `PrivateUpdates.take`, on batches of the sampler, each used once.
    """

    steps_at_a_time = 1

    def __init__(
        self,
        examples: ExampleSet,
        sampler: StepSampler,
        updates: PrivateUpdates,
        *,
        rng: NoiseSource,
        device: torch.device,
        noise_description: str,
    ) -> None:
        """Takes the rows that the sampler draws from, and what a step does to the model."""
        self.noise_description = noise_description
        self._sampler, self._updates, self._rng, self._device = sampler, updates, rng, device
        self._source = batch_source(examples, device)
        self._units = examples.units
        self._batches: Iterator[Batch | UserBatch] = iter(())

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        return self._updates.settled

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
            take_batch(self._updates, self._source, next(self._batches), rate, self._device)
            for rate in rates
        ]

    def state(self) -> dict[str, Tensor]:
        """As `PrivateUpdates.state`."""
        return self._updates.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """As `PrivateUpdates.load_state`."""
        self._updates.load_state(state)


def take_batch(
    updates: PrivateUpdates,
    source: BatchSource,
    batch: Batch | UserBatch,
    rate: float,
    device: torch.device,
) -> Monitored | None:
    """One step with a batch that was drawn on the processor.

    Privacy:
      As `PrivateUpdates.take`. Relies on: the batch is a fresh draw of the plan's sampler.
    """
    rows = source.batch(batch.indices)
    weights = torch.from_numpy(batch.weights).to(device)
    if isinstance(batch, Batch):
        return updates.take(rows, weights, None, rate)
    units = BatchUnits(
        segments=torch.from_numpy(batch.segments).to(device),
        weights=weights,
        num_segments=batch.num_segments,
    )
    return updates.take(rows, weights, units, rate)
