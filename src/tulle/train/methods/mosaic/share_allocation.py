"""How a share of the noise budget is divided: between tables, and between the tables of each row.

A share is a fraction of the one Gaussian budget of a run (see `noise_shares`). It is divided in
two steps, both by expected gains that follow from public and noisy numbers alone:

1. `allocate_shares` gives each table a part, in small pieces, always where the next piece gains
   most. Many tables get nothing.
2. `wishes_of_tables` then lets every row divide its share among its own cells. A large cell needs
   little from each of its rows, and a tiny one cannot rise above the noise, so a row spends most
   on its cells in between. A `RowRound` turns these wishes into the weights of rows and releases
   the sums of its tables.

Neither step can cost privacy: `RowShares` refuses a release in which a row would spend more than
its share.
"""

import dataclasses
import heapq
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.candidate_table import CandidateTable, CellSizes, TableIdentity
from tulle.train.methods.mosaic.noise_shares import RowShares

_NUM_BITS = 1_000
"""Number of equal pieces that a share is given out in."""


def allocate_shares(
    tables: Sequence[CandidateTable],
    *,
    share: float,
    most: float,
    noise_variance: float,
    rate: float,
) -> list[float]:
    """Divides `share` among tables so that they gain most together; many get nothing.

    Args:
      tables: Tables that may be measured. What they expect to gain follows from public and noisy
        numbers alone.
      share: Share of the noise budget for all tables together.
      most: Largest share for one table.
      noise_variance: Variance of the noise on sums that have the whole budget.
      rate: Typical prediction.

    Returns:
      The share of each table, in the order of `tables`.
    """
    bit = share / _NUM_BITS

    def gain(place: int, num_bits: int) -> float:
        if num_bits == 0:
            return 0.0
        return tables[place].expected_gain(noise_variance / (num_bits * bit), rate)

    bits = [0] * len(tables)
    # Gains are concave in the share (twice the share never gains twice as much), so the greedy
    # choice is the best one for pieces of this size.
    queue = [(-gain(place, 1), place) for place in range(len(tables))]
    heapq.heapify(queue)
    for _ in range(_NUM_BITS):
        if not queue or queue[0][0] >= 0:
            break
        _, place = heapq.heappop(queue)
        bits[place] += 1
        more = bits[place] + 1
        if more * bit <= most:
            heapq.heappush(queue, (gain(place, bits[place]) - gain(place, more), place))
    return [number * bit for number in bits]


FloatArray = NDArray[np.float64]
Cells = NDArray[np.int64]

_LEAST_WANTED = 1e-6
"""Smallest priority of a cell, relative to the mean. A row all of whose cells had priority 0 would
divide 0 by 0; with this floor it spends its share evenly."""
_TINY = 1e-300
"""Positive number that stands in for 0 in denominators."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Wish:
    """How much of a row's share each cell of a table asks for. Nothing in it is raw."""

    wanted: FloatArray
    """Priority of each cell. A row divides its share among its cells of all tables of the round in
    proportion to their priorities."""
    parts: FloatArray
    """Expected fraction of its share that a typical row of each cell spends on the table."""


class RowRound:
    """Tables that are measured together, on one share that each row divides among them.

    Sensitive once cells are: what a row spends follows from the cells that it is in.
    """

    def __init__(
        self, wishes: Mapping[TableIdentity, Wish], totals: FloatArray, shares: RowShares
    ) -> None:
        """Starts a round.

        Args:
          wishes: Priorities of the cells of each table of the round, by table.
          totals: [rows]: sum of the priorities of a row's cells over all tables of the round.
          shares: The share that each row may spend.
        """
        self._wishes, self._totals, self._shares = wishes, totals, shares

    def weights(self, table: CandidateTable, cells: Cells) -> FloatArray:
        """The weight of each row in the sums of a table."""
        return self._shares.weights(self._parts(table, cells))

    def typical_weights(self, table: CandidateTable) -> FloatArray:
        """Weight that rows of each cell may have, guessed from what is not sensitive."""
        return self._shares.weights(self._wishes[table.identity].parts)

    def release(
        self,
        table: CandidateTable,
        cells: Cells,
        raw_sums: Callable[[FloatArray], FloatArray],
    ) -> FloatArray:
        """Releases the sums of a table: rows weighted by what they spend on it, plus noise.

        Args:
          table: A table of this round. Each is released at most once a round.
          cells: [rows]: cell of each row in the table.
          raw_sums: Function from the weights of rows to their raw sums.

        Privacy:
          The same as for `RowShares.release`.
        """
        return self._shares.release(raw_sums, parts=self._parts(table, cells))

    def _parts(self, table: CandidateTable, cells: Cells) -> FloatArray:
        """Fraction of its share that each row spends on a table."""
        # A row's fractions over all tables of the round add up to 1, as `totals` is their sum.
        # They depend on the row's own cells and on earlier releases, never on other rows.
        parts: FloatArray = self._wishes[table.identity].wanted[cells] / self._totals
        return parts


def wishes_of_tables(
    tables: Sequence[CandidateTable],
    given: Sequence[float],
    *,
    noise_variance: float,
    rate: float,
    num_steps: int,
) -> dict[TableIdentity, Wish]:
    """Priorities of all cells of a round, if a row can spend what all tables were given together.

    Starts from the same priority for all cells of a table, and moves towards cells for which the
    next piece of a row's share gains more.

    Args:
      tables: Tables of the round.
      given: Share that each table was given, if all rows had to spend the same.
      noise_variance: Variance of the noise on sums that have the whole budget.
      rate: Typical prediction.
      num_steps: Number of such moves. Many would make it worse, since what rows spend on other
        tables is only guessed.
    """
    share = sum(given)
    cells = [table.cells for table in tables]
    wanted = [
        np.full(table.num_cells, some / share) for table, some in zip(tables, given, strict=True)
    ]
    parts = _typical_parts(cells, wanted)
    for _ in range(num_steps):
        for place, own in enumerate(cells):
            next_bit = _gain_of_next_bit(own, share * parts[place], noise_variance, rate)
            # The square root halves the move on a logarithmic scale: a full one would overshoot,
            # because the priorities of all tables change at the same time.
            wanted[place] = wanted[place] * np.sqrt(next_bit)
        wanted = _scaled(cells, wanted)
        parts = _typical_parts(cells, wanted)
    return {
        table.identity: Wish(wanted=some, parts=part)
        for table, some, part in zip(tables, wanted, parts, strict=True)
    }


def _gain_of_next_bit(
    cells: CellSizes, shares: FloatArray, noise_variance: float, rate: float
) -> FloatArray:
    """Gain of a little more share for one row of each cell, up to a factor common to all cells."""
    # A small change of the share is taken to leave the sampling noise of labels (shares * slopes)
    # as it is.
    slopes = cells.slopes(rate)
    signal = cells.variances * slopes**2 / (noise_variance + shares * slopes)
    gain: FloatArray = cells.variances * signal / (1 + shares * signal) ** 2
    return gain


def _typical_parts(cells: Sequence[CellSizes], wanted: Sequence[FloatArray]) -> list[FloatArray]:
    """Fraction of its share that a row of each cell spends there, if its other cells are typical.

    Args:
      cells: Sizes of the cells of each table.
      wanted: Priorities of the cells of each table.
    """
    means = [_mean(own, some) for own, some in zip(cells, wanted, strict=True)]
    total = sum(means)
    return [
        some / np.maximum(some + max(total - mean, 0.0), _TINY)
        for some, mean in zip(wanted, means, strict=True)
    ]


def _scaled(cells: Sequence[CellSizes], wanted: Sequence[FloatArray]) -> list[FloatArray]:
    """The same priorities, rescaled to add up to about 1 for a typical row, and none of them 0."""
    total = sum(_mean(own, some) for own, some in zip(cells, wanted, strict=True))
    if not total > 0:
        return [np.ones_like(some) for some in wanted]
    return [np.maximum(some / total, _LEAST_WANTED) for some in wanted]


def _mean(cells: CellSizes, values: FloatArray) -> float:
    """Mean of the values of cells over rows: each cell counts by the number of its rows."""
    return float(cells.rows @ values) / max(float(cells.rows.sum()), _TINY)
