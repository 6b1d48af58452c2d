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
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.candidate_table import CandidateTable, CellSizes, TableIdentity
from tulle.train.methods.mosaic.cell_kernels import loops_over_rows
from tulle.train.methods.mosaic.noise_shares import RowShares
from tulle.train.methods.mosaic.row_numbers import Cells, Costs, IntArray

FloatArray = NDArray[np.float64]

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
        return tables[place].expected_gain(noise_variance / (num_bits * bit), rate)

    bits = [0] * len(tables)
    # Gains are concave in the share (twice the share never gains twice as much), so the greedy
    # choice is the best one for pieces of this size.
    gains = [gain(place, 1) for place in range(len(tables))]
    queue = [(-some, place) for place, some in enumerate(gains)]
    heapq.heapify(queue)
    for _ in range(_NUM_BITS):
        if not queue or queue[0][0] >= 0:
            break
        _, place = heapq.heappop(queue)
        bits[place] += 1
        more = bits[place] + 1
        if more * bit <= most:
            before, gains[place] = gains[place], gain(place, more)
            heapq.heappush(queue, (before - gains[place], place))
    return [number * bit for number in bits]


def chosen_tables(
    tables: Sequence[CandidateTable],
    *,
    share: float,
    most: float,
    noise_variance: float,
    rate: float,
) -> list[tuple[CandidateTable, float]]:
    """Tables that get a share, with that share: groups by facts, then those of fewest cells.

    What a group of values has in common is then learnt before what is left of each value.

    Args:
      tables: Tables that may be measured.
      share: Share of the noise budget for all of them; nothing is chosen if it is 0.
      most: Largest share for one table.
      noise_variance: Variance of the noise on sums that have the whole budget.
      rate: Typical prediction.
    """
    if not tables or share <= 0:
        return []
    given = allocate_shares(
        tables, share=share, most=most, noise_variance=noise_variance, rate=rate
    )
    chosen = [(table, some) for table, some in zip(tables, given, strict=True) if some > 0]
    return sorted(chosen, key=lambda pair: (not pair[0].is_of_fact, pair[0].num_cells))


_LEAST_WANTED = 1e-6
"""Smallest priority of a cell, relative to the mean. A row all of whose cells had priority 0 would
divide 0 by 0; with this floor it spends its share evenly."""
_TINY = 1e-300
"""Positive number that stands in for 0 in denominators."""
_FACTOR_BITS = 15
"""Factors by which earlier sums of labels count less than the latest are parts of 2^15."""
_PRIORITY_BITS = 30
"""Priorities are whole numbers, 2^30 for the mean of all cells, so that their sums are exact."""
_MOST_TOTAL = 1 << 52
"""Largest sum of the priorities of a row: floats hold it exactly."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Wish:
    """How much of a row's share each cell of a table asks for. Nothing in it is raw."""

    wanted: IntArray
    """Priority of each cell, a whole number above 0. A row divides its share among its cells of all
    tables of the round in proportion to their priorities."""
    parts: FloatArray
    """Expected fraction of its share that a typical row of each cell spends on the table."""


class RowRound:
    """Tables that are measured together, on one share that each row divides among them.

    Sensitive once cells are: what a row spends follows from the cells that it is in.
    """

    def __init__(
        self,
        wishes: Mapping[TableIdentity, Wish],
        totals: IntArray,
        shares: RowShares,
        typical_steps: float,
    ) -> None:
        """Starts a round.

        Args:
          wishes: Priorities of the cells of each table of the round, by table.
          totals: [rows]: sum of the priorities of a row's cells over all tables of the round.
          shares: The share that each row may spend.
          typical_steps: Weight in steps of a mean row that spends all it may on one table.
        """
        self._wishes, self._totals, self._shares = wishes, totals, shares
        self._typical_steps = typical_steps

    def weights(self, table: CandidateTable, cells: Cells, costs: Costs = None) -> IntArray:
        """The weight of each row in the sums of a table, in steps.

        Args:
          table: A table of the round.
          cells: [rows]: cell of each row.
          costs: What a squared weight of 1 costs each row.
        """
        # They depend on the row's own cells, on what is public and on earlier releases, never on
        # sensitive columns of other rows.
        return self._shares.weights(self._wishes[table.identity].wanted, cells, self._totals, costs)

    def typical_steps(self, table: CandidateTable) -> FloatArray:
        """Weight that rows of each cell may have, guessed from what is not sensitive, in steps."""
        steps: FloatArray = self._typical_steps * np.sqrt(self._wishes[table.identity].parts)
        return steps

    def release(
        self,
        raw_sums: Callable[[IntArray], IntArray],
        *,
        weights: IntArray,
        costs: Costs = None,
    ) -> IntArray:
        """Releases the sums of a table: rows weighted by what they spend on it, plus noise.

        Args:
          raw_sums: Function from the weights of rows to their raw sums in steps.
          weights: [rows]: weight of each row in the sums of the table, in steps.
          costs: What a squared weight of 1 costs each row.

        Privacy:
          The same as for `RowShares.release`.
        """
        return self._shares.release(raw_sums, weights=weights, costs=costs)

    def close(self) -> None:
        """Ends the round; what rows weighed in it is still known, as later releases need it."""
        self._shares.close()


def mixed_weights(cells: Cells, rounds: Iterable[tuple[FloatArray, IntArray]]) -> IntArray:
    """Sum of the weights of each row over some rounds, in which rounds count differently.

    Args:
      cells: [rows]: cell of each row.
      rounds: For each round a factor from 0 to 1 for each cell, and the weights of rows in steps.
    """
    # Factors are whole numbers of 2^-15: the sum is exact, so that every engine gets the same. It
    # is at most twice the largest weight, as squares of weights add up to 1 over at most 4 rounds.
    mixed = np.zeros(len(cells), np.int64)
    for factors, weights in rounds:
        numbers = np.ldexp(factors, _FACTOR_BITS).astype(np.int64)
        loops_over_rows(len(cells)).add_products(mixed, numbers, cells, weights)
    mixed >>= _FACTOR_BITS
    return mixed


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
        table.identity: Wish(wanted=_priorities(some, len(tables)), parts=part)
        for table, some, part in zip(tables, wanted, parts, strict=True)
    }


def _priorities(wanted: FloatArray, num_tables: int) -> IntArray:
    """Priorities as whole numbers of which `num_tables` add up to less than `_MOST_TOTAL`."""
    whole = np.rint(np.ldexp(wanted, _PRIORITY_BITS))
    return np.clip(whole, 1, _MOST_TOTAL // num_tables).astype(np.int64)


def _gain_of_next_bit(
    cells: CellSizes, shares: FloatArray, noise_variance: float, rate: float
) -> FloatArray:
    """Gain of a little more share for one row of each cell, up to a factor common to all cells."""
    # A small change of the share is taken to leave the sampling noise of labels (shares * slopes)
    # as it is.
    slopes = cells.slopes(rate)
    signal = cells.pooled * cells.variances * slopes**2 / (noise_variance + shares * slopes)
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
