"""Poisson batches: every row tosses its own coin in every step.

The size of a batch varies and may be zero. Where the hardware wants one shape,
use truncated_poisson.py.

Coins are drawn only where they land heads. The distance from one sampled row to
the next is geometric, so drawing the distances draws the coins of all rows at a
cost that grows with the batch and not with the data. Each distance is
floor(scale * E) for a standard exponential E, which exact.py draws with the law of
ideal real arithmetic. So, given uniform words, rows are independent and each has a
probability of exactly 1 - exp(-1 / scale): no float error of a binomial sampler, no
rounding of a threshold.
"""

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tulle.data.samplers.batch import (
    Batch,
    SamplingStream,
    check_at_most,
    check_first_step,
    check_noise,
    check_sampling_prob,
    unpadded_batch,
)
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import sample_geometric
from tulle.mechanisms.thresholds import exponential_bounds
from tulle.privacy.events import Event, PoissonSampled, Repeated
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]


def sample_rows(num_rows: int, sampling_prob: float, *, rng: NoiseSource) -> IntArray:
    """Draws each of 0 … num_rows - 1 with one probability, independently; in ascending order.

    Args:
      num_rows: Public.
      sampling_prob: The probability asked for. The one realised differs from it by a few
        units in the last place; account with `accounted_prob(sampling_prob)`.
      rng: Source of the coins. Sensitive: never log or save its state.

    Privacy:
      The rows drawn are secret: amplification by sampling relies on it.
    """
    if sampling_prob == 1:
        return np.arange(num_rows)
    scale = skip_scale(sampling_prob)
    parts: list[IntArray] = []
    start = 0
    while start < num_rows:
        # Almost always enough gaps for the rest of the rows. If not, the loop draws more: the law
        # of the rows does not depend on how many are drawn at once.
        expected = sampling_prob * (num_rows - start)
        num_gaps = math.ceil(expected + 4 * math.sqrt(expected)) + 4
        parts.append(rows_of_gaps(sample_geometric(scale, num_gaps, rng=rng), start, num_rows))
        start = int(parts[-1][-1]) + 1
    rows = np.concatenate(parts)
    return rows[: np.searchsorted(rows, num_rows)]


def rows_of_gaps(gaps: IntArray, start: int, num_rows: int) -> IntArray:
    """The rows that follow one another at these distances; some may lie past the end.

    A gap is the number of rows skipped. Those past the end are cut first, so that
    the sum cannot overflow.

    Args:
      gaps: Numbers of rows skipped before each row.
      start: First row that may be drawn.
      num_rows: Number of rows of the data, which no useful gap exceeds.
    """
    return start - 1 + np.cumsum(np.minimum(gaps, num_rows) + 1)


def skip_scale(sampling_prob: float) -> float:
    """The scale of the geometric distances, a float that is used as it is."""
    return -1 / math.log1p(-sampling_prob)


def accounted_prob(sampling_prob: float) -> float:
    """The least float that is certainly not below the realised probability of a row.

    The cost grows with the probability: a smaller one is a mixture of a larger one and
    of not looking at the row at all.
    """
    if sampling_prob == 1:
        return 1.0
    not_sampled, _ = exponential_bounds(-1 / Fraction(skip_scale(sampling_prob)))
    exact = 1 - not_sampled
    nearest = float(exact)
    # Up, never to nearest: a probability below the realised one would understate the cost.
    return nearest if nearest >= exact else min(1.0, math.nextafter(nearest, 2.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisson:
    """Settings of Poisson batches. Every field is public information."""

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
        # A resumed run draws the rest anew: steps are independent, so the law is the same.
        check_first_step(first_step, self.steps)
        return self._draw(SamplingStream(rng), self.steps - first_step)

    def _draw(self, stream: SamplingStream, num_batches: int) -> Iterator[Batch]:
        for _ in range(num_batches):
            rows = sample_rows(self.num_rows, self.sampling_prob, rng=stream)
            yield unpadded_batch(rows, self.expected_size)
