"""What private and plain steps run in: device, randomness, journal, and choices of speed.

None of it changes what is computed or what it costs.
"""

import dataclasses

import torch

from tulle.errors import ConfigError
from tulle.train.run_context import NoiseMemory, NoisePlacement, Products, RunContext
from tulle.train.steps.journal import Journal
from tulle.train.steps.processes.processes import Processes

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
