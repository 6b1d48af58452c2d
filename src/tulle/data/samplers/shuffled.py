"""Epochs of shuffled batches, accounted without any amplification.

The usual data loader. Accounting its batches as Poisson batches understates
epsilon by a factor of ten and more (Chua et al. 2024, arXiv 2403.17673), so this
sampler claims nothing for the shuffle: its order is public.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from tulle.data.samplers.batch import Batch, padded_batch
from tulle.data.samplers.row_order import ShuffledOrder
from tulle.data.samplers.sampler_settings import (
    check_at_most,
    check_first_step,
    check_noise,
)
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event, FixedSizeSampled, Gaussian, Repeated
from tulle.privacy.fields import check_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffledBatches:
    """Settings of shuffled epochs. Every field is public information."""

    is_amplified: ClassVar[bool] = False

    num_rows: int
    batch_size: int
    epochs: int
    max_rows_per_unit: int = 1
    """Most rows that one unit owns; bound them before."""
    order_seed: int = 0
    """Seed that picks the orders. They are public: a run must keep them when it goes on."""

    def __post_init__(self) -> None:
        for name in ("num_rows", "batch_size", "epochs", "max_rows_per_unit"):
            check_count(name, getattr(self, name))
        check_count("order_seed", self.order_seed, least=0)
        for name in ("batch_size", "max_rows_per_unit"):
            check_at_most(name, getattr(self, name), "num_rows", self.num_rows)

    @property
    def batches_per_epoch(self) -> int:
        """Batches that hold every row once; the last one may be padded."""
        return -(-self.num_rows // self.batch_size)

    @property
    def steps(self) -> int:
        """Number of batches."""
        return self.epochs * self.batches_per_epoch

    @property
    def expected_size(self) -> float:
        """Rows in a batch, up to the last one of an epoch."""
        return float(self.batch_size)

    @property
    def physical_size(self) -> int:
        """Length of every batch with its padding."""
        return self.batch_size

    def event(self, noise: Event) -> Event:
        """What all steps cost: one release of `noise` an epoch, unamplified.

        The batches of an epoch share no row, and the order is fixed before and
        apart from the sensitive columns. So a replaced row changes the sum of one
        batch an epoch; what the other steps release depends on it only through
        what was released before. With several rows a unit the worst order puts
        them all into one batch, where together they move its sum that many times
        as far: k^2 in squared distance, against k for k batches.

        An epoch is a batch of fixed size that holds every row, which is refused
        under add-or-remove: another number of rows has another order altogether.
        """
        check_noise(noise)
        epoch = FixedSizeSampled(
            batch_size=self.num_rows, num_rows=self.num_rows, event=self._unit_noise(noise)
        )
        return Repeated(event=epoch, count=self.epochs)

    def batches(self, rng: NoiseSource, *, first_step: int = 0) -> Iterator[Batch]:
        """The batches from `first_step` on.

        Args:
          rng: Not used: the order is public. It is here as for every sampler.
          first_step: Steps that are done already, after an interruption.

        Privacy:
          Unit: the owner of at most `max_rows_per_unit` rows; replace or zero-out. Not
          add-or-remove: another number of rows has another order altogether. Event:
          `event(noise)`. Relies on: each batch is used in one step.
        """
        del rng
        check_first_step(first_step, self.steps)
        return self._deal(first_step)

    def _deal(self, first_step: int) -> Iterator[Batch]:
        for step in range(first_step, self.steps):
            epoch, number = divmod(step, self.batches_per_epoch)
            order = ShuffledOrder(num_rows=self.num_rows, seed=self.order_seed, number=epoch)
            start = number * self.batch_size
            positions = np.arange(start, min(start + self.batch_size, self.num_rows))
            rows = np.sort(order.rows_at(positions))
            yield padded_batch(rows, self.batch_size, self.expected_size)

    def _unit_noise(self, noise: Event) -> Event:
        if self.max_rows_per_unit == 1:
            return noise
        if not isinstance(noise, Gaussian):
            raise ConfigError(
                f"noise={noise!r} must be Gaussian for max_rows_per_unit={self.max_rows_per_unit}; "
                "use one Gaussian event, or bound units to one row."
            )
        multiplier = noise.noise_multiplier / self.max_rows_per_unit
        return dataclasses.replace(noise, noise_multiplier=multiplier)
