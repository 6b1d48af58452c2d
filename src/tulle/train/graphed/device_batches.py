"""Truncated Poisson batches that are drawn on the device, without waiting for it.

The distance from one sampled row to the next is geometric, so the coins of all rows cost
what the sampled ones cost. A fixed number of distances is drawn, so many that they reach
past the last row but for a chance below 1e-30. If more rows come than fit, those with the
smallest of independent random numbers stay, which is a uniform subset.

Distances are float64 logarithms of 64 random bits: the chance of a row differs from the one
asked for by less than 1e-9 of it. Rows are drawn with a chance that is smaller by as much,
so that the accounted one bounds it.
"""

import math

import torch
from torch import Tensor

from tulle.data.samplers.bernoulli_rows import skip_scale
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.graphed.device_keys import KeyHolder, device_key, uniforms
from tulle.train.graphed.random_ops import words

_CHANCE_ERROR = 1e-9
_DEVIATIONS = 13
_LAST = torch.iinfo(torch.int64).max


class DeviceBatches(KeyHolder):
    """Draws the batches of a truncated Poisson sampler.

    Privacy:
      As `TruncatedPoisson.batches`: same law, each batch used in one step, indices stay on
      the device. Relies on: the key staying secret.
    """

    def __init__(
        self, sampler: TruncatedPoisson, *, rng: NoiseSource, device: torch.device
    ) -> None:
        if sampler.sampling_prob >= 1:
            raise ConfigError(
                "sampling_prob=1 takes every row in every step; draw such batches on the CPU."
            )
        self._sampler = sampler
        self._scale = skip_scale(sampler.sampling_prob * (1 - _CHANCE_ERROR))
        expected = sampler.expected_size
        room = math.ceil(expected + _DEVIATIONS * math.sqrt(expected)) + 64
        self._num_gaps = max(room, sampler.max_batch_size)
        self._key = device_key(rng, device)
        self._num_drawn = torch.zeros(1, dtype=torch.int64, device=device)

    def draw(self, num_batches: int) -> tuple[Tensor, Tensor]:
        """The next batches.

        Returns:
          [batches, max_batch_size]: rows, in any order; and their weights, 1 for a row of
          the batch and 0 for padding, which is row 0.
        """
        random = words(self._key, self._num_drawn, num_batches, self._num_gaps)
        self._num_drawn += num_batches
        rows = self._rows(random)
        is_row = rows < self._sampler.num_rows
        # 62 bits of two words that the gaps have not used up.
        tickets = (random[:, :, 2] << 30) ^ random[:, :, 3]
        tickets = torch.where(is_row, tickets, _LAST)
        order = tickets.argsort(dim=1)[:, : self._sampler.max_batch_size]
        chosen, weights = rows.gather(1, order), is_row.gather(1, order)
        return torch.where(weights, chosen, 0), weights.float()

    def _rows(self, random: Tensor) -> Tensor:
        uniform = uniforms(random[:, :, 0], random[:, :, 1])
        gaps = (uniform.log() * -self._scale).floor().clamp_(max=self._sampler.num_rows)
        return torch.cumsum(gaps.long() + 1, dim=1) - 1
