"""What private and plain steps run in: device, randomness, journal, and choices of speed.

None of it changes what is computed or what it costs. The journal keeps randomized labels,
checkpoints and blocks of steps: with a folder all of it outlives the process; without one the run
cannot be resumed, and the same calls keep nothing.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import Scalar
from tulle.runs.folder import RunFolder
from tulle.runs.records import ResumePoint, StepBlock, StepBlocks
from tulle.train.models.tower_model import TowerModel
from tulle.train.run_context import NoiseMemory, NoisePlacement, Products, RunContext
from tulle.train.steps.processes.processes import Processes

_MODEL, _OPTIMIZER = "model/", "optimizer/"
_LABELS, _LABELS_KEPT = "randomized_labels", "labels kept"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SavedState:
    """Weights and optimizer state at a step of a phase."""

    phase: str
    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Scalar]


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
        # The array before its record: after a crash in between, labels are not drawn again.
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


Journal = MemoryJournal | FolderJournal
"""Store of what a run must not lose or do twice."""


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


_KINDS = ("cpu", "cuda")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Surroundings(RunContext):
    """The surroundings of private steps. None of it changes what is computed or what it costs."""

    device: torch.device
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: twenty in a phase."""
    noise_placement: NoisePlacement = NoisePlacement.AUTO
    products: Products = Products.HALF
    """Precision of the matrix products of steps that stay on a GPU."""
    noise_memory: NoiseMemory = NoiseMemory.AUTO
    processes: Processes | None = None
    """Processes that take private steps together; None: this one alone."""

    def block_size(self, num_steps: int) -> int:
        """Steps between checkpoints of a phase."""
        # A block that a crash cuts short is charged whole: of twenty, that is 5% of the steps.
        return self.checkpoint_every or max(1, -(-num_steps // 20))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepContext(Surroundings):
    """The surroundings of the phases of one run, with what it must not lose or do twice."""

    journal: Journal


def products_dtype(products: Products) -> torch.dtype:
    """The type of the inputs of products in the memory of a GPU."""
    return torch.bfloat16 if products is Products.HALF else torch.float32


def find_device(name: str) -> torch.device:
    """Finds the device of this name, before anything is allocated on it.

    Raises:
      ConfigError: There is none, or training does not know its kind.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise _unknown(name) from None
    # torch stores the number of a device in one byte: its cuda:256 is cuda:0.
    if device.type not in _KINDS or str(device) != name:
        raise _unknown(name)
    if device.type == "cuda":
        _check_gpu(device)
    return device


def count_gpus() -> int:
    """Number of GPUs that torch can use here."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _check_gpu(device: torch.device) -> None:
    num_gpus = count_gpus()
    if num_gpus == 0:
        raise ConfigError(f"device='{device}' is not there: torch finds no GPU; use 'cpu'.")
    if device.index is not None and device.index >= num_gpus:
        names = "only 'cuda:0'" if num_gpus == 1 else f"'cuda:0' to 'cuda:{num_gpus - 1}'"
        raise ConfigError(f"device='{device}' is not there: torch finds {names}; use one of these.")


def _unknown(name: object) -> ConfigError:
    return ConfigError(f"device={name!r} is unknown; use 'cpu', 'cuda' or e.g. 'cuda:1'.")


class SmoothLoss:
    """A running mean of losses."""

    def __init__(self, decay: float = 0.95) -> None:
        self._decay = decay
        self._sum = self._weight = 0.0

    def add(self, loss: float) -> float:
        """The mean after one more."""
        self._sum = self._decay * self._sum + (1 - self._decay) * loss
        self._weight = self._decay * self._weight + (1 - self._decay)
        return self._sum / self._weight  # Takes off the pull towards 0 of the start.
