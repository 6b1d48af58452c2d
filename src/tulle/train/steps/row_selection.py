"""Which table rows a step may update: those whose noisy count in the batch is high.

Every unit adds the same amount to the count of each distinct row that it reads, so that its
counts have a norm of at most 1 over all tables together. The amount is public for examples,
1 / sqrt(features): an example has no more rows than that, and one that repeats a row adds no
more for it. A user of more distinct rows than features adds 1 / sqrt(its rows). Counts are
whole multiples of 2^-30, rounded down for each unit before they are added, so sums are exact
and the norm holds exactly.

The distribution is that of noise on the count of every row. Rows that nobody reads have the count
0, so each is selected with the probability that a normal exceeds the threshold, independently of
all others: such coins are drawn at a cost that grows with the rows they select, not with the
table. Coins of rows that are read are thrown away, which leaves the others independent;
those rows get normals of their own.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tulle.data.samplers.bernoulli_rows import sample_rows
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.lattice import rounded_up
from tulle.train.models.contributions import SortedReads, TableReads
from tulle.train.settings.step_noise import SelectedRows
from tulle.train.steps.private_step import BatchUnits
from tulle.train.steps.training_noise import TrainingNoise

COUNT_STEPS = 1 << 30
"""Counts are whole numbers of this many steps to 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionNoise:
    """How the noise of a step is split between counts and gradients. All of it is public.

    Of a unit's vector the counts have a norm of at most 1 and the gradient one of at most the
    clip norm. With noise multipliers a and b for these, 1 / a^2 + 1 / b^2 =
    1 / noise_multiplier^2, both parts cost one Gaussian with `noise_multiplier`.
    """

    noise_multiplier: float
    """Noise multiplier of the whole step."""
    selection: SelectedRows

    @property
    def count_stddev(self) -> float:
        """Standard deviation of the noise on each count."""
        return rounded_up(self.noise_multiplier / math.sqrt(self.selection.selection_share))

    @property
    def gradient_multiplier(self) -> float:
        """Noise on each entry of the gradients, over the clip norm."""
        return rounded_up(self.noise_multiplier / math.sqrt(1 - self.selection.selection_share))

    @property
    def least_count(self) -> float:
        """Rows with a noisy count above this are selected."""
        return self.selection.threshold * self.count_stddev

    @property
    def unread_prob(self) -> float:
        """The probability that a row that nobody reads is selected."""
        return math.erfc(self.selection.threshold / math.sqrt(2)) / 2


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowCounts:
    """How much the units of a batch read the rows of one table. Raw: it has no noise yet."""

    table: str
    rows: Tensor
    """int64, distinct, in order. All others have the count 0."""
    counts: Tensor
    """int64, in steps of 1 / COUNT_STEPS."""


def count_rows(
    reads: Sequence[TableReads], weights: Tensor, units: BatchUnits | None
) -> list[RowCounts]:
    """Counts of the rows that a batch reads, over tables that belong together.

    Args:
      reads: Reads of all trained tables.
      weights: [rows]: 1 for a row of the batch, 0 for padding, which adds nothing.
      units: Units of the rows if users are clipped, whose batches are never padded; None if each
        row is a unit.

    Privacy:
      Unit: a row, or a user with `units`. L2 sensitivity of all counts together, in units of
      COUNT_STEPS: 1 if a unit is added or removed; if it is replaced sqrt(2), as counts are
      not negative. What it returns is raw.
    """
    in_order = [read.in_order for read in reads]
    num_features = max(1, sum(read.rows.shape[1] for read in reads))
    if units is None:
        owners = torch.arange(len(weights), device=weights.device)
        is_first = [_first_reads(read, owners) for read in in_order]
        amounts = (weights > 0) * int(_amounts(torch.tensor(num_features)))
    else:
        owners = units.segments
        is_first = [_first_reads(read, owners) for read in in_order]
        num_distinct = torch.zeros(units.num_segments, dtype=torch.int64, device=weights.device)
        for read, first in zip(in_order, is_first, strict=True):
            num_distinct.index_add_(0, owners[read.examples], first.long())
        amounts = _amounts(num_distinct.clamp_(min=num_features))
    return [
        RowCounts(
            table=table.table,
            rows=read.rows,
            counts=_sums_of_rows(read, amounts[owners[read.examples]] * first),
        )
        for table, read, first in zip(reads, in_order, is_first, strict=True)
    ]


class RowSelector:
    """Draws the selected rows of each step.

    Privacy:
      Unit, sensitivity: those of `count_rows`. Event: one Gaussian with noise multiplier
      count_stddev, of which the selected rows are a function.
    """

    def __init__(
        self,
        num_rows: Mapping[str, int],
        split: SelectionNoise,
        noise: TrainingNoise,
        rng: NoiseSource,
    ) -> None:
        """Takes the tables with their public numbers of rows.

        Args:
          num_rows: Number of rows of each table, by name.
          split: Noise and threshold of counts.
          noise: Noise on the counts of rows that are read.
          rng: Source of the coins of all other rows. Sensitive: never log or save its state.
        """
        self._num_rows, self._split = dict(num_rows), split
        self._noise, self._rng = noise, rng

    def select(self, counted: Sequence[RowCounts]) -> dict[str, Tensor]:
        """The selected rows of each table: distinct, in order.

        Args:
          counted: Counts of one batch, of every table.

        Privacy:
          What it returns may be shown, with the cost of the event.
        """
        of_table = {counts.table: counts for counts in counted}
        return {name: self._select_from(of_table[name]) for name in self._num_rows}

    def _select_from(self, counted: RowCounts) -> Tensor:
        chosen = counted.rows[self._is_high(counted.counts)]
        others = self._unread(counted)
        return torch.cat([chosen, others]).sort().values

    def _is_high(self, counts: Tensor) -> Tensor:
        noisy_counts = counts.double().div_(COUNT_STEPS)
        self._noise.add_to(noisy_counts, self._split.count_stddev)
        return noisy_counts > self._split.least_count

    def _unread(self, counted: RowCounts) -> Tensor:
        """Selected rows among those without a count."""
        num_rows = self._num_rows[counted.table]
        drawn = sample_rows(num_rows, self._split.unread_prob, rng=self._rng)
        rows = torch.from_numpy(drawn).to(counted.rows.device)
        _, is_counted = places_of(rows, counted.rows)
        return rows[~is_counted]


def places_of(rows: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Places of rows among others that are distinct and in order, and whether they are there."""
    if not len(among):
        return torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    places = torch.searchsorted(among, rows).clamp_(max=len(among) - 1)
    return places, among[places] == rows


def _amounts(num_rows: Tensor) -> Tensor:
    """What a unit adds to each of so many rows, in steps, so that its norm is at most 1.

    A step less than COUNT_STEPS makes up for the rounding of root and quotient.
    """
    return torch.floor((COUNT_STEPS - 1) / num_rows.double().sqrt()).long()


def _first_reads(reads: SortedReads, owners: Tensor) -> Tensor:
    """True for each read, in the order of rows, that is the first of its row by its owner."""
    whose = owners[reads.examples]
    is_first = torch.ones_like(whose, dtype=torch.bool)
    # Reads of a row are in the order of the batch, where rows of a unit are side by side.
    is_first[1:] = whose[1:] != whose[:-1]
    is_first[reads.starts] = True
    return is_first


def _sums_of_rows(reads: SortedReads, added: Tensor) -> Tensor:
    running = torch.nn.functional.pad(added.cumsum(0), (1, 0))
    ends = torch.cat([reads.starts[1:], reads.starts.new_full((1,), len(added))])
    return running[ends[: len(reads.starts)]] - running[reads.starts]
