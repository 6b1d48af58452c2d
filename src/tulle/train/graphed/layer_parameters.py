"""All parameters of a model but its tables, side by side in one piece of memory.

One kernel then updates them all.
"""

from collections.abc import Mapping

from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.graphed.device_keys import KeyHolder, device_key
from tulle.train.graphed.random_ops import fill_normals
from tulle.train.graphed.step_ops import DenseRule, update_weights


class LayerParameters(KeyHolder):
    """Parameters that get their noise in every step."""

    def __init__(
        self, parameters: Mapping[str, Tensor], rule: DenseRule, *, rng: NoiseSource
    ) -> None:
        """Moves the parameters; the tensors stay the same objects with the same values."""
        if not parameters:
            raise ConfigError("no parameter besides tables is trained; train the common tower too.")
        first = next(iter(parameters.values()))
        size = sum(values.numel() for values in parameters.values())
        self._rule = rule
        self._weights, self._mean, self._sums, self._noise = (
            first.new_zeros(size) for _ in range(4)
        )
        self._slots: dict[str, Tensor] = {}
        self.means: dict[str, Tensor] = {}
        """The momentum of each parameter; a view."""
        start = 0
        for name, values in parameters.items():
            some = slice(start, start + values.numel())
            start = some.stop
            home = self._weights[some].view(values.shape)
            home.copy_(values)
            values.set_(home.untyped_storage(), home.storage_offset(), home.shape, home.stride())
            self._slots[name] = self._sums[some].view(values.shape)
            self.means[name] = self._mean[some].view(values.shape)
        self._key = device_key(rng, first.device)

    def draw_noise(self, draw: Tensor) -> None:
        """Draws the normals of a step.

        Args:
          draw: [1]: the number of the step, which no other step of the process has.
        """
        if self._rule.noise_stddev > 0:
            fill_normals(self._noise, key=self._key, draw=draw)

    def update(self, sums: Mapping[str, Tensor], rate: Tensor) -> None:
        """Takes a step with the sums of clipped gradients, one for each parameter."""
        for name, slot in self._slots.items():
            slot.copy_(sums[name])
        update_weights(
            self._weights, self._mean, self._sums, self._noise, rate=rate, rule=self._rule
        )
