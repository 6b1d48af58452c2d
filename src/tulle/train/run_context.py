"""What all phases of one run share: device, randomness, journal, and who watches."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.errors import RunInterruptedError
from tulle.mechanisms.entropy import NoiseSource
from tulle.runs.interruption import StopRequest
from tulle.train.banded.banded_noise import NoiseMemory
from tulle.train.distributed.processes import Processes
from tulle.train.graphed.products import Products
from tulle.train.journal import Journal, SavedState
from tulle.train.models.tower_model import TowerModel
from tulle.train.private_updates import NoisePlacement
from tulle.train.progress import Progress, Watch

_MODEL, _OPTIMIZER = "model/", "optimizer/"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunContext:
    """The surroundings of a run. None of it changes what is computed or what it costs."""

    device: torch.device
    rng: NoiseSource
    """Sensitive: never log or save its state."""
    journal: Journal
    stop: StopRequest
    watch: Watch | None = None
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: twenty in a phase."""
    noise_placement: NoisePlacement = NoisePlacement.AUTO
    products: Products = Products.HALF
    """Of steps that stay on a GPU."""
    noise_memory: NoiseMemory = NoiseMemory.AUTO
    processes: Processes | None = None
    """Those that take private steps together; None: this one alone."""

    def block_size(self, num_steps: int) -> int:
        """Steps between checkpoints of a phase."""
        return self.checkpoint_every or max(1, -(-num_steps // 20))

    def report(self, progress: Progress) -> None:
        """Tells who watches."""
        if self.watch is not None:
            self.watch(progress)

    def interrupt(self, phase: str, step: int) -> None:
        """Ends the run after its state was kept."""
        raise RunInterruptedError(
            f"stopped at step {step} of phase {phase!r} as asked; "
            "run the same command with --resume to go on."
        )


def pack(
    model: TowerModel, optimizer_state: Mapping[str, Tensor], more: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Weights and optimizer state under names of their own."""
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
