"""The private steps of a run, in blocks that are charged before they are taken.

With several processes the one that owns the run takes them here, and the others follow: a follower
has no run folder, charges no ledger and writes nothing.
"""

import dataclasses
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError, RunStateError
from tulle.runs.records import StepBlock, StepBlocks, StopRequest, stop_signals
from tulle.train.examples import ExampleSet
from tulle.train.methods.private_steps import steps_method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import Progress, SpeedMeter
from tulle.train.settings.models import TOWERS
from tulle.train.settings.phases import PrivatePhase, PublicTower
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.steps.places import start_rank
from tulle.train.steps.private_step import largest_weight
from tulle.train.steps.processes.processes import (
    LEADER,
    Message,
    MessageKind,
    Opening,
    Processes,
    failing_together,
    hear,
)
from tulle.train.steps.processes.shared_steps import RankSteps
from tulle.train.steps.step_context import (
    SavedState,
    SmoothLoss,
    StepContext,
    Surroundings,
    find_device,
    pack,
    unpack_model,
    unpack_optimizer,
)
from tulle.train.steps.step_settings import Monitored, StepSettings

PHASE = "private"

_LARGEST_WEIGHT = 1e4
"""Largest absolute weight that is allowed. Up to it no row of any data can overflow, and clipping
needs finite norms; beyond it training has diverged and is stopped."""
# Keeps records.jsonl small however many steps there are, with enough points for a curve.
_RECORDS_PER_PHASE = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateSteps:
    """How the private steps of a run went."""

    noise_description: str
    num_taken: int
    """Steps in the weights; all others were charged and lost to interruptions."""


def train_privately(
    model: TowerModel, examples: ExampleSet, plan: TrainPlan, context: StepContext
) -> PrivateSteps:
    """Takes the private steps of a plan, from where the journal says on.

    Args:
      model: The model, which is trained in place from its present weights or a checkpoint's.
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
    sampler, phase, noise_multiplier = _parts(plan)
    size = sampler.expected_users if isinstance(sampler, UserSampling) else sampler.expected_size
    return StepSettings(
        clip_norm=phase.clip_norm,
        noise_multiplier=noise_multiplier,
        expected_size=size,
        monitor_share=phase.monitor_share,
        towers=_private_towers(plan, phase),
        mechanism=phase.noise,
        num_steps=sampler.steps,
    )


def _private_towers(plan: TrainPlan, phase: PrivatePhase) -> frozenset[str]:
    """The towers that private steps train."""
    # FREEZE leaves the public tower as the label phase has trained it.
    is_frozen = plan.method.label_steps() is not None and phase.public_tower is PublicTower.FREEZE
    return TOWERS - {"public"} if is_frozen else TOWERS


class _PrivateTraining:
    def __init__(
        self, model: TowerModel, examples: ExampleSet, plan: TrainPlan, context: StepContext
    ) -> None:
        self._model, self._plan, self._context = model, plan, context
        self._sampler, self._phase, _ = _parts(plan)
        settings = step_settings(plan)
        self._expected_size = settings.expected_size
        self._engine = steps_method(plan).start_steps(model, examples, plan, settings, context)
        self._num_taken = 0
        self._smooth, self._meter = SmoothLoss(), SpeedMeter()

    def run(self) -> PrivateSteps:
        total = self._sampler.steps
        blocks = StepBlocks(num_steps=total, block_size=self._context.block_size(total))
        point = self._context.journal.resume_point(blocks, self._resume())
        # Before a step is charged: with weights that overflow there are no finite norms to clip.
        self._check_weights(point.next_step, self._model.parameters.values())
        self._engine.begin(point.next_step)
        for block in blocks.starting_at(point.next_step):
            # Charged before its first step is taken, so that a crash can only count too much.
            self._context.journal.begin(block)
            step = self._take(block)
            # Before the block ends: one that is recorded as ended has its weights on disk.
            self._save(step)
            self._context.journal.end(block, step)
            if self._context.stop.requested and step < total:
                self._context.interrupt(PHASE, step)
        return PrivateSteps(
            noise_description=self._engine.noise_description, num_taken=self._num_taken
        )

    def _take(self, block: StepBlock) -> int:
        """The steps of a block; ends early if somebody asks. Returns the next step."""
        step = block.start
        while step < block.end:
            end = min(step + self._engine.steps_at_a_time, block.end)
            monitored = self._engine.take([self._rate(some) for some in range(step, end)])
            self._num_taken += end - step
            self._check_weights(end, self._engine.settled)
            for done, seen in enumerate(monitored, start=step + 1):
                self._watch(done, seen)
            step = end
            if self._context.stop.requested:
                return step
        return block.end

    def _rate(self, step: int) -> float:
        factor = self._phase.schedule.rate_factor(step, self._sampler.steps)
        return self._phase.optimizer.learning_rate * factor

    def _watch(self, step: int, monitored: Monitored | None) -> None:
        total = self._sampler.steps
        speed = self._meter.add(self._expected_size)
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
        # `state` settles the weights. Before it rows of tables may lack noise, and must neither be
        # judged nor saved.
        tensors = pack(self._model, self._engine.state())
        self._check_weights(step, self._model.parameters.values())
        self._context.journal.save(SavedState(phase=PHASE, step=step, tensors=tensors, facts={}))

    def _resume(self) -> int:
        """Loads the checkpoint of this phase and returns its step; 0 if there is none."""
        state = self._context.journal.latest()
        if state is None or state.phase != PHASE:
            return 0
        unpack_model(self._model, state)
        optimizer_state = unpack_optimizer(state, self._context.device)
        self._engine.load_state(optimizer_state)
        self._num_taken = int(optimizer_state["num_steps"])
        return state.step


def _parts(plan: TrainPlan) -> tuple[StepSampler, PrivatePhase, float]:
    sampler, phase, noise_multiplier = plan.sampler, plan.private_phase, plan.noise_multiplier
    if sampler is None or phase is None or noise_multiplier is None:
        raise ConfigError(f"plan {plan.privacy.name!r} has no private steps.")
    return sampler, phase, noise_multiplier


def follow_fit(
    data: ExampleSet | PreparedDataset, processes: Processes, *, device: str = "cpu"
) -> None:
    """Takes part in the `fit` that the process of rank 0 runs; returns when that is over.

    SIGTERM and SIGINT are passed on: the leader then stops the run at a whole step.

    Args:
      data: The same training rows as the leader's.
      processes: The processes of the run.
      device: `cpu` or `cuda`.

    Privacy:
      The same as for `fit`. What this process holds in memory is raw or not yet private; none of it
      leaves the processes of the run.

    Raises:
      ConfigError: This process leads, or there is no such device.
      DataError: The rows are not those of the leader.
      RunStateError: Another process failed, or is gone.
    """
    if processes.rank == LEADER:
        raise ConfigError("rank 0 leads: it calls fit(…, options=RunOptions(processes=…)).")
    with stop_signals() as stop, failing_together(processes):
        examples = ExampleSet.of(data) if isinstance(data, PreparedDataset) else data
        message = hear(processes)
        if message.kind is MessageKind.STOP:
            return
        steps = _opened(message, examples, processes, stop, find_device(device))
        while _obeyed(hear(processes), steps):
            pass


def _opened(
    message: Message,
    data: ExampleSet,
    processes: Processes,
    stop: StopRequest,
    device: torch.device,
) -> RankSteps:
    if message.kind is not MessageKind.OPEN:
        raise RunStateError(f"the leader began with {message.kind.name}; begin the run anew.")
    opening = Opening.of_message(message)
    plan = TrainPlan.from_json(opening.plan)
    method, (sampler, phase, _) = steps_method(plan), _parts(plan)
    model = build_model(method.model, plan.shape.features, seed=method.initial_seed, device=device)
    around = Surroundings(
        device=device,
        rng=opening.rng_of(processes.rank),
        stop=stop,
        noise_placement=opening.placement,
        processes=processes,
    )
    examples, optimizer = opening.examples_of(data), phase.optimizer
    return start_rank(model, examples, sampler, optimizer, step_settings(plan), around)


def _obeyed(message: Message, steps: RankSteps) -> bool:
    """Does what the leader says; False if that was to stop."""
    if message.kind is MessageKind.SHARE:
        steps.share(int(message.number))
    elif message.kind is MessageKind.TAKE:
        steps.take(message.number)
    elif message.kind is MessageKind.STATE:
        steps.state()
    elif message.kind is not MessageKind.STOP:
        raise RunStateError(f"the leader said {message.kind.name} twice; begin the run anew.")
    return message.kind is not MessageKind.STOP
