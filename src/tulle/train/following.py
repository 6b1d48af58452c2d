"""What a follower does: takes part in the private steps of the leader's run, until told to stop.

It has no run folder, charges no ledger and writes nothing.
"""

import torch

from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import ConfigError, RunStateError
from tulle.runs.records import StopRequest, stop_signals
from tulle.train.examples import ExampleSet
from tulle.train.methods.private_steps import steps_method
from tulle.train.methods.private_training import step_settings
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.models.building import build_model
from tulle.train.steps.places import start_rank
from tulle.train.steps.processes.driving import RankSteps
from tulle.train.steps.processes.messages import (
    Message,
    MessageKind,
    Opening,
    failing_together,
    hear,
)
from tulle.train.steps.processes.processes import LEADER, Processes
from tulle.train.steps.step_context import Surroundings, find_device


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
    method, sampler = steps_method(plan), plan.sampler
    if sampler is None:
        raise ConfigError(f"plan {plan.privacy.name!r} has no private steps.")
    model = build_model(method.model, plan.shape.features, seed=method.initial_seed, device=device)
    around = Surroundings(
        device=device,
        rng=opening.rng_of(processes.rank),
        stop=stop,
        noise_placement=opening.placement,
        processes=processes,
    )
    examples, optimizer = opening.examples_of(data), method.private_phase.optimizer
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
