"""Which tables get how much of a noise budget: wherever the next bit of it gains most."""

import dataclasses
import heapq
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.candidate_table import CandidateTable, CellSizes, TableIdentity
from tulle.train.methods.mosaic.noise_shares import RowShares

_NUM_BITS = 1_000


def allocate_shares(
    tables: Sequence[CandidateTable],
    *,
    share: float,
    most: float,
    noise_variance: float,
    rate: float,
) -> list[float]:
    """A part of `share` for each table; many get none.

    Args:
      tables: That may be asked for. What they expect to gain follows from public and noisy
        numbers alone.
      share: Of the budget, for all of them.
      most: For one of them.
      noise_variance: Of sums with the whole budget.
      rate: Typical prediction.
    """
    bit = share / _NUM_BITS

    def gain(place: int, num_bits: int) -> float:
        if num_bits == 0:
            return 0.0
        return tables[place].expected_gain(noise_variance / (num_bits * bit), rate)

    bits = [0] * len(tables)
    # Gains are concave in the share, so the greedy choice is the best one.
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
"""Of the mean: so that no row has nothing to spend on."""
_TINY = 1e-300


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Wish:
    """What the cells of a table want of a share. Nothing in it is raw."""

    wanted: FloatArray
    """Of each cell, in proportion to that of all other tables of the round."""
    parts: FloatArray
    """Of the share, that a typical row of each cell will spend on the table."""


class RowRound:
    """Tables that are looked at together. Sensitive once cells are."""

    def __init__(
        self, wishes: Mapping[TableIdentity, Wish], totals: FloatArray, shares: RowShares
    ) -> None:
        """Starts a round.

        Args:
          wishes: Of each table.
          totals: For each row, what its cells of all tables want together.
          shares: What rows may spend.
        """
        self._wishes, self._totals, self._shares = wishes, totals, shares

    def weights(self, table: CandidateTable, cells: Cells) -> FloatArray:
        """The weight of each row in the sums of a table."""
        return self._shares.weights(self._parts(table, cells))

    def typical_weights(self, table: CandidateTable) -> FloatArray:
        """For each cell the weight that its rows may have, guessed from what is not sensitive."""
        return self._shares.weights(self._wishes[table.identity].parts)

    def release(
        self,
        table: CandidateTable,
        cells: Cells,
        raw_sums: Callable[[FloatArray], FloatArray],
    ) -> FloatArray:
        """Sums of weighted rows of a table, with noise.

        Privacy:
          As `RowShares.release`.
        """
        return self._shares.release(raw_sums, parts=self._parts(table, cells))

    def _parts(self, table: CandidateTable, cells: Cells) -> FloatArray:
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
    """What every cell wants, if a row can spend as much as all tables were given together.

    Starts from the same for all cells of a table, and moves towards cells for which the next bit
    gains more.

    Args:
      tables: Of a round.
      given: The share of each table, if all rows had to spend the same.
      noise_variance: Of sums with the whole budget.
      rate: Typical prediction.
      num_steps: Such moves; many would make it worse, since what rows spend elsewhere is guessed.
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
    """For a row of each cell, in proportion: what more of a share would gain."""
    slopes = cells.slopes(rate)
    signal = cells.variances * slopes**2 / (noise_variance + shares * slopes)
    gain: FloatArray = cells.variances * signal / (1 + shares * signal) ** 2
    return gain


def _typical_parts(cells: Sequence[CellSizes], wanted: Sequence[FloatArray]) -> list[FloatArray]:
    """Of its share, what a row of each cell spends there if its other cells are typical."""
    means = [_mean(own, some) for own, some in zip(cells, wanted, strict=True)]
    total = sum(means)
    return [
        some / np.maximum(some + max(total - mean, 0.0), _TINY)
        for some, mean in zip(wanted, means, strict=True)
    ]


def _scaled(cells: Sequence[CellSizes], wanted: Sequence[FloatArray]) -> list[FloatArray]:
    """The same proportions, with typical values near 1 and none of 0."""
    total = sum(_mean(own, some) for own, some in zip(cells, wanted, strict=True))
    if not total > 0:
        return [np.ones_like(some) for some in wanted]
    return [np.maximum(some / total, _LEAST_WANTED) for some in wanted]


def _mean(cells: CellSizes, values: FloatArray) -> float:
    """Over rows."""
    return float(cells.rows @ values) / max(float(cells.rows.sum()), _TINY)
