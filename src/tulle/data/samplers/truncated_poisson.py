"""Poisson batches of one physical size: the default for training.

Every row tosses its coin; if more rows come than fit, a uniform subset stays; if
fewer come, padding of weight zero fills up. A full batch is a batch of fixed
size, which costs far more than a Poisson batch, so there must be room enough
that a batch is practically never full: 6 standard deviations, at 4.7% of padding
for 16384 rows. At 4 deviations epsilon more than triples.

Where a unit owns several rows a batch that may be cut is accounted without any
amplification, and epsilon can rise from 4 to 95 where cuts are likelier than delta.
Small batches are cut more often than a normal number of rows would be, so there the
probability itself is bounded.
"""

import dataclasses
import math
from collections.abc import Iterator

from tulle.data.samplers.batch import (
    Batch,
    IntArray,
    SamplingStream,
    check_at_most,
    check_first_step,
    check_noise,
    check_sampling_prob,
    padded_batch,
)
from tulle.data.samplers.poisson import accounted_prob, sample_rows
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.cut_batches import cut_prob_bound
from tulle.privacy.events import Event, Repeated, TruncatedPoissonSampled
from tulle.privacy.fields import check_count

LEAST_DEVIATIONS = 6.0
"""Least room above the expected size, in standard deviations, where a unit owns one row. At 4
deviations epsilon more than triples."""
LEAST_DEVIATIONS_SEVERAL_ROWS = 7.0
"""Least room where a unit owns several rows: there a full batch is accounted without any
amplification."""
MOST_CUT_PROB_SEVERAL_ROWS = 1e-9
"""Largest probability over all steps that a batch is cut, where no delta is given."""

_MORE_ROOM = 1.04
"""Factor by which the room in deviations grows while cuts are too likely."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedPoisson:
    """Settings of truncated Poisson batches. Every field is public information."""

    num_rows: int
    sampling_prob: float
    """Probability that one row's coin lands heads; `with_headroom` picks it."""
    max_batch_size: int
    """Rows that fit, and the length of every batch."""
    steps: int
    max_rows_per_unit: int = 1
    """Most rows that one unit owns; bound them before."""
    accept_costly_truncation: bool = False
    """True allows less room. The event still says what that costs."""

    def __post_init__(self) -> None:
        for name in ("num_rows", "max_batch_size", "steps", "max_rows_per_unit"):
            check_count(name, getattr(self, name))
        check_sampling_prob("sampling_prob", self.sampling_prob)
        for name in ("max_batch_size", "max_rows_per_unit"):
            check_at_most(name, getattr(self, name), "num_rows", self.num_rows)
        self._check_headroom()

    @classmethod
    def with_headroom(
        cls,
        *,
        num_rows: int,
        max_batch_size: int,
        steps: int,
        max_rows_per_unit: int = 1,
        deviations: float | None = None,
        max_cut_prob: float | None = None,
    ) -> "TruncatedPoisson":
        """The largest sampling probability that leaves enough room, in steps of 4% of that room.

        Args:
          num_rows: Rows of the data.
          max_batch_size: Rows that fit.
          steps: Number of batches.
          max_rows_per_unit: Most rows that one unit owns.
          deviations: Least room in standard deviations beside all rows of one unit but one;
            None: 6, or 7 if a unit owns several rows.
          max_cut_prob: Largest probability over all steps that some batch is cut; None: no limit,
            or 1e-9 if a unit owns several rows. A small part of delta is right.
        """
        check_count("num_rows", num_rows)
        check_count("max_batch_size", max_batch_size)
        check_count("steps", steps)
        check_count("max_rows_per_unit", max_rows_per_unit)
        least = least_deviations(max_rows_per_unit)
        wanted = least if deviations is None else deviations
        if not least <= wanted < math.inf:
            raise ConfigError(
                f"deviations={wanted} must be a number >= {least:g}; to truncate more often give "
                "sampling_prob and accept_costly_truncation=True."
            )
        if max_cut_prob is None:
            max_cut_prob = 1.0 if max_rows_per_unit == 1 else MOST_CUT_PROB_SEVERAL_ROWS
        if not 0 < max_cut_prob <= 1:
            raise ConfigError(f"max_cut_prob={max_cut_prob} must be in (0, 1]; choose e.g. 1e-9.")
        if max_batch_size < max_rows_per_unit:
            raise ConfigError(
                f"max_batch_size={max_batch_size} must be >= max_rows_per_unit="
                f"{max_rows_per_unit}; raise it, or bound units to fewer rows."
            )
        return cls(
            num_rows=num_rows,
            sampling_prob=_roomy_prob(
                num_rows, max_batch_size, steps, max_rows_per_unit, wanted, max_cut_prob
            ),
            max_batch_size=max_batch_size,
            steps=steps,
            max_rows_per_unit=max_rows_per_unit,
        )

    @property
    def expected_size(self) -> float:
        """Expected rows in a batch before truncation: the public divisor."""
        return self.sampling_prob * self.num_rows

    @property
    def physical_size(self) -> int:
        """Length of every batch with its padding."""
        return self.max_batch_size

    @property
    def headroom_deviations(self) -> float:
        """Room above the expected size in standard deviations; inf if all rows fit.

        All rows of one unit may come at once, so they take room beside those of the others.
        """
        if self.max_batch_size == self.num_rows:
            return math.inf
        room = self.max_batch_size - self.max_rows_per_unit + 1
        return (room - self.expected_size) / math.sqrt(self.expected_size)

    def event(self, noise: Event) -> Event:
        """What all steps cost if each releases the sum of its rows with `noise`."""
        check_noise(noise)
        step = TruncatedPoissonSampled(
            sampling_prob=accounted_prob(self.sampling_prob),
            num_rows=self.num_rows,
            max_batch_size=self.max_batch_size,
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
            kept = truncate(rows, self.max_batch_size, stream)
            yield padded_batch(kept, self.max_batch_size, self.expected_size)

    def _check_headroom(self) -> None:
        least = least_deviations(self.max_rows_per_unit)
        # Rounding of the root in with_headroom costs a few units in the last place.
        if self.accept_costly_truncation or self.headroom_deviations >= least * (1 - 1e-9):
            return
        raise ConfigError(
            f"max_batch_size={self.max_batch_size} leaves {self.headroom_deviations:.2f} standard "
            f"deviations above the expected {self.expected_size:.0f} rows, and must leave "
            f"{least:g}: full batches cost much more. Lower sampling_prob, let with_headroom() "
            "choose it, or pay for it with accept_costly_truncation=True."
        )


def least_deviations(max_rows_per_unit: int) -> float:
    """Room that is asked for, in standard deviations of the batch size."""
    return LEAST_DEVIATIONS if max_rows_per_unit == 1 else LEAST_DEVIATIONS_SEVERAL_ROWS


def _roomy_prob(
    num_rows: int,
    max_batch_size: int,
    steps: int,
    max_rows_per_unit: int,
    deviations: float,
    max_cut_prob: float,
) -> float:
    room = max_batch_size - max_rows_per_unit + 1
    while True:
        # The root of B - m = z sqrt(m) in sqrt(m), without cancellation.
        root = 2 * room / (deviations + math.sqrt(deviations**2 + 4 * room))
        prob = min(1.0, root**2 / num_rows)
        cut_prob = cut_prob_bound(
            num_rows=num_rows,
            sampling_prob=prob,
            max_batch_size=max_batch_size,
            max_rows_per_unit=max_rows_per_unit,
            steps=steps,
        )
        if cut_prob <= max_cut_prob:
            return prob
        deviations *= _MORE_ROOM


def truncate(rows: IntArray, max_size: int, stream: SamplingStream) -> IntArray:
    """All rows if they fit, else a uniform subset of `max_size` of them, in order.

    Args:
      rows: Rows that were drawn.
      max_size: Most rows that fit into the batch.
      stream: Source of the subset. Sensitive: never log or save its state.
    """
    # Uniform among those drawn: cutting the last ones would sample late rows less than accounted.
    if rows.size <= max_size:
        return rows
    return rows[stream.subset(rows.size, max_size)]
