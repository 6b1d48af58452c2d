"""The clock of lazy rows on a device, and what every number of missed steps does to a row.

The same numbers as in lazy/age_table.py, kept so that a step can be recorded once and
replayed: the clock is a number on the device, and entries lie by the step a row was last
exact at, not by its age. Every step adds what it adds to each entry, from terms that are
never negative, so nothing cancels.
"""

import math

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.train.settings.optimizers import check_memory, check_weight_decay
from tulle.train.steps.gpu.row_ops import end_step

_FORGOTTEN = 1e-18


class DeviceAges:
    """Moments of missed steps; see `AgeTable` for what they mean."""

    def __init__(
        self, *, momentum: float, weight_decay: float, max_steps: int, device: torch.device
    ) -> None:
        """Counts at most `max_steps` between two calls of `reset`."""
        check_memory("momentum", momentum)
        check_weight_decay(weight_decay)
        check_count("max_steps", max_steps)
        self.momentum, self.weight_decay, self.max_steps = momentum, weight_decay, max_steps
        # From this age on, memory is 0 and what depends on it changes no more.
        self.horizon = math.ceil(math.log(_FORGOTTEN) / math.log(momentum)) if momentum else 1
        powers = torch.pow(momentum, torch.arange(self.horizon + 1, dtype=torch.float64))
        powers[self.horizon :] = 0
        squares = powers.square()
        squares[0] = 0
        self.memory = powers.to(device)
        """Share of the momentum that is left, by age."""
        self.momentum_variance = torch.cumsum(squares, 0).to(device)
        """Variance of the momentum, by age."""
        self.decay = torch.full((1,), weight_decay, dtype=torch.float64, device=device)
        """The same on the device: kernels would take a number in single precision."""
        self.now = torch.zeros(1, dtype=torch.int32, device=device)
        zeros = torch.zeros(max_steps + 1, dtype=torch.float64, device=device)
        self.drift, self.weight_variance, self.covariance = zeros, zeros.clone(), zeros.clone()
        self.kept = torch.ones_like(zeros)
        self._num_ended = 0

    def end_step(self, rate: Tensor) -> None:
        """The present step is over; all rows are one step older.

        Args:
          rate: [1]: the learning rate of the step that ends, on the device.
        """
        end_step(self, rate)

    def expect(self, num_steps: int) -> None:
        """Refuses steps that there is no room for; steps themselves cannot be counted here."""
        if self._num_ended + num_steps > self.max_steps:
            raise ConfigError(
                f"{self._num_ended + num_steps} steps without a flush must be <= max_steps="
                f"{self.max_steps}; flush all rows in between."
            )
        self._num_ended += num_steps

    def reset(self) -> None:
        """Back to step 0, where all rows must be exact: right after they were flushed."""
        for values in (self.now, self.drift, self.weight_variance, self.covariance):
            values.zero_()
        self.kept.fill_(1.0)
        self._num_ended = 0
