"""What a follower does: takes part in the private steps of the leader's run, until told to stop.

It has no run folder, charges no ledger and writes nothing.
"""

import torch

from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import ConfigError, RunStateError
from tulle.runs.interruption import StopRequest, stop_signals
from tulle.train.devices import find_device
from tulle.train.distributed.messages import Kind, Message, failing_together, hear
from tulle.train.distributed.opening import Opening
from tulle.train.distributed.processes import LEADER, Processes
from tulle.train.distributed.rank_steps import RankSteps
from tulle.train.examples import ExampleSet
from tulle.train.journal import MemoryJournal
from tulle.train.methods.private_steps import tower_method
from tulle.train.private_training import step_settings
from tulle.train.run_context import RunContext


def follow_fit(
    data: ExampleSet | PreparedDataset, processes: Processes, *, device: str = "cpu"
) -> None:
    """Takes part in the `fit` that the process of rank 0 runs; returns when that is over.

    SIGTERM and SIGINT are passed on: the leader then stops the run at a whole step.

    Args:
      data: The same training rows as the leader's.
      processes: Of the run.
      device: `cpu` or `cuda`.

    Privacy:
      As `fit`. What this process holds in memory is raw or not yet private; none of it
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
        if message.kind is Kind.STOP:
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
    if message.kind is not Kind.OPEN:
        raise RunStateError(f"the leader began with {message.kind.name}; begin the run anew.")
    opening = Opening.of_message(message)
    plan = opening.plan
    towers = tower_method(plan)
    model = towers.model.build(plan.shape.features, seed=towers.initial_seed, device=device)
    context = RunContext(
        device=device,
        rng=opening.rng_of(processes.rank),
        journal=MemoryJournal(),
        stop=stop,
        noise_placement=opening.placement,
        processes=processes,
    )
    return RankSteps(model, opening.examples_of(data), plan, step_settings(plan), context)


def _obeyed(message: Message, steps: RankSteps) -> bool:
    """Does what the leader says; False if that was to stop."""
    if message.kind is Kind.SHARE:
        steps.share(int(message.number))
    elif message.kind is Kind.TAKE:
        steps.take(message.number)
    elif message.kind is Kind.STATE:
        steps.state()
    elif message.kind is not Kind.STOP:
        raise RunStateError(f"the leader said {message.kind.name} twice; begin the run anew.")
    return message.kind is not Kind.STOP
