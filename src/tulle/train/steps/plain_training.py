"""Ordinary training: on public features with randomized labels, or of a baseline.

On randomized labels it works on released data alone, so its losses, checkpoints and
early stopping cost nothing.
"""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.data.samplers.shuffled import ShuffledBatches
from tulle.data.splits import split_at_random
from tulle.errors import RunStateError
from tulle.train.examples import ExampleSet
from tulle.train.losses import Loss, ReportLoss, loss_of_batch
from tulle.train.models.batches import batch_source, mean_loss
from tulle.train.models.contributions import Gradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.run_context import Progress, SpeedMeter
from tulle.train.settings.models import TOWERS
from tulle.train.settings.phases import PlainPhase
from tulle.train.steps.private_step import largest_weight
from tulle.train.steps.step_context import (
    SavedState,
    SmoothLoss,
    StepContext,
    pack,
    unpack_model,
    unpack_optimizer,
)

_BEST = "best/"
_RECORDS_PER_PHASE = 100  # Enough points for a curve, however many steps there are.


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainTask:
    """What is trained on what kind of labels."""

    name: str
    """Name of the phase in checkpoints and records."""
    phase: PlainPhase
    loss: Loss | ReportLoss
    order_seed: int
    """Picks the order of the rows."""
    epsilon: float | None
    """What the labels cost; None for a baseline."""


def train_plain(
    model: TowerModel, examples: ExampleSet, task: PlainTask, context: StepContext
) -> None:
    """Trains a model in place; goes on from the journal's checkpoint if it is of this phase.

    Args:
      model: The model, which is trained in place.
      examples: Rows to train on, some of which may be held out for early stopping.
      task: Settings of the phase and its loss.
      context: Device, journal and requests to stop.

    Privacy:
      None of its own: the model becomes a function of the rows and labels it is given.
    """
    _PlainTraining(model, examples, task, context).run()


class _PlainTraining:
    def __init__(
        self, model: TowerModel, examples: ExampleSet, task: PlainTask, context: StepContext
    ) -> None:
        self._model, self._task, self._context = model, task, context
        trained, self._held_out = _hold_out(examples, task)
        self._num_rows = trained.num_rows
        self._source = batch_source(trained, context.device)
        self._num_steps = task.phase.num_steps(self._num_rows)
        self._optimizer = ParameterUpdates(model.parameters, task.phase.optimizer)
        self._stopping = _Stopping(task)
        self._smooth, self._meter = SmoothLoss(), SpeedMeter()

    def run(self) -> None:
        step = self._resume()
        block = self._context.block_size(self._num_steps)
        per_epoch = math.ceil(self._num_rows / self._batch_size)
        for batch in self._batches(step):
            loss = self._step(batch, step)
            step += 1
            self._watch(step, loss)
            is_over = step % per_epoch == 0 and self._epoch_ends()
            if is_over or step % block == 0 or step == self._num_steps:
                # A phase that ended early is saved as whole, or a resumed run would train on.
                self._save(self._num_steps if is_over else step)
            if is_over:
                break
            if self._context.stop.requested and step < self._num_steps:
                self._save(step)
                self._context.interrupt(self._task.name, step)
        self._stopping.restore_best(self._model)

    @property
    def _batch_size(self) -> int:
        return min(self._task.phase.batch_size, self._num_rows)

    def _batches(self, first_step: int) -> Iterator[Batch]:
        order = ShuffledBatches(
            num_rows=self._num_rows,
            batch_size=self._batch_size,
            epochs=math.ceil(self._task.phase.epochs),
            order_seed=self._task.order_seed,
        )
        batches = order.batches(self._context.rng, first_step=first_step)
        return itertools.islice(batches, self._num_steps - first_step)

    def _step(self, batch: Batch, step: int) -> Tensor:
        rows = self._source.batch(batch.indices)
        if rows.labels is None:
            raise RunStateError("there are no labels to train on.")
        weights = torch.from_numpy(batch.weights).to(self._context.device)
        weights = weights / weights.sum()  # The drawn size: batches are no secret here.
        forward = self._model.forward(rows.public_ids, rows.sensitive_ids)
        loss = loss_of_batch(self._task.loss, rows)
        losses = loss.values(forward.logits, rows.labels)
        logit_grads = loss.gradients(forward.logits, rows.labels)
        gradients: list[Gradient] = []
        for contribution in forward.backward(logit_grads, towers=TOWERS):
            gradients += contribution.weighted_sum(weights)
        phase = self._task.phase
        factor = phase.schedule.rate_factor(step, self._num_steps)
        self._optimizer.update(gradients, rate=phase.optimizer.learning_rate * factor)
        return (losses * weights).sum()

    def _watch(self, step: int, loss: Tensor) -> None:
        every = max(1, self._num_steps // _RECORDS_PER_PHASE)
        speed = self._meter.add(self._batch_size)
        if step % every and step != self._num_steps:
            return
        value = float(loss)
        if not math.isfinite(value):
            raise RunStateError(
                f"the loss is no number after step {step} of phase {self._task.name!r}; lower "
                "the learning rate, and with debiased labels set max_logit or use the forward "
                "correction."
            )
        smooth = self._smooth.add(value)
        self._context.journal.record(
            {"kind": "step", "phase": self._task.name, "step": step, "loss": smooth}
        )
        self._context.report(
            Progress(
                phase=self._task.name,
                step=step,
                num_steps=self._num_steps,
                examples_per_second=speed,
                loss=smooth,
                epsilon=self._task.epsilon,
            )
        )

    def _epoch_ends(self) -> bool:
        """True if the phase should end early."""
        if self._held_out is None:
            return False
        loss = mean_loss(self._model, self._held_out, self._task.loss, self._context.device)
        return self._stopping.note(loss, self._model)

    def _save(self, step: int) -> None:
        if not math.isfinite(largest_weight(self._model.parameters.values())):
            raise RunStateError(
                f"training diverged: a weight is no number after step {step} of phase "
                f"{self._task.name!r}; lower the learning rate."
            )
        stopping = self._stopping
        self._context.journal.save(
            SavedState(
                phase=self._task.name,
                step=step,
                tensors=pack(self._model, self._optimizer.state(), stopping.best),
                facts=stopping.facts(),
            )
        )

    def _resume(self) -> int:
        state = self._context.journal.latest()
        if state is None or state.phase != self._task.name:
            return 0
        unpack_model(self._model, state)
        self._optimizer.load_state(unpack_optimizer(state, self._context.device))
        self._stopping.load(state, self._context.device)
        return state.step


class _Stopping:
    """Remembers the best weights and how long they have been the best."""

    def __init__(self, task: PlainTask) -> None:
        stopping = task.phase.early_stopping
        self._patience = math.inf if stopping is None else stopping.patience
        self._best_loss = math.inf
        self._epochs_since = 0
        self.best: dict[str, Tensor] = {}

    def note(self, loss: float, model: TowerModel) -> bool:
        """Takes in the loss of an epoch; True if it is time to stop."""
        if loss < self._best_loss:
            self._best_loss, self._epochs_since = loss, 0
            self.best = {f"{_BEST}{n}": values.clone() for n, values in model.parameters.items()}
        else:
            self._epochs_since += 1
        return self._epochs_since >= self._patience

    def restore_best(self, model: TowerModel) -> None:
        for name, values in self.best.items():
            model.parameters[name.removeprefix(_BEST)].copy_(values)

    def facts(self) -> dict[str, float | int | None]:
        loss = self._best_loss if math.isfinite(self._best_loss) else None
        return {"best_loss": loss, "epochs_since_best": self._epochs_since}

    def load(self, state: SavedState, device: torch.device) -> None:
        loss, epochs = state.facts["best_loss"], state.facts["epochs_since_best"]
        self._best_loss = math.inf if loss is None else float(loss)
        self._epochs_since = int(epochs or 0)
        self.best = {
            name: values.to(device)
            for name, values in state.tensors.items()
            if name.startswith(_BEST)
        }


def _hold_out(examples: ExampleSet, task: PlainTask) -> tuple[ExampleSet, ExampleSet | None]:
    stopping = task.phase.early_stopping
    if stopping is None:
        return examples, None
    # The same split in a run that goes on: rows that are looked at must never have been trained on.
    key = hashlib.sha256(f"early stopping {task.order_seed}".encode()).digest()
    share = stopping.validation_share
    kept, held = split_at_random(examples.num_rows, fractions=(1 - share, share), key=key)
    if len(held) == 0 or len(kept) == 0:
        raise RunStateError(
            f"validation_share={share} leaves no rows to train or to look at; use more rows, or "
            "no early stopping."
        )
    return examples.select(kept), examples.select(held)
