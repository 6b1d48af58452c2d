"""Poisson batches: every row tosses its own coin in every step.

The size of a batch varies and may be zero. Where the hardware wants one shape,
use truncated_poisson.py.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from tulle.data.samplers.batch import Batch, unpadded_batch
from tulle.data.samplers.bernoulli_rows import accounted_prob, sample_rows
from tulle.data.samplers.sampler_settings import (
    check_at_most,
    check_first_step,
    check_noise,
    check_sampling_prob,
)
from tulle.data.samplers.sampling_rng import SamplingStream
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event, PoissonSampled, Repeated
from tulle.privacy.fields import check_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisson:
    """Settings of Poisson batches. Every field is public information."""

    is_amplified: ClassVar[bool] = True
    physical_size: ClassVar[None] = None
    """Batches are as long as they have rows."""

    num_rows: int
    sampling_prob: float
    """Probability that one row enters one batch."""
    steps: int
    max_rows_per_unit: int = 1
    """Most rows that one unit owns; bound them before."""

    def __post_init__(self) -> None:
        for name in ("num_rows", "steps", "max_rows_per_unit"):
            check_count(name, getattr(self, name))
        check_sampling_prob("sampling_prob", self.sampling_prob)
        check_at_most("max_rows_per_unit", self.max_rows_per_unit, "num_rows", self.num_rows)

    @property
    def expected_size(self) -> float:
        """Expected rows in a batch."""
        return self.sampling_prob * self.num_rows

    def event(self, noise: Event) -> Event:
        """What all steps cost if each releases the sum of its rows with `noise`."""
        check_noise(noise)
        step = PoissonSampled(
            sampling_prob=accounted_prob(self.sampling_prob),
            event=noise,
            max_rows_per_unit=self.max_rows_per_unit,
        )
        return Repeated(event=step, count=self.steps)

    def batches(self, rng: NoiseSource, *, first_step: int = 0) -> Iterator[Batch]:
        """The batches from `first_step` on, from fresh entropy.

        Args:
          rng: Source of the key of the coins. Sensitive: never log or save its state.
          first_step: Steps that are done already, after an interruption.

        Privacy:
          Unit: the owner of at most `max_rows_per_unit` rows; any adjacency, with a public
          number of rows. Event: `event(noise)`. Relies on: batches stay secret, each is
          used in one step, sums are divided by `expected_size`, never by the drawn size.
        """
        check_first_step(first_step, self.steps)
        return self._draw(SamplingStream(rng), self.steps - first_step)

    def _draw(self, stream: SamplingStream, num_batches: int) -> Iterator[Batch]:
        for _ in range(num_batches):
            rows = sample_rows(self.num_rows, self.sampling_prob, rng=stream)
            yield unpadded_batch(rows, self.expected_size)
