"""Batches of exactly one size, drawn uniformly without replacement.

Convenient, and dear: a row that is not in leaves its place to another, so a batch
costs as much as a Poisson batch with half the noise.
"""

import dataclasses
from collections.abc import Iterator

from tulle.data.samplers.batch import (
    Batch,
    SamplingStream,
    check_at_most,
    check_first_step,
    check_noise,
    unpadded_batch,
)
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event, FixedSizeSampled, Repeated
from tulle.privacy.fields import check_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedSize:
    """Settings of uniform batches of fixed size. Every field is public information."""

    num_rows: int
    batch_size: int
    steps: int

    def __post_init__(self) -> None:
        for name in ("num_rows", "batch_size", "steps"):
            check_count(name, getattr(self, name))
        check_at_most("batch_size", self.batch_size, "num_rows", self.num_rows)

    @property
    def expected_size(self) -> float:
        """Rows in a batch."""
        return float(self.batch_size)

    @property
    def physical_size(self) -> int:
        """Length of every batch; there is no padding."""
        return self.batch_size

    def event(self, noise: Event) -> Event:
        """What all steps cost if each releases the sum of its rows with `noise`."""
        check_noise(noise)
        step = FixedSizeSampled(batch_size=self.batch_size, num_rows=self.num_rows, event=noise)
        return Repeated(event=step, count=self.steps)

    def batches(self, rng: NoiseSource, *, first_step: int = 0) -> Iterator[Batch]:
        """The batches from `first_step` on, from fresh entropy.

        Args:
          rng: Source of the key of the draws. Sensitive: never log or save its state.
          first_step: Steps that are done already, after an interruption.

        Privacy:
          Unit: the owner of one row, replace. Event: `event(noise)`. Relies on: batches
          stay secret and each is used in one step.
        """
        check_first_step(first_step, self.steps)
        return self._draw(SamplingStream(rng), self.steps - first_step)

    def _draw(self, stream: SamplingStream, num_batches: int) -> Iterator[Batch]:
        for _ in range(num_batches):
            rows = stream.subset(self.num_rows, self.batch_size)
            yield unpadded_batch(rows, self.expected_size)
