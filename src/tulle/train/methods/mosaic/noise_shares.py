"""One Gaussian noise budget, given out in shares, and how shares are divided.

A share is a fraction w of the budget. A release of sensitivity s with share w gets noise of
standard deviation s * noise_multiplier / sqrt(w). Shares may be chosen by what was released
before. As long as they add up to at most 1, all releases together tell no more than one number of
sensitivity 1 with noise of standard deviation noise_multiplier. The reason: each release is what a
Brownian motion with the data's drift shows over a time w, and all of them are its path up to time
1 (the privacy filter of Smith and Thakurta 2022).

Each row may also spend a share on its own. Releases then have weighted rows, and the squares of
the weights of each row add up to at most the share. Rows divide the share differently, but none
spends more than the others. The proof is in docs/theory/mosaic.md.

Shares are divided in two steps, both by expected gains that follow from public and noisy numbers
alone:

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
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.methods.mosaic.candidate_table import CandidateTable, CellSizes, TableIdentity
from tulle.train.steps.normal_stream import NormalStream, SecretNoise

FloatArray = NDArray[np.float64]

_ROUNDING = 1e-9
"""Fraction by which the parts that a row spends may exceed its share, because floats are rounded.
This reserve is taken from the budget together with the share; beyond it a release is refused."""


class NoiseShares(SecretNoise):
    """Draws noise and keeps count of what is left. Make one object for each run and process."""

    def __init__(self, noise_multiplier: float, *, rng: NoiseSource) -> None:
        """Starts a budget.

        Args:
          noise_multiplier: Noise multiplier of the whole budget, for sensitivity 1.
          rng: Source of the generator's key. Sensitive: never log or save its state.
        """
        super().__init__()
        if not (math.isfinite(noise_multiplier) and noise_multiplier > 0):
            raise ConfigError(f"noise_multiplier={noise_multiplier} must be a number above 0.")
        self._noise_multiplier = noise_multiplier
        # All noise comes from this generator: with the seeded source of an experiment a run can be
        # repeated.
        self._normals = NormalStream(np.random.Philox(key=rng.words(2)))
        self._left = 1.0

    @property
    def left(self) -> float:
        """Share of the budget that has not been given out."""
        return self._left

    def stddev(self, share: float, sensitivity: float) -> float:
        """Standard deviation of the noise on a release with this share."""
        if not 0 < share <= 1:
            raise ConfigError(f"share={share} must be above 0, at most 1.")
        return sensitivity * self._noise_multiplier / math.sqrt(share)

    def release(self, raw: FloatArray, *, sensitivity: float, share: float) -> FloatArray:
        """Takes a share from the budget, and then adds noise to sums.

        Args:
          raw: Sums over rows, of any shape.
          sensitivity: Largest L2 distance of all of `raw` together if one unit is replaced.
          share: Share of the budget for this release.

        Privacy:
          Unit and adjacency: those of `sensitivity`. Event: this share of one Gaussian.

        Raises:
          ConfigError: Less is left than is asked for.
        """
        self.stddev(share, sensitivity)
        self._take(share)
        return self._noisy(raw, sensitivity, share)

    def for_rows(self, share: float, num_rows: int, *, sensitivity: float) -> "RowShares":
        """Takes a share from the budget that each row then spends on its own.

        Args:
          share: Share of the budget that each row may spend.
          num_rows: Number of all rows that are in the sums.
          sensitivity: Largest L2 distance of all releases together, if one unit is replaced and
            squares of the weights of every row add up to at most 1.

        Raises:
          ConfigError: Less is left than is asked for.
        """
        self.stddev(share, sensitivity)
        self._take(share * (1 + _ROUNDING))

        def noisy(raw: FloatArray) -> FloatArray:
            # Weights have the factor sqrt(share), so the noise is that of the whole budget: the
            # ratio of both is that of a release with this share.
            return self._noisy(raw, sensitivity, 1.0)

        return RowShares(share, num_rows, noisy)

    def _take(self, share: float) -> None:
        """Deducts a share before anything is released, so that a failure can only over-count."""
        # A forked process would draw the same noise, and count the same budget, twice.
        self.check_own_process()
        if share > self._left:
            raise ConfigError(
                f"share={share:.6g} is more than the {self._left:.6g} that is left of the noise "
                "budget; ask for less."
            )
        self._left -= share

    def _noisy(self, raw: FloatArray, sensitivity: float, share: float) -> FloatArray:
        """Adds noise. Precondition: the caller has already deducted `share` from the budget."""
        self.check_own_process()
        noise = np.empty(raw.size, np.float64)
        self._normals.fill(noise, self.stddev(share, sensitivity))
        return raw + noise.reshape(raw.shape)


class RowShares(SecretNoise):
    """A share that every row spends on its own. Sensitive, as what rows have spent may be.

    It cannot be copied: a copy would let rows spend their share a second time.

    Args:
      share: Share of the budget that each row may spend.
      num_rows: Number of all rows that are in the sums.
      noisy: Function that adds the noise of the whole budget to raw sums.
    """

    def __init__(
        self, share: float, num_rows: int, noisy: Callable[[FloatArray], FloatArray]
    ) -> None:
        super().__init__()
        self._share = share
        self._spent = np.zeros(num_rows)
        self._noisy = noisy

    def weights(self, parts: FloatArray) -> FloatArray:
        """The weight of each row in a release on which it spends these fractions of its share."""
        weights: FloatArray = np.sqrt(self._share * parts)
        return weights

    def release(
        self, raw_sums: Callable[[FloatArray], FloatArray], *, parts: FloatArray
    ) -> FloatArray:
        """Adds noise to sums of weighted rows, after each row has paid for its weight.

        Args:
          raw_sums: Function from the weights of rows to their raw sums.
          parts: [rows]: fraction of its share that each row spends on this release. It may depend
            on the row itself and on earlier releases, never on other rows.

        Privacy:
          Unit and adjacency: those of the sensitivity that the share was taken with. Event: all
          releases together are that share of one Gaussian.

        Raises:
          ConfigError: A row would spend more than its share.
        """
        spent = self._spent + parts
        # Written so that NaN is refused, too: a comparison with NaN is false.
        if not (parts.min(initial=0.0) >= 0 and spent.max(initial=0.0) <= 1 + _ROUNDING):
            raise ConfigError("a row would spend more than its share; ask for smaller parts.")
        self._spent = spent
        return self._noisy(raw_sums(self.weights(parts)))


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
