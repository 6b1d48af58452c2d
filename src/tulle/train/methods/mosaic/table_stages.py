"""Which tables each stage of training may ask for.

Single columns come first. A pair is asked for if both of its columns have shown something, a
table of three columns if all its pairs have. Tables that tell something are asked again for
details. All of it follows from names, public counts and what was released before.
"""

import itertools
from collections.abc import Iterable, Sequence

from tulle.train.methods.mosaic.candidate_table import CandidateTable, TableIdentity
from tulle.train.methods.mosaic.cell_settings import CellSettings
from tulle.train.methods.mosaic.column_values import ColumnValues


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
