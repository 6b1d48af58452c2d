"""Where a model is trained: the CPU, or a GPU that torch finds."""

import torch

from tulle.errors import ConfigError

_KINDS = ("cpu", "cuda")


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
