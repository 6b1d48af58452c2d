"""Trainings without noise by several processes, to be compared with those of one."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import CosineDecay
from tulle.train.steps.private_step import BatchUnits
from tulle.train.steps.processes.processes import Processes
from tulle.train.steps.processes.sharded import ShardedStep
from tulle.train.steps.processes.shared_steps import ReplicatedStep, SharedStep
from unit.train.steps.noiseless_updates import Trained, Training
from unit.train.steps.processes.thread_processes import run_together
from unit.train.steps.step_reference import NoNoise, step_settings

REPLICATED, SHARDED = "replicated", "sharded"


def start(training: Training, model: TowerModel, processes: Processes, way: str) -> SharedStep:
    """Fresh updates without noise."""
    steps = step_settings(
        clip_norm=0.8, towers=training.towers, rows_at_a_time=training.rows_at_a_time
    )
    sgd = SGD(learning_rate=0.4, momentum=training.momentum, weight_decay=training.weight_decay)
    if way == REPLICATED:
        return ReplicatedStep(model, steps, sgd, NoNoise(), processes)
    return ShardedStep(model, steps, sgd, NoNoise(), processes)  # type: ignore[arg-type]


def train_together(
    training: Training,
    way: str,
    size: int,
    changes: Mapping[int, str] | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> list[Trained]:
    """All steps; each process takes every size-th row or user of each batch.

    Args:
      training: What is trained.
      way: How tables are held.
      size: Number of processes.
      changes: Before these steps the run goes on from its state in another way.
      state: Where to start from, if not from the beginning.
    """
    return run_together(size, lambda mine: train_with(mine, training, way, changes, state))


def train_with(
    processes: Processes,
    training: Training,
    way: str,
    changes: Mapping[int, str] | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> Trained:
    """One process's part of a training."""
    model = training.new_model()
    updates = start(training, model, processes, way)
    if state is not None and processes.rank == 0:
        updates.load_state(state)
    updates.share()
    monitored = []
    for step, batch in enumerate(training.batches()):
        if changes is not None and step in changes:
            # A follower's tables are gone, so it gets a model as a new process does.
            kept = {name: values.clone() for name, values in updates.state().items()}
            model = model if processes.rank == 0 else training.new_model()
            updates = start(training, model, processes, changes[step])
            if processes.rank == 0:
                updates.load_state(kept)
            updates.share()
        found = take_part(training, updates, step, batch, processes)
        monitored.append(found)
    kept = {name: values.clone() for name, values in updates.state().items()}
    return Trained(dict(model.parameters), kept, monitored)  # type: ignore[arg-type]


def take_part(
    training: Training,
    updates: SharedStep,
    step: int,
    batch: ExampleBatch,
    processes: Processes,
) -> object:
    """One process's part of one step."""
    rows, units = part_of(training, batch, processes.rank, processes.size)
    weights = torch.ones(len(rows))
    if training.has_padding:
        weights[rows % 3 == 0] = 0
    part = ExampleBatch(
        public_ids=batch.public_ids[rows],
        sensitive_ids=None if batch.sensitive_ids is None else batch.sensitive_ids[rows],
        labels=None if batch.labels is None else batch.labels[rows],
    )
    rate = 0.4 * CosineDecay().rate_factor(step, training.num_steps)
    return updates.take(part, weights, units, rate)


def part_of(
    training: Training, batch: ExampleBatch, rank: int, size: int
) -> tuple[Tensor, BatchUnits | None]:
    """Rows of one process, and whose they are."""
    num_rows = len(batch.public_ids)
    if not training.user_sizes:
        return torch.arange(num_rows)[rank::size], None
    sizes = torch.tensor(training.user_sizes if num_rows else [], dtype=torch.int64)
    owners = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    rows = (owners % size == rank).nonzero().squeeze(1)
    segments = torch.div(owners[rows], size, rounding_mode="floor")
    units = BatchUnits(
        segments=segments,
        weights=1 / sizes[owners[rows]],
        num_segments=len(sizes[rank::size]),
    )
    return rows, units
