"""The private steps of a run, in blocks that are charged before they are taken."""

import dataclasses
import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.data.samplers.user_sampling import UserBatch, UserSampling, group_rows
from tulle.errors import ConfigError, RunStateError
from tulle.runs.blocks import Block, StepBlocks
from tulle.train.batch_source import batch_source
from tulle.train.examples import ExampleSet
from tulle.train.journal import SavedState
from tulle.train.models.tower_model import TowerModel
from tulle.train.monitor import Monitored
from tulle.train.noise import TrainingNoise
from tulle.train.phases import PrivatePhase
from tulle.train.private_step import BatchUnits, StepSettings, largest_weight
from tulle.train.private_updates import start_updates
from tulle.train.progress import Progress, SmoothLoss, SpeedMeter
from tulle.train.run_context import RunContext, pack, unpack_model, unpack_optimizer
from tulle.train.train_plan import StepSampler, TrainPlan

PHASE = "private"

_LARGEST_WEIGHT = 1e4
"""With weights up to this, no row of any data can overflow: clipping needs finite norms."""
_RECORDS_PER_PHASE = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateSteps:
    """How the private steps of a run went."""

    noise_description: str
    num_taken: int
    """Steps in the weights; all others were charged and lost to interruptions."""


def train_privately(
    model: TowerModel, examples: ExampleSet, plan: TrainPlan, context: RunContext
) -> PrivateSteps:
    """Takes the private steps of a plan, from where the journal says on.

    Args:
      model: Is trained in place; starts from its present weights, or a checkpoint's.
      examples: The rows that the plan's sampler draws from, bounded as the plan says.
      plan: Sampler, clip, noise and steps.
      context: Device, randomness, journal.

    Privacy:
      Unit, event and guarantee: those of the plan. Weights, monitor and checkpoints are
      released with their noise. Relies on: the rows are those the plan was made for.

    """
    return _PrivateTraining(model, examples, plan, context).run()


def step_settings(plan: TrainPlan) -> StepSettings:
    """What one step of a plan does."""
    phase, sampler = plan.private_phase, plan.sampler
    if phase is None or sampler is None or plan.noise_multiplier is None:
        raise ConfigError(f"plan {plan.plan.name!r} has no private steps.")
    size = sampler.expected_users if isinstance(sampler, UserSampling) else sampler.expected_size
    return StepSettings(
        clip_norm=phase.clip_norm,
        noise_multiplier=plan.noise_multiplier,
        expected_size=size,
        monitor_share=phase.monitor_share,
        towers=plan.private_towers,
    )


class _PrivateTraining:
    def __init__(
        self, model: TowerModel, examples: ExampleSet, plan: TrainPlan, context: RunContext
    ) -> None:
        self._model, self._plan, self._context = model, plan, context
        self._settings = step_settings(plan)
        self._sampler, self._phase = _parts(plan)
        self._source = batch_source(examples, context.device)
        self._units = examples.units
        self._noise = TrainingNoise(context.rng)
        self._updates = start_updates(
            model, self._settings, self._phase.optimizer, self._noise, context.noise_placement
        )
        self._num_taken = 0
        self._smooth, self._meter = SmoothLoss(), SpeedMeter()

    def run(self) -> PrivateSteps:
        total = self._sampler.steps
        blocks = StepBlocks(num_steps=total, block_size=self._context.block_size(total))
        point = self._context.journal.resume_point(blocks, self._resume())
        self._check_weights(point.next_step, self._model.parameters.values())
        batches = self._batches(point.next_step)
        for block in blocks.starting_at(point.next_step):
            self._context.journal.begin(block)
            step = self._take(block, batches)
            self._save(step)
            self._context.journal.end(block, step)
            if self._context.stop.requested and step < total:
                self._context.interrupt(PHASE, step)
        return PrivateSteps(noise_description=self._noise.description, num_taken=self._num_taken)

    def _take(self, block: Block, batches: Iterator[Batch | UserBatch]) -> int:
        """The steps of a block; ends early if somebody asks. Returns the next step."""
        for step in range(block.start, block.end):
            factor = self._phase.schedule.rate_factor(step, self._sampler.steps)
            rate = self._phase.optimizer.learning_rate * factor
            monitored = self._update(next(batches), rate)
            self._num_taken += 1
            self._check_weights(step + 1, self._updates.settled)
            self._watch(step + 1, monitored)
            if self._context.stop.requested:
                return step + 1
        return block.end

    def _update(self, batch: Batch | UserBatch, rate: float) -> Monitored | None:
        rows = self._source.batch(batch.indices)
        weights = torch.from_numpy(batch.weights).to(self._context.device)
        if isinstance(batch, Batch):
            return self._updates.take(rows, weights, None, rate)
        units = BatchUnits(
            segments=torch.from_numpy(batch.segments).to(self._context.device),
            weights=weights,
            num_segments=batch.num_segments,
        )
        return self._updates.take(rows, weights, units, rate)

    def _batches(self, first_step: int) -> Iterator[Batch | UserBatch]:
        sampler = self._sampler
        if not isinstance(sampler, UserSampling):
            return sampler.batches(self._context.rng, first_step=first_step)
        if self._units is None:
            raise ConfigError("clipped users need data with a unit column.")
        return sampler.batches(
            self._context.rng, user_rows=group_rows(self._units), first_step=first_step
        )

    def _watch(self, step: int, monitored: Monitored | None) -> None:
        total = self._sampler.steps
        speed = self._meter.add(self._settings.expected_size)
        loss = None if monitored is None else self._smooth.add(monitored.loss)
        epsilon = self._plan.epsilon_by(step)
        every = max(1, total // _RECORDS_PER_PHASE)
        if step % every == 0 or step == total:
            self._context.journal.record(
                {
                    "kind": "step",
                    "phase": PHASE,
                    "step": step,
                    "loss": loss,
                    "clipped_share": None if monitored is None else monitored.clipped_share,
                    "epsilon": epsilon,
                }
            )
        self._context.report(
            Progress(
                phase=PHASE,
                step=step,
                num_steps=total,
                examples_per_second=speed,
                loss=loss,
                epsilon=epsilon,
            )
        )

    def _check_weights(self, step: int, weights: Iterable[Tensor]) -> None:
        # These have their noise already, so stopping here tells nothing about a row.
        largest = largest_weight(weights)
        if not largest <= _LARGEST_WEIGHT:
            shown = "not a number" if math.isnan(largest) else f"above {_LARGEST_WEIGHT:g}"
            raise RunStateError(
                f"training diverged: a weight is {shown} after private step {step}; lower the "
                "learning rate or the clip norm. What was spent stays spent."
            )

    def _save(self, step: int) -> None:
        tensors = pack(self._model, self._updates.state())
        self._check_weights(step, self._model.parameters.values())
        self._context.journal.save(SavedState(phase=PHASE, step=step, tensors=tensors, facts={}))

    def _resume(self) -> int:
        """Loads the checkpoint of this phase and returns its step; 0 if there is none."""
        state = self._context.journal.latest()
        if state is None or state.phase != PHASE:
            return 0
        unpack_model(self._model, state)
        optimizer_state = unpack_optimizer(state, self._context.device)
        self._updates.load_state(optimizer_state)
        self._num_taken = int(optimizer_state["num_steps"])
        return state.step


def _parts(plan: TrainPlan) -> tuple[StepSampler, PrivatePhase]:
    if plan.sampler is None or plan.private_phase is None:
        raise ConfigError(f"plan {plan.plan.name!r} has no private steps.")
    return plan.sampler, plan.private_phase
