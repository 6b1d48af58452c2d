"""What x where: which private step a run takes, and where it takes it.

What a step does to the model follows from the noise of the plan, the optimizer and the placement
of noise. Where it runs follows from the surroundings: several processes, a GPU alone, or the
processor. All that exist give models of the distribution of the plan:

| what a step does | processor | GPU alone | several processes |
|---|---|---|---|
| noise when rows are read (independent noise, SGD) | `LazyStep` | `DeviceStep` | `ShardedStep` |
| noise on sums (independent, lattice, banded) | `DenseStep` | as processor | `ReplicatedStep` |
| noise in selected rows | `SelectedStep` | as processor | refused |
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.examples import ExampleSet
from tulle.train.models.tower_model import TowerModel
from tulle.train.run_context import NoiseMemory, NoisePlacement
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.settings.optimizers import SGD, Optimizer
from tulle.train.settings.step_mechanism import StepMechanism, StepSampler
from tulle.train.settings.step_noise import BandedNoise, IndependentNoise, LatticeNoise
from tulle.train.steps.banded import BandedGradientNoise, fitting_memory
from tulle.train.steps.gpu.device_keys import has_kernels
from tulle.train.steps.gpu.device_step import DeviceStep
from tulle.train.steps.gpu.place import GpuPlace
from tulle.train.steps.gradient_noise import (
    GradientNoise,
    IndependentGradientNoise,
    LatticeGradientNoise,
)
from tulle.train.steps.host import DenseStep, HostPlace, LazyStep, ModelStep
from tulle.train.steps.private_step import trained_parameters
from tulle.train.steps.processes.batches import SharedBatches, own_shard
from tulle.train.steps.processes.sharded import ShardedStep
from tulle.train.steps.processes.shared_steps import (
    RankSteps,
    ReplicatedStep,
    SharedPlace,
    shared_by,
)
from tulle.train.steps.selected import SelectedStep
from tulle.train.steps.step_context import Surroundings, products_dtype
from tulle.train.steps.step_settings import Monitored, StepSettings
from tulle.train.steps.training_noise import TrainingNoise

_PRODUCT_SLACK = 2.0**-8
"""Rounding a scaled gradient to bfloat16 adds at most 2^-9 of its norm; TF32 products round
both of their inputs, by at most 2^-10 each."""
_LEAST_CHANCE = 1e-6
"""Least sampling probability of batches that a device draws: below it, float arithmetic there would
not keep its promise."""


class StepPlace(Protocol):
    """Draws batches of a plan's sampler and takes private steps on them, somewhere.

    Privacy:
      One call of `take` with n rates is n steps of the plan, never more: whoever calls it
      has charged them.
    """

    @property
    def steps_at_a_time(self) -> int:
        """Most steps of one call of `take`; more than 1 where waiting for each is slow."""
        ...

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        ...

    @property
    def noise_description(self) -> str:
        """Source of the noise, in words for the card."""
        ...

    def begin(self, first_step: int) -> None:
        """Batches are drawn from this step of the plan on. Called once, before any step."""
        ...

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate. Returns what may be shown of each."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a run needs to go on, besides the weights; settles these first.

        Privacy:
          After this call the weights of the model, and what is returned, are private.
        """
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what `state` returned, with the weights that belong to it."""
        ...


def start_steps(
    model: TowerModel,
    examples: ExampleSet,
    sampler: StepSampler,
    optimizer: Optimizer,
    settings: StepSettings,
    around: Surroundings,
) -> StepPlace:
    """Starts private steps on the device and processes of the surroundings.

    Args:
      model: The model, which is trained in place.
      examples: The rows that the sampler draws from.
      sampler: What draws the batches of the plan.
      optimizer: Settings of the optimizer of the plan.
      settings: What every step does.
      around: Device, randomness, processes and choices of speed.

    Privacy:
      Unit, event and guarantee: those of the plan that sampler and settings are of, wherever the
      steps run.

    Raises:
      ConfigError: Such steps do not exist there, or a lattice is too coarse.
    """
    if around.processes is not None:
        rank = start_rank(model, examples, sampler, optimizer, settings, around)
        return SharedPlace(rank, around.processes)
    recorded = gpu_parts(sampler, optimizer, settings, around)
    if recorded is not None:
        return _on_gpu(model, examples, *recorded, settings, around)
    step = host_step(
        model,
        settings,
        optimizer,
        TrainingNoise(around.rng),
        around.noise_placement,
        rng=around.rng,
        memory=around.noise_memory,
    )
    return HostPlace(examples, sampler, step, rng=around.rng, device=around.device)


def start_rank(
    model: TowerModel,
    examples: ExampleSet,
    sampler: StepSampler,
    optimizer: Optimizer,
    settings: StepSettings,
    around: Surroundings,
) -> RankSteps:
    """The part of this process in steps that several take together.

    Args:
      model: The model, which is trained in place; followers get the weights of the leader.
      examples: The rows that the sampler draws from, the same in every process.
      sampler: What draws the batches of all processes together.
      optimizer: Settings of the optimizer of the plan.
      settings: What every step does.
      around: Device, randomness and processes of the run.

    Privacy:
      The same as for `RankSteps`.

    Raises:
      ConfigError: The steps cannot be shared.
    """
    processes = shared_by(around)
    check_several_processes(settings.mechanism)
    shard = own_shard(sampler, rank=processes.rank, size=processes.size, units=examples.units)
    # The key of batches is drawn before that of noise, so that a seed gives the run it always gave.
    batches = SharedBatches(shard, processes, around.rng, around.stop)
    noise = TrainingNoise(around.rng)
    step: ShardedStep | ReplicatedStep
    sgd = lazy_sgd(settings, optimizer, around.noise_placement)
    if sgd is not None:
        step = ShardedStep(model, settings, sgd, noise, processes)
    else:
        sums = sum_noise(model, settings, noise, around.rng, around.noise_memory)
        step = ReplicatedStep(model, settings, optimizer, sums, processes)
    return RankSteps(examples.select(shard.rows), batches, step, around.device)


def host_step(
    model: TowerModel,
    settings: StepSettings,
    optimizer: Optimizer,
    noise: TrainingNoise,
    placement: NoisePlacement = NoisePlacement.AUTO,
    *,
    rng: NoiseSource,
    memory: NoiseMemory = NoiseMemory.AUTO,
) -> ModelStep:
    """What a step does to a model in one process, with the noise that its settings name.

    Args:
      model: The model, which is trained in place.
      settings: What every step does.
      optimizer: Settings of any optimizer.
      noise: Source of fresh normals.
      placement: When table rows get independent noise.
      rng: Source of all other noise, which has keys or coins of its own. Sensitive: never log
        or save its state.
      memory: What is kept of correlated noise.

    Privacy:
      The noise of every step is that of `settings`, on sums that clipping bounded.

    Raises:
      ConfigError: Lazy noise is asked for where it is not exact, or a lattice is too coarse.
    """
    sgd = lazy_sgd(settings, optimizer, placement)
    if sgd is not None:
        return LazyStep(model, settings, sgd, noise)
    if settings.mechanism.selects_rows:
        return SelectedStep(model, settings, optimizer, noise, rng)
    return DenseStep(model, settings, optimizer, sum_noise(model, settings, noise, rng, memory))


def lazy_sgd(settings: StepSettings, optimizer: Optimizer, placement: NoisePlacement) -> SGD | None:
    """The optimizer, if table rows get their noise when they are next read; None if at once.

    Args:
      settings: Name the noise.
      optimizer: Only SGD is linear in the noise, so that noise may come late.
      placement: What the user asks for.

    Raises:
      ConfigError: Lazy noise is asked for where it is not exact.
    """
    is_exact = settings.mechanism.can_be_lazy
    if isinstance(optimizer, SGD) and is_exact and placement is not NoisePlacement.DENSE:
        return optimizer
    if placement is NoisePlacement.LAZY:
        raise ConfigError(
            f"noise_placement={placement.value!r}: lazy noise is exact for IndependentNoise() "
            f"under SGD only, not for {settings.mechanism} under {type(optimizer).__name__}; use "
            "these, or leave the placement of noise to tulle."
        )
    return None


def gpu_parts(
    sampler: StepSampler,
    optimizer: Optimizer,
    settings: StepSettings,
    around: Surroundings,
) -> tuple[TruncatedPoisson, SGD] | None:
    """Sampler and optimizer of steps that stay on a GPU; None if they cannot.

    Args:
      sampler: Only truncated Poisson batches have a fixed size, and can be recorded.
      optimizer: Only SGD has lazy noise, which steps on a GPU need.
      settings: Name the noise.
      around: Device and placement of noise.
    """
    if around.device.type != "cuda" or not isinstance(sampler, TruncatedPoisson):
        return None
    sgd = lazy_sgd(settings, optimizer, around.noise_placement)
    if sgd is None or not _LEAST_CHANCE <= sampler.sampling_prob < 1 or not has_kernels():
        return None
    return sampler, sgd


def check_several_processes(mechanism: StepMechanism) -> None:
    """Refuses noise that several processes cannot make together, before it costs anything.

    Raises:
      ConfigError: Each step chooses rows from counts of all of its batch.
    """
    if mechanism.selects_rows:
        raise ConfigError(
            f"{mechanism} chooses rows from counts that one process must have; start one "
            "process, or choose another noise."
        )


def sum_noise(
    model: TowerModel,
    settings: StepSettings,
    noise: TrainingNoise,
    rng: NoiseSource,
    memory: NoiseMemory = NoiseMemory.AUTO,
) -> GradientNoise:
    """The noise of dense sums. With several processes the leader adds it, once, to whole sums.

    Args:
      model: Its size decides what of correlated noise is kept.
      settings: Name the noise.
      noise: Source of fresh normals.
      rng: Source of all other noise. Sensitive: never log or save its state.
      memory: What is kept of correlated noise.

    Privacy:
      The noise is that of `settings`, on sums that clipping bounded. Relies on: added once a step.

    Raises:
      ConfigError: The noise is not added to sums.
    """
    mechanism = settings.mechanism
    if isinstance(mechanism, IndependentNoise):
        return IndependentGradientNoise(noise)
    if isinstance(mechanism, LatticeNoise):
        return LatticeGradientNoise(rng, grid=mechanism.grid(settings.clip_norm))
    if isinstance(mechanism, BandedNoise):
        matrix = BandMatrix(num_bands=mechanism.num_bands, num_steps=settings.num_steps)
        trained = trained_parameters(model, settings.towers).values()
        model_bytes = sum(values.nbytes for values in trained)
        kept = fitting_memory(memory, mechanism.num_bands, model_bytes)
        return BandedGradientNoise(matrix, rng, kept)
    # Rows that are selected get theirs before anything is summed, see `selected`.
    raise ConfigError(f"{mechanism} is not added to sums; choose another noise.")


def _on_gpu(
    model: TowerModel,
    examples: ExampleSet,
    sampler: TruncatedPoisson,
    optimizer: SGD,
    settings: StepSettings,
    around: Surroundings,
) -> GpuPlace:
    # Products of both precisions round what clipping has bounded.
    settings = dataclasses.replace(settings, clip_slack=_PRODUCT_SLACK)
    step = DeviceStep(
        model,
        settings,
        optimizer,
        rng=around.rng,
        max_reads=sampler.max_batch_size * len(examples.features),
        # Rows are flushed at every checkpoint, so that none is older than a block.
        max_steps=around.block_size(sampler.steps),
        products=products_dtype(around.products),
    )
    return GpuPlace(
        examples, sampler, step, settings=settings, rng=around.rng, device=around.device
    )
