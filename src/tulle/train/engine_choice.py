"""Which engine takes the private steps of a run: several processes, a GPU alone, or the processor.

All of them follow one plan and give models of one law.
"""

import dataclasses

from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.train.distributed.driving_engine import drive
from tulle.train.examples import ExampleSet
from tulle.train.graphed.device_step import DeviceStep
from tulle.train.graphed.graph_engine import GraphEngine
from tulle.train.graphed.kernel_launch import has_kernels
from tulle.train.host_engine import HostEngine
from tulle.train.methods.private_steps import steps_method
from tulle.train.models.tower_model import TowerModel
from tulle.train.noise import TrainingNoise
from tulle.train.optimizers.sgd import SGD
from tulle.train.private_step import StepSettings
from tulle.train.private_updates import NoisePlacement, start_updates
from tulle.train.run_context import RunContext
from tulle.train.step_engine import StepEngine
from tulle.train.step_noise import IndependentNoise
from tulle.train.train_plan import TrainPlan

_PRODUCT_SLACK = 2.0**-8
"""Rounding a scaled gradient to bfloat16 adds at most 2^-9 of its norm; TF32 products round
both of their inputs, by at most 2^-10 each."""
_LEAST_CHANCE = 1e-6
"""Below this, the float arithmetic of batches on a device would not keep its promise."""


def start_engine(
    model: TowerModel,
    examples: ExampleSet,
    plan: TrainPlan,
    settings: StepSettings,
    context: RunContext,
) -> StepEngine:
    """What takes the private steps of a plan in these surroundings, as its method says."""
    return steps_method(plan).start_engine(model, examples, plan, settings, context)


def clipping_engine(
    model: TowerModel,
    examples: ExampleSet,
    plan: TrainPlan,
    settings: StepSettings,
    context: RunContext,
) -> StepEngine:
    """What takes steps on clipped gradients: several processes, a GPU alone, or the processor."""
    if context.processes is not None:
        return drive(model, examples, plan, settings, context)
    if can_be_recorded(plan, settings, context):
        return _graph_engine(model, examples, plan, settings, context)
    phase, sampler = plan.private_phase, plan.sampler
    if phase is None or sampler is None:
        raise ConfigError(f"plan {plan.privacy.name!r} has no private steps.")
    noise = TrainingNoise(context.rng)
    updates = start_updates(
        model,
        settings,
        phase.optimizer,
        noise,
        context.noise_placement,
        rng=context.rng,
        memory=context.noise_memory,
    )
    return HostEngine(
        examples,
        sampler,
        updates,
        rng=context.rng,
        device=context.device,
        noise_description=updates.noise_description,
    )


def can_be_recorded(plan: TrainPlan, settings: StepSettings, context: RunContext) -> bool:
    """Whether steps can stay on a GPU: SGD with lazy noise on truncated Poisson batches."""
    phase, sampler = plan.private_phase, plan.sampler
    return (
        context.device.type == "cuda"
        and phase is not None
        and isinstance(phase.optimizer, SGD)
        and isinstance(settings.mechanism, IndependentNoise)
        and context.noise_placement is not NoisePlacement.DENSE
        and isinstance(sampler, TruncatedPoisson)
        and _LEAST_CHANCE <= sampler.sampling_prob < 1
        and has_kernels()
    )


def _graph_engine(
    model: TowerModel,
    examples: ExampleSet,
    plan: TrainPlan,
    settings: StepSettings,
    context: RunContext,
) -> GraphEngine:
    phase, sampler = plan.private_phase, plan.sampler
    if phase is None or not isinstance(sampler, TruncatedPoisson):
        raise ConfigError(f"plan {plan.privacy.name!r} has no steps that can be recorded.")
    if not isinstance(phase.optimizer, SGD):
        raise ConfigError("only SGD with lazy noise can be recorded.")
    # Products of both precisions round what clipping has bounded.
    settings = dataclasses.replace(settings, clip_slack=_PRODUCT_SLACK)
    step = DeviceStep(
        model,
        settings,
        phase.optimizer,
        rng=context.rng,
        max_reads=sampler.max_batch_size * len(plan.shape.features),
        max_steps=context.block_size(sampler.steps),
        products=context.products.dtype,
    )
    return GraphEngine(
        examples, sampler, step, settings=settings, rng=context.rng, device=context.device
    )
