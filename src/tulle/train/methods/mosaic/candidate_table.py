"""Tables of cells: which tables may be measured, and what they are expected to gain.

A table groups the training rows by one to three columns. Its cells are the combinations of values
of these columns (`column_values`), and every row is in exactly one of them. The file holds two
things:

- `CandidateTable` and `CellSizes`: how many rows each cell has, about, how far the log odds of the
  cells are thought to spread, and so how many nats of log loss a measurement would gain.
- `TableStages`: all tables that were considered so far, and which come next: single columns, then
  pairs of columns that showed something, then triples made of the best pairs.

Until a table has been measured, the sizes of its cells are guessed from the counts of each column's
values, as if columns were independent. Sizes and expected gains only decide where the noise budget
goes, never what is learnt from a sum. They follow from public and noisy numbers alone.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.column_values import LEAST_ROWS, ColumnValues
from tulle.train.methods.mosaic.method import CellSettings
from tulle.train.methods.mosaic.ordered_cells import OrderedAxis

FloatArray = NDArray[np.float64]

TableIdentity = tuple[tuple[str, int, int], ...]

_BINS_PER_E_FOLD = 4
"""Bins for each factor e of a size: cells whose sizes differ by less than about 28% are taken as
alike, so that an expected gain is a sum over groups of cells and not over up to 2^18 of them."""
_TYPICAL_STRETCHES = 24
"""Stretches of a column of numbers that are thought to differ before it was measured: bins of one
stretch share their evidence, so that more bins need no more of the budget than so many values."""
_LEAST_BINS = 3
"""Bins from which on an order tells more than that two cells differ."""
_LEAST_NUMBER, _MOST_NUMBER = 1e-12, 1e12
"""Positive number that stands in for 0 before a logarithm or a division, and the largest number of
rows that is told from larger ones."""
_CLEAR_EVIDENCE = 6.0
"""Nats of evidence that a measurement should have shown, in expectation, before silence counts as
a sign that the cells do not differ. With less, the table stays undecided."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellSizes:
    """Sizes and unknown variances of cells, or of groups of cells that are about alike."""

    rows: FloatArray
    """Approximate number of rows in each cell."""
    variances: FloatArray
    """Variance of what is unknown about the log odds of each cell."""
    numbers: FloatArray
    """Number of cells that are alike and stand in one entry."""
    pooled: float = 1.0
    """Number of neighbouring cells that are thought to tell about each other: 1 if there is no
    order."""

    def slopes(self, rate: float) -> FloatArray:
        """Expected additional labels of each cell for one more unit of log odds."""
        slopes: FloatArray = rate * (1 - rate) * self.rows
        return slopes

    def seen(self, noise_variance: FloatArray | float, rate: float) -> FloatArray:
        """Part of each cell's variance that sums with this noise would explain."""
        slopes = self.slopes(rate)
        # Normal approximation: a sum moves by slope * b for a change b of log odds. Beside the
        # noise it varies as labels do, by rows * rate * (1 - rate), which is the slope again.
        # Neighbours that are alike add up their sums, and the variances of their noise.
        signal = self.pooled * slopes**2 * self.variances
        seen: FloatArray = self.variances * signal / (signal + slopes + noise_variance)
        return seen

    def gain(self, noise_variance: FloatArray | float, rate: float) -> float:
        """Nats of log loss that sums with this noise are expected to gain."""
        # To second order, log odds that are off by b cost slope * b^2 / 2 nats a cell.
        return 0.5 * float(self.slopes(rate) @ (self.numbers * self.seen(noise_variance, rate)))

    def evidence(self, noise_variance: FloatArray | float, rate: float) -> float:
        """Expected nats of evidence, in sums with this noise, that cells differ as expected."""
        # Relative entropy of N(0, 1 + ratio) from N(0, 1), added up over cells.
        slopes = self.slopes(rate)
        ratios = self.pooled * slopes**2 * self.variances / (slopes + noise_variance)
        return 0.5 * float(self.numbers @ (ratios - np.log1p(ratios))) / self.pooled


class CandidateTable:
    """A table that may be measured: columns, sizes of cells, and what is expected of it.

    Args:
      columns: One to three columns that the table groups rows by.
      num_rows: Number of all training rows.
      spread: Expected standard deviation of the log odds between its cells.
      max_cells: Largest number of cells. Rare values of a column are merged until the table fits.
    """

    def __init__(
        self, columns: Sequence[ColumnValues], *, num_rows: int, spread: float, max_cells: int
    ) -> None:
        self.columns = tuple(sorted(columns, key=lambda column: column.identity))
        self.sizes = _limited_sizes([column.num_values for column in self.columns], max_cells)
        self._num_rows = num_rows
        self._rows: FloatArray | None = None
        self._variances: FloatArray | float = spread**2
        rows, numbers = _expected_groups(self.columns, self.sizes, num_rows)
        self._groups = CellSizes(
            rows=rows,
            numbers=numbers,
            variances=np.full(len(rows), spread**2),
            pooled=self._pooled,
        )
        self.is_tested = False
        self.is_started = False
        """True if an earlier model knew the table, which is then not screened."""
        self.has_more_to_tell = False
        self.is_undecided = False
        """True if it has shown nothing, but cells that differ as expected might not have shown
        either, because the noise was too large."""
        self.first_spread = 0.0
        """Spread of the log odds when cells were first seen to differ; 0 until then."""
        self.realised_gain = 0.0
        """Nats of log loss that its changes are thought to have gained so far."""

    @property
    def identity(self) -> TableIdentity:
        """Key that no other table has."""
        return tuple(column.identity for column in self.columns)

    @property
    def is_of_fact(self) -> bool:
        """Whether it groups values by what is publicly known of them."""
        return any(column.is_of_fact for column in self.columns)

    @property
    def num_cells(self) -> int:
        """Number of all possible cells, whether a row is in them or not."""
        # Only the cells that occur would be cheaper, but which ones occur is sensitive.
        return math.prod(self.sizes)

    @property
    def parts(self) -> tuple[CellPart, ...]:
        """The columns as the model looks them up."""
        return tuple(
            column.part(size) for column, size in zip(self.columns, self.sizes, strict=True)
        )

    @property
    def axes(self) -> tuple[OrderedAxis, ...]:
        """The columns whose values are bins that lie in order, long enough to have neighbours."""
        return tuple(
            OrderedAxis(
                sizes=self.sizes,
                place=place,
                num_bins=column.num_bins_of(size),
                is_cycle=column.order == "cycle",
            )
            for place, (column, size) in enumerate(zip(self.columns, self.sizes, strict=True))
            if column.num_bins_of(size) >= _LEAST_BINS
        )

    @property
    def cells(self) -> CellSizes:
        """Sizes of all of its cells, one by one."""
        rows = self._guessed_rows() if self._rows is None else self._rows
        return CellSizes(
            rows=rows,
            variances=np.broadcast_to(self._variances, rows.shape),
            numbers=np.broadcast_to(1.0, rows.shape),
            pooled=self._pooled,
        )

    @property
    def _pooled(self) -> float:
        bins = [axis.num_bins for axis in self.axes]
        return max([1.0, *(number / _TYPICAL_STRETCHES for number in bins)])

    def expected_gain(self, noise_variance: float, rate: float) -> float:
        """Nats of log loss that sums with this noise are expected to gain."""
        return self._groups.gain(noise_variance, rate)

    def note_spread(
        self,
        spread: float,
        noise_variance: FloatArray | float,
        rate: float,
        *,
        rows: FloatArray | None = None,
        variances: FloatArray | float | None = None,
    ) -> None:
        """Remembers how far cells were seen to spread, and what is still unknown of them.

        Args:
          spread: Standard deviation of the log odds between cells; 0 if nothing was seen.
          noise_variance: Variance of the noise on the sums, as if rows had a weight of 1.
          rate: Typical prediction.
          rows: [cells]: number of rows of each cell as the sums show it; None keeps the guess.
          variances: Variance of what was unknown of each cell before its own sum was seen, one
            for all or one for each; None: the square of the spread.
        """
        # Before anything is updated: what would have been seen if cells differed as expected?
        evidence = self.cells.evidence(noise_variance, rate)
        self.is_undecided = spread == 0 and evidence < _CLEAR_EVIDENCE
        self.is_tested, self.has_more_to_tell = True, spread > 0
        self.first_spread = self.first_spread or spread
        if spread > 0:
            self._rows = self._rows if rows is None else rows
            self._see(spread**2 if variances is None else variances, noise_variance, rate)

    def note_again(
        self,
        scale: float,
        noise_variance: FloatArray | float,
        rate: float,
        *,
        variances: FloatArray | None = None,
    ) -> None:
        """Remembers by which factor less was left than thought, and what is unknown now.

        Args:
          scale: Factor of the variances that explains the new sums best; 0 if nothing is left.
          noise_variance: Variance of the noise on the sums, as if rows had a weight of 1.
          rate: Typical prediction.
          variances: [cells]: the variances that this is a factor of; None: what was unknown before
            these sums.
        """
        self.has_more_to_tell = scale > 0
        before = self._variances if variances is None else variances
        self._see(scale * before, noise_variance, rate)

    def note_start(self, spread: float, variances: FloatArray, predicted_gain: float) -> None:
        """Remembers what an earlier model knew, which spares the first look.

        Args:
          spread: Standard deviation of the log odds between cells.
          variances: [cells]: variance of what is unknown about each.
          predicted_gain: Nats of log loss that its weights are thought to have gained.
        """
        self.is_tested, self.is_started, self.has_more_to_tell = True, True, True
        self.first_spread, self.realised_gain = spread, predicted_gain
        self._variances = variances
        self._groups = _grouped(self.cells)

    def _see(
        self, variances: FloatArray | float, noise_variance: FloatArray | float, rate: float
    ) -> None:
        self._variances = variances
        cells = self.cells
        self._variances = cells.variances - cells.seen(noise_variance, rate)
        self._groups = _grouped(self.cells)

    def _guessed_rows(self) -> FloatArray:
        """Number of rows of each cell, guessed as if columns were independent."""
        rows = np.array([float(self._num_rows)])
        for column, size in zip(self.columns, self.sizes, strict=True):
            rows = np.outer(rows, column.limited_counts(size) / self._num_rows).ravel()
        return rows


def _limited_sizes(sizes: list[int], max_cells: int) -> tuple[int, ...]:
    """Number of values of each column, cut at the largest column until the table is small enough.

    Args:
      sizes: Number of values of each column.
      max_cells: Largest number of cells of the table.
    """
    limited = list(sizes)
    while math.prod(limited) > max_cells:
        largest = int(np.argmax(limited))
        others = [size for place, size in enumerate(limited) if place != largest]
        fitting = max_cells // math.prod(others)
        # Never below the next largest, so that all columns of a table shrink alike.
        limited[largest] = max(fitting, min(max(others, default=1), limited[largest] // 2), 1)
    return tuple(limited)


def _expected_groups(
    columns: Sequence[ColumnValues], sizes: Sequence[int], num_rows: int
) -> tuple[FloatArray, FloatArray]:
    """Sizes of cells, and how many cells have about that size, as if columns were independent.

    Each column is binned before it is crossed with the next, so that the lists stay short even
    where the table itself has 2^18 cells.
    """
    rows, numbers = np.array([float(num_rows)]), np.array([1.0])
    for column, size in zip(columns, sizes, strict=True):
        counts = column.limited_counts(size)
        counts = counts[counts >= LEAST_ROWS]
        values, times = _binned(counts, np.ones(len(counts)))
        rows, numbers = _binned(
            np.outer(rows, values / num_rows).ravel(), np.outer(numbers, times).ravel()
        )
    return rows, numbers


def _binned(values: FloatArray, times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Merges values of about the same size into their mean, so that lists stay short."""
    if values.size == 0:
        return np.zeros(1), np.zeros(1)
    places = _alike(values)
    numbers = _sums(places, times)
    return _sums(places, values * times) / np.maximum(numbers, _LEAST_NUMBER), numbers


def _grouped(cells: CellSizes) -> CellSizes:
    """Merges cells of about the same size and variance into one entry."""
    places = _alike(cells.rows, cells.variances)
    numbers = _sums(places, cells.numbers)
    return CellSizes(
        rows=_sums(places, cells.rows) / numbers,
        variances=_sums(places, cells.variances) / numbers,
        numbers=numbers,
        pooled=cells.pooled,
    )


def _sums(places: NDArray[np.integer], values: FloatArray, num_places: int = 0) -> FloatArray:
    """The sum of the values of each place. All of them are public or noisy."""
    return np.bincount(places, values, minlength=num_places).astype(np.float64)


def _alike(*values: FloatArray) -> NDArray[np.int64]:
    """Number of the group of each entry; a group has entries whose values are about the same."""
    least, most = (_bin(np.array(number)) for number in (_LEAST_NUMBER, _MOST_NUMBER))
    places = np.zeros(len(values[0]), np.int64)
    for some in values:
        # fmin and fmax give a bin even to what is not a number.
        bins = _bin(np.fmin(np.fmax(some, _LEAST_NUMBER), _MOST_NUMBER)) - least
        places = places * (int(most - least) + 1) + bins
        # There are few bins: counting them numbers those that occur without sorting all entries.
        places = (np.cumsum(np.bincount(places) > 0) - 1)[places]
    return places


def _bin(sizes: FloatArray) -> NDArray[np.int64]:
    """Bins of sizes, even on the scale of their logarithms."""
    bins: NDArray[np.int64] = np.floor(_BINS_PER_E_FOLD * np.log(sizes)).astype(np.int64)
    return bins


class TableStages:
    """All tables that were considered so far, and those that the next stage may add.

    A pair is only considered if each of its columns has shown something alone, and a triple only
    if it joins two of the pairs that showed most. The number of tables, and with it the noise that
    looking for the good ones costs, stays small.

    Args:
      settings: How far tables are expected to spread, and how large they may be.
      num_rows: Number of all training rows.
    """

    def __init__(self, settings: CellSettings, *, num_rows: int) -> None:
        self._settings = settings
        self._num_rows = num_rows
        self._tables: dict[TableIdentity, CandidateTable] = {}

    def singles(self, columns: Iterable[ColumnValues]) -> list[CandidateTable]:
        """A table for each column whose rows have two values or more."""
        return [self._table(column) for column in columns if column.num_occurring > 1]

    def public_pairs(self, columns: Sequence[ColumnValues]) -> list[CandidateTable]:
        """Tables of two public columns that each have shown something alone."""
        return self._pairs(itertools.combinations(self._telling(columns), 2))

    def sensitive_pairs(
        self, sensitive: Sequence[ColumnValues], public: Sequence[ColumnValues]
    ) -> list[CandidateTable]:
        """Tables of two columns that each have shown something alone, one or both sensitive.

        Args:
          sensitive: Sensitive columns, and their coarse forms.
          public: Public columns, to be paired with sensitive ones.
        """
        telling = self._telling(sensitive)
        pairs = self._pairs(itertools.combinations(telling, 2))
        return pairs + self._pairs(itertools.product(telling, self._telling(public)))

    def triples(self) -> list[CandidateTable]:
        """Tables of three columns: two of the best pairs that share a column, joined."""
        pairs = sorted(
            (table for table in self._tables.values() if len(table.columns) == 2),
            key=lambda table: -table.realised_gain,
        )
        crossed = []
        for one, other in itertools.combinations(pairs[: self._settings.num_crossed_pairs], 2):
            columns = {column.identity: column for column in (*one.columns, *other.columns)}
            if len(columns) == 3 and _are_different(columns.values()):
                table = self._table(*columns.values())
                if not table.is_tested and table not in crossed:
                    crossed.append(table)
        return crossed

    def known(self) -> list[CandidateTable]:
        """Tables that have more to tell. Single columns also count while they are undecided."""
        return [
            table
            for table in self._tables.values()
            if table.has_more_to_tell or (table.is_undecided and len(table.columns) == 1)
        ]

    def started(self, columns: Sequence[ColumnValues]) -> CandidateTable:
        """The table of some columns that an earlier model had."""
        return self._table(*columns)

    def _telling(self, columns: Iterable[ColumnValues]) -> list[ColumnValues]:
        """Columns whose own table has shown something."""
        return [column for column in columns if self._shown([column]) > 0]

    def _pairs(self, pairs: Iterable[tuple[ColumnValues, ColumnValues]]) -> list[CandidateTable]:
        return [self._table(*pair) for pair in pairs if _are_different(pair)]

    def _table(self, *columns: ColumnValues) -> CandidateTable:
        identity = _identity(columns)
        if identity not in self._tables:
            self._tables[identity] = CandidateTable(
                columns,
                num_rows=self._num_rows,
                spread=self._expected_spread(columns),
                max_cells=self._settings.max_cells_per_table,
            )
        return self._tables[identity]

    def _expected_spread(self, columns: Sequence[ColumnValues]) -> float:
        """Standard deviation of log odds to expect, limited by what coarser tables showed."""
        expected = self._settings.expected_spreads[len(columns) - 1]
        if len(columns) == 1:
            return expected
        coarser = itertools.combinations(columns, len(columns) - 1)
        least = min(self._shown(some) for some in coarser)
        return min(expected, self._settings.heredity[len(columns) - 2] * least)

    def _shown(self, columns: Sequence[ColumnValues]) -> float:
        """How far the cells of a table were seen to spread; 0 if it was never measured."""
        table = self._tables.get(_identity(columns))
        return 0.0 if table is None else table.first_spread


def _identity(columns: Sequence[ColumnValues]) -> TableIdentity:
    return tuple(sorted(column.identity for column in columns))


def _are_different(columns: Iterable[ColumnValues]) -> bool:
    """False if two of them are the same column, or one is a coarse form of another."""
    sources = [column.source for column in columns]
    return len(set(sources)) == len(sources)
