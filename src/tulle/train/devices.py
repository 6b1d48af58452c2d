"""Where a model is trained: the CPU, or a GPU that torch finds."""

import torch

from tulle.errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device of this name.

    Raises:
      ConfigError: There is none.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r} is unknown; use 'cpu' or 'cuda'.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r} is not there: torch finds no GPU; use 'cpu'.")
    return device
