"""Private steps of one process, each with a batch that the processor draws."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.data.samplers.user_sampling import UserBatch, UserSampling, group_rows
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.batch_source import batch_source
from tulle.train.examples import ExampleSet
from tulle.train.monitor import Monitored
from tulle.train.private_step import BatchUnits
from tulle.train.private_updates import PrivateUpdates
from tulle.train.train_plan import StepSampler


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
        return [self._step(next(self._batches), rate) for rate in rates]

    def state(self) -> dict[str, Tensor]:
        """As `PrivateUpdates.state`."""
        return self._updates.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """As `PrivateUpdates.load_state`."""
        self._updates.load_state(state)

    def _step(self, batch: Batch | UserBatch, rate: float) -> Monitored | None:
        rows = self._source.batch(batch.indices)
        weights = torch.from_numpy(batch.weights).to(self._device)
        if isinstance(batch, Batch):
            return self._updates.take(rows, weights, None, rate)
        units = BatchUnits(
            segments=torch.from_numpy(batch.segments).to(self._device),
            weights=weights,
            num_segments=batch.num_segments,
        )
        return self._updates.take(rows, weights, units, rate)
