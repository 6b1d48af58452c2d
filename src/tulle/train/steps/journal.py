"""What a run keeps while it goes on: randomized labels, checkpoints, blocks of steps.

With a folder all of it outlives the process. Without one the run cannot be resumed,
and the same calls keep nothing.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.errors import RunStateError
from tulle.privacy.fields import Scalar
from tulle.runs.folder import RunFolder
from tulle.runs.records import ResumePoint, StepBlock, StepBlocks
from tulle.train.models.tower_model import TowerModel

_MODEL, _OPTIMIZER = "model/", "optimizer/"
_LABELS, _LABELS_KEPT = "randomized_labels", "labels kept"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SavedState:
    """Weights and optimizer state at a step of a phase."""

    phase: str
    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Scalar]


class Journal(Protocol):
    """Store of what a run must not lose or do twice."""

    def labels(self, draw: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """The randomized labels: those drawn before, or else fresh ones, kept first."""
        ...

    def latest(self) -> SavedState | None:
        """The newest checkpoint."""
        ...

    def save(self, state: SavedState) -> None:
        """Keeps a checkpoint."""
        ...

    def resume_point(self, blocks: StepBlocks, checkpoint_step: int) -> ResumePoint:
        """Step from which private steps go on."""
        ...

    def begin(self, block: StepBlock) -> None:
        """Charges a block of private steps, before the first of them."""
        ...

    def end(self, block: StepBlock, step: int) -> None:
        """Notes how far a block came, after its checkpoint."""
        ...

    def record(self, record: Mapping[str, Scalar]) -> None:
        """Adds a line that may be shown."""
        ...


class MemoryJournal:
    """Keeps nothing: for runs without a folder."""

    def labels(self, draw: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Fresh labels."""
        return draw()

    def latest(self) -> SavedState | None:
        """There is none."""
        return None

    def save(self, state: SavedState) -> None:
        """Does nothing."""

    def resume_point(self, blocks: StepBlocks, checkpoint_step: int) -> ResumePoint:
        """The beginning."""
        return blocks.resume_point((), checkpoint_step=checkpoint_step)

    def begin(self, block: StepBlock) -> None:
        """Does nothing."""

    def end(self, block: StepBlock, step: int) -> None:
        """Does nothing."""

    def record(self, record: Mapping[str, Scalar]) -> None:
        """Does nothing."""


class FolderJournal:
    """Keeps everything in the folder of a run."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._checkpoints = folder.checkpoints()
        self._records = folder.records

    def labels(self, draw: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """The randomized labels: those drawn before, or else fresh ones, kept first.

        Privacy:
          A second draw would cost a second time, so what is on disk is never drawn again.
        """
        is_kept = self._folder.has_array(_LABELS)
        was_kept = any(record.get("kind") == _LABELS_KEPT for record in self._records.read())
        if was_kept and not is_kept:
            raise RunStateError(
                f"{self._folder.path.name}/{_LABELS}.safetensors is missing, and labels are never "
                "randomized twice; restore it from a copy of this run, or begin a run of another "
                "name."
            )
        if not is_kept:
            self._folder.write_array(_LABELS, draw())
        if not was_kept:
            self._records.append({"kind": _LABELS_KEPT}, durable=True)
        return self._folder.read_array(_LABELS)

    def latest(self) -> SavedState | None:
        """The newest checkpoint, with every byte compared."""
        found = self._checkpoints.latest()
        if found is None:
            return None
        tensors = {name: torch.from_numpy(array) for name, array in found.tensors.items()}
        return SavedState(phase=found.phase, step=found.step, tensors=tensors, facts=found.facts)

    def save(self, state: SavedState) -> None:
        """Keeps a checkpoint; the newest two stay."""
        arrays: dict[str, NDArray[Any]] = {
            name: tensor.detach().cpu().numpy() for name, tensor in state.tensors.items()
        }
        self._checkpoints.save(state.step, state.phase, arrays, state.facts)

    def resume_point(self, blocks: StepBlocks, checkpoint_step: int) -> ResumePoint:
        """Step from which private steps go on.

        A block that began and did not end is not repeated.
        """
        point = blocks.resume_point(self._records.read(), checkpoint_step=checkpoint_step)
        if point.missing_end is not None:
            self._records.append(point.missing_end, durable=True)
        return point

    def begin(self, block: StepBlock) -> None:
        """Charges a block of private steps, safely on disk."""
        self._records.append(block.begun_record(), durable=True)

    def end(self, block: StepBlock, step: int) -> None:
        """Notes how far a block came, safely on disk."""
        self._records.append(block.ended_record(step), durable=True)

    def record(self, record: Mapping[str, Scalar]) -> None:
        """Adds a line to records.jsonl."""
        self._records.append(record)


def pack(
    model: TowerModel, optimizer_state: Mapping[str, Tensor], more: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Weights and optimizer state in one dictionary, under names of their own.

    Args:
      model: The model whose weights are saved.
      optimizer_state: State of the optimizer, by name.
      more: Further tensors by name; None for none.
    """
    packed = {f"{_MODEL}{name}": values for name, values in model.parameters.items()}
    packed |= {f"{_OPTIMIZER}{name}": values for name, values in optimizer_state.items()}
    return packed | (more or {})


def unpack_model(model: TowerModel, state: SavedState) -> None:
    """Puts saved weights into a model."""
    for name, values in model.parameters.items():
        values.copy_(state.tensors[f"{_MODEL}{name}"])


def unpack_optimizer(state: SavedState, device: torch.device) -> dict[str, Tensor]:
    """The optimizer's part of a saved state."""
    return {
        name.removeprefix(_OPTIMIZER): values.to(device)
        for name, values in state.tensors.items()
        if name.startswith(_OPTIMIZER)
    }
