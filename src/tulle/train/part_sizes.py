"""How many rows of a batch go through a model at once: changes speed and memory alone."""

import torch

from tulle.train.models.tower_model import TowerModel

# Measured on one core: what layers keep of so many numbers stays in the cache, and the
# allocator has the memory at hand. Fresh pages in every step would cost a tenth of it.
_NUMBERS_ON_CPU = 1 << 23
_FEWEST_ROWS = 256
_MOST_ROWS = 16384


def rows_that_suit(model: TowerModel, device: torch.device) -> int:
    """Rows in one go. Models without layers sum rows as they read them and take many."""
    if device.type != "cpu":
        return _MOST_ROWS
    tables = model.tables
    weights = [values for name, values in model.parameters.items() if name not in tables]
    # Inputs and outputs of each layer, and with them their gradients.
    per_row = sum(sum(values.shape) for values in weights if values.dim() == 2)
    fitting = _NUMBERS_ON_CPU // max(per_row, 1)
    power_of_two = 1 << max(fitting.bit_length() - 1, 0)
    return min(max(power_of_two, _FEWEST_ROWS), _MOST_ROWS)
