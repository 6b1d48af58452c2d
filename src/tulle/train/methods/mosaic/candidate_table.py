"""A table that may be asked for: its columns, about how large its cells are, what it may gain.

Until a table was looked at, sizes are guessed from the numbers of rows of each column's values, as
if columns were independent. They only decide where the noise budget goes, never what is learnt
from a sum.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.cell_settings import CellSettings
from tulle.train.methods.mosaic.cell_sums import sum_by_cell
from tulle.train.methods.mosaic.column_values import ColumnValues

FloatArray = NDArray[np.float64]

_LEAST_SHARE = 1e-15


@dataclasses.dataclass(eq=False, repr=False)
class FittedTable:
    """All in it is post-processing of noisy sums."""

    weights: FloatArray
    """Change of log odds of each cell."""
    variances: FloatArray
    """What is still unknown of each cell."""
    label_sums: FloatArray
    """Noisy sums of labels: the mean of all releases, as if rows had a weight of 1."""
    label_shares: FloatArray
    """Of the budget, that rows of each cell spent on these sums."""

    @classmethod
    def empty(cls, num_cells: int) -> "FittedTable":
        """Nothing known."""
        weights, variances, label_sums, label_shares = np.zeros((4, num_cells))
        return cls(
            weights=weights, variances=variances, label_sums=label_sums, label_shares=label_shares
        )

    def add_label_sums(self, noisy_sums: FloatArray, mean_weights: FloatArray) -> None:
        """Takes in one more release of sums of the same cells, by how much it tells of each.

        Args:
          noisy_sums: Of labels of weighted rows.
          mean_weights: Of the rows of each cell.
        """
        total = self.label_shares * self.label_sums + mean_weights * noisy_sums
        self.label_shares = self.label_shares + mean_weights**2
        self.label_sums = total / self.known_label_shares()

    def known_label_shares(self) -> FloatArray:
        """The shares, with next to nothing for cells that no row is in."""
        return np.maximum(self.label_shares, _LEAST_SHARE)

    def noise_factors(self) -> FloatArray:
        """By how much the noise on the mean is larger than that of the whole budget."""
        factors: FloatArray = 1 / np.sqrt(self.known_label_shares())
        return factors


TableIdentity = tuple[tuple[str, int, bool], ...]

_BINS_PER_E_FOLD = 4
_LEAST_ROWS = 0.5
_LEAST_NUMBER = 1e-12
_CLEAR_EVIDENCE = 6.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellSizes:
    """Cells, or groups of cells that are about alike."""

    rows: FloatArray
    """Of a cell, about."""
    variances: FloatArray
    """What is unknown of the log odds of a cell."""
    numbers: FloatArray
    """How many cells are alike."""

    def slopes(self, rate: float) -> FloatArray:
        """How many labels more a cell expects for each unit of log odds."""
        slopes: FloatArray = rate * (1 - rate) * self.rows
        return slopes

    def seen(self, noise_variance: FloatArray | float, rate: float) -> FloatArray:
        """Of the variance of each cell, what sums with this noise show."""
        slopes = self.slopes(rate)
        signal = slopes**2 * self.variances
        seen: FloatArray = self.variances * signal / (signal + slopes + noise_variance)
        return seen

    def gain(self, noise_variance: FloatArray | float, rate: float) -> float:
        """Nats that sums with this noise are worth: the variance that they explain."""
        return 0.5 * float(self.slopes(rate) @ (self.numbers * self.seen(noise_variance, rate)))

    def evidence(self, noise_variance: FloatArray | float, rate: float) -> float:
        """Nats by which sums with this noise would show that cells differ as expected."""
        slopes = self.slopes(rate)
        ratios = slopes**2 * self.variances / (slopes + noise_variance)
        return 0.5 * float(self.numbers @ (ratios - np.log1p(ratios)))


class CandidateTable:
    """Columns, sizes, and how much the log odds of its cells are thought to spread still.

    Args:
      columns: Up to three.
      num_rows: Of all training rows.
      spread: Expected standard deviation of the log odds between its cells.
      max_cells: Rare values are taken together until there are no more cells.
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
            rows=rows, numbers=numbers, variances=np.full(len(rows), spread**2)
        )
        self.is_tested = False
        self.has_more_to_tell = False
        self.is_undecided = False
        """True if it has shown nothing, and would not have done so either with what is expected."""
        self.first_spread = 0.0
        """What it showed when it was first seen to tell something."""
        self.realised_gain = 0.0
        """Nats that its changes are thought to have gained so far."""

    @property
    def identity(self) -> TableIdentity:
        """No two tables have the same."""
        return tuple(column.identity for column in self.columns)

    @property
    def num_cells(self) -> int:
        """Of the whole domain, whether a row is there or not."""
        return math.prod(self.sizes)

    @property
    def parts(self) -> tuple[CellPart, ...]:
        """The columns as the model looks them up."""
        return tuple(
            column.part(size) for column, size in zip(self.columns, self.sizes, strict=True)
        )

    @property
    def cells(self) -> CellSizes:
        """Each of its cells."""
        rows = self._guessed_rows() if self._rows is None else self._rows
        return CellSizes(
            rows=rows,
            variances=np.broadcast_to(self._variances, rows.shape),
            numbers=np.broadcast_to(1.0, rows.shape),
        )

    def expected_gain(self, noise_variance: float, rate: float) -> float:
        """Nats that sums with this noise are worth."""
        return self._groups.gain(noise_variance, rate)

    def note_spread(
        self,
        spread: float,
        noise_variance: FloatArray | float,
        rate: float,
        *,
        rows: FloatArray | None = None,
    ) -> None:
        """Remembers how far cells were seen to spread, and what is still unknown of them.

        Args:
          spread: 0 if nothing was seen.
          noise_variance: Of the sums, of rows of weight 1.
          rate: Typical prediction.
          rows: Of each cell, as the sums show them.
        """
        evidence = self.cells.evidence(noise_variance, rate)
        self.is_undecided = spread == 0 and evidence < _CLEAR_EVIDENCE
        self.is_tested, self.has_more_to_tell = True, spread > 0
        self.first_spread = self.first_spread or spread
        if spread > 0:
            self._rows = self._rows if rows is None else rows
            self._see(spread**2, noise_variance, rate)

    def note_again(self, scale: float, noise_variance: FloatArray | float, rate: float) -> None:
        """Remembers by which factor less was left than thought, and what is unknown now."""
        self.has_more_to_tell = scale > 0
        self._see(scale * self._variances, noise_variance, rate)

    def _see(
        self, variances: FloatArray | float, noise_variance: FloatArray | float, rate: float
    ) -> None:
        self._variances = variances
        cells = self.cells
        self._variances = cells.variances - cells.seen(noise_variance, rate)
        self._groups = _grouped(self.cells)

    def _guessed_rows(self) -> FloatArray:
        """As if columns were independent."""
        rows = np.array([float(self._num_rows)])
        for column, size in zip(self.columns, self.sizes, strict=True):
            rows = np.outer(rows, column.limited_counts(size) / self._num_rows).ravel()
        return rows


def _limited_sizes(sizes: list[int], max_cells: int) -> tuple[int, ...]:
    """Fewer values of the column with the most, until the table is small enough."""
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
    """Rows of a cell, and how many cells have about so many."""
    rows, numbers = np.array([float(num_rows)]), np.array([1.0])
    for column, size in zip(columns, sizes, strict=True):
        counts = column.limited_counts(size)
        counts = counts[counts >= _LEAST_ROWS]
        values, times = _binned(counts, np.ones(len(counts)))
        rows, numbers = _binned(
            np.outer(rows, values / num_rows).ravel(), np.outer(numbers, times).ravel()
        )
    return rows, numbers


def _binned(values: FloatArray, times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values of about the same size as one, so that lists stay short."""
    if values.size == 0:
        return np.zeros(1), np.zeros(1)
    places = _alike(values)
    numbers = sum_by_cell(places, times)
    return sum_by_cell(places, values * times) / np.maximum(numbers, _LEAST_NUMBER), numbers


def _grouped(cells: CellSizes) -> CellSizes:
    """Cells of about the same size and variance as one."""
    places = _alike(cells.rows, cells.variances)
    numbers = sum_by_cell(places, cells.numbers)
    return CellSizes(
        rows=sum_by_cell(places, cells.rows) / numbers,
        variances=sum_by_cell(places, cells.variances) / numbers,
        numbers=numbers,
    )


def _alike(*values: FloatArray) -> NDArray[np.int64]:
    """For each place the number of its group: those whose values are of about the same size."""
    places = np.zeros(len(values[0]), np.int64)
    for some in values:
        bins = np.floor(_BINS_PER_E_FOLD * np.log(np.maximum(some, _LEAST_NUMBER)))
        _, numbers = np.unique(bins, return_inverse=True)
        _, places = np.unique(
            places * (int(numbers.max(initial=0)) + 1) + numbers, return_inverse=True
        )
    return places


class TableStages:
    """All tables that were thought of so far."""

    def __init__(self, settings: CellSettings, *, num_rows: int) -> None:
        self._settings = settings
        self._num_rows = num_rows
        self._tables: dict[TableIdentity, CandidateTable] = {}

    def singles(self, columns: Iterable[ColumnValues]) -> list[CandidateTable]:
        """A table for each column whose rows have two values or more."""
        return [self._table(column) for column in columns if column.num_occurring > 1]

    def public_pairs(self, columns: Sequence[ColumnValues]) -> list[CandidateTable]:
        """Pairs of public columns."""
        return self._pairs(itertools.combinations(self._telling(columns), 2))

    def sensitive_pairs(
        self, sensitive: Sequence[ColumnValues], public: Sequence[ColumnValues]
    ) -> list[CandidateTable]:
        """Sensitive columns with each other and with public ones."""
        telling = self._telling(sensitive)
        pairs = self._pairs(itertools.combinations(telling, 2))
        return pairs + self._pairs(itertools.product(telling, self._telling(public)))

    def triples(self) -> list[CandidateTable]:
        """Crosses of the pairs that showed most."""
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
        """Those of which more is to be learnt: single columns also if they are undecided."""
        return [
            table
            for table in self._tables.values()
            if table.has_more_to_tell or (table.is_undecided and len(table.columns) == 1)
        ]

    def _telling(self, columns: Iterable[ColumnValues]) -> list[ColumnValues]:
        """Those whose own table has shown something."""
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
        expected = self._settings.expected_spreads[len(columns) - 1]
        if len(columns) == 1:
            return expected
        coarser = itertools.combinations(columns, len(columns) - 1)
        least = min(self._shown(some) for some in coarser)
        return min(expected, self._settings.heredity[len(columns) - 2] * least)

    def _shown(self, columns: Sequence[ColumnValues]) -> float:
        """How far the cells of a table were seen to spread; 0 if it was never asked for."""
        table = self._tables.get(_identity(columns))
        return 0.0 if table is None else table.first_spread


def _identity(columns: Sequence[ColumnValues]) -> TableIdentity:
    return tuple(sorted(column.identity for column in columns))


def _are_different(columns: Iterable[ColumnValues]) -> bool:
    """False if one is a coarse form of another."""
    sources = [column.source for column in columns]
    return len(set(sources)) == len(sources)
