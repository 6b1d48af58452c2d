"""Projected steps of a run: a private and a public batch for each, drawn apart."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.data.samplers.sampling_rng import sampling_generator
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError, DataError
from tulle.train.examples import ExampleSet
from tulle.train.methods.label_projection.method import LabelProjectionConfig
from tulle.train.methods.label_projection.projected_step import ProjectedStep
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.models.batches import ExampleBatch, batch_source
from tulle.train.models.tower_model import TowerModel
from tulle.train.run_context import NoisePlacement
from tulle.train.steps.monitor import Monitored
from tulle.train.steps.private_step import StepSettings
from tulle.train.steps.step_context import StepContext
from tulle.train.steps.training_noise import TrainingNoise


class ProjectionEngine:
    """Takes one projected step at a time.

    Privacy:
      The same as for `ProjectedStep.take`, on batches of the sampler, each used once. Public
      batches have a stream of their own and look at features alone.
    """

    steps_at_a_time = 1

    def __init__(
        self,
        model: TowerModel,
        examples: ExampleSet,
        plan: TrainPlan,
        settings: StepSettings,
        context: StepContext,
    ) -> None:
        """Takes the rows that the plan's sampler draws from.

        Raises:
          ConfigError: The plan has other steps, or noise is asked for elsewhere.
          DataError: A label is not 0 or 1.
        """
        method, sampler = plan.method, plan.sampler
        if not isinstance(method, LabelProjectionConfig):
            raise ConfigError(f"plan {plan.privacy.name!r} has no projected steps.")
        if not isinstance(sampler, TruncatedPoisson):
            raise ConfigError(f"plan {plan.privacy.name!r} needs truncated Poisson batches.")
        _check_placement(context.noise_placement)
        noise = TrainingNoise(context.rng)
        self.noise_description = noise.description
        optimizer = method.private_phase.optimizer
        self._step = ProjectedStep(model, settings, method.projection, optimizer, noise)
        self._sampler, self._rng, self._device = sampler, context.rng, context.device
        self._source = batch_source(_labels_and_public(examples), context.device)
        self._public = sampling_generator(context.rng)
        self._public_size = method.projection.public_batch_size
        self._batches: Iterator[Batch] = iter(())

    @property
    def settled(self) -> list[Tensor]:
        """All trained parameters: a step leaves no noise for later."""
        return self._step.settled

    def begin(self, first_step: int) -> None:
        """Batches are drawn from this step of the plan on."""
        self._batches = self._sampler.batches(self._rng, first_step=first_step)

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate."""
        return [self._take(next(self._batches), rate) for rate in rates]

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state."""
        return self._step.optimizer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state."""
        self._step.optimizer.load_state(state)

    def _take(self, batch: Batch, rate: float) -> Monitored | None:
        weights = torch.from_numpy(batch.weights).to(self._device)
        public = self._public_batch()
        return self._step.take(self._source.batch(batch.indices), weights, public, rate)

    def _public_batch(self) -> ExampleBatch:
        """Uniform rows, with replacement, whoever is in the private batch."""
        rows = self._public.integers(self._sampler.num_rows, size=self._public_size)
        return self._source.batch(rows.astype(np.int64))


def _labels_and_public(examples: ExampleSet) -> ExampleSet:
    """The rows without their sensitive columns. A label above 1 would exceed the clip norm."""
    if examples.labels is None or not np.isin(examples.labels, (0, 1)).all():
        raise DataError(
            "label projection needs labels 0 and 1, which switch a gradient off or on; mend the "
            "label column, or prepare the data again."
        )
    return examples.without_sensitive(examples.labels)


def _check_placement(placement: NoisePlacement) -> None:
    if placement is not NoisePlacement.AUTO:
        raise ConfigError(
            f"noise_placement={placement} is for DP-SGD; projected steps draw noise where public "
            "rows are. Leave it to tulle."
        )
