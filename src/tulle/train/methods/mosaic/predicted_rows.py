"""The rows that a model of cells is trained on, with what it predicts for them so far."""

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.cell_model import cells_of_rows
from tulle.train.methods.mosaic.cell_sums import label_sums, row_sums, sum_by_cell
from tulle.train.methods.mosaic.row_columns import RowColumns

FloatArray = NDArray[np.float64]
Cells = NDArray[np.int64]

_MOST_LOG_ODDS = 30.0


class PredictedRows:
    """Labels, columns and log odds of the training rows. Sensitive: never log or save it."""

    def __init__(self, examples: ExampleSet) -> None:
        if examples.labels is None:
            raise DataError("the training rows have no label column; name one in the schema.")
        # Labels other than 0 and 1 would show through any noise. An id beyond those of its feature
        # would change how many cells there are, or fall into the cell of another id.
        examples.check()
        self._labels = examples.labels.astype(np.float64)
        self._columns = RowColumns(examples)
        self._log_odds = np.zeros(len(self._labels))
        self._predictions = np.full(len(self._labels), 0.5)

    @property
    def num_rows(self) -> int:
        """All of them."""
        return len(self._labels)

    @property
    def one_cell(self) -> Cells:
        """All rows in one cell."""
        return np.zeros(self.num_rows, np.int64)

    def cells(self, table: CandidateTable) -> Cells:
        """The cell of each row. Sensitive if the table has a sensitive column."""
        parts = table.parts
        return cells_of_rows(parts, [self._columns.ids(part.role, part.column) for part in parts])

    def raw_counts(self, role: str, column: int, num_ids: int) -> NDArray[np.int64]:
        """How many rows have each id."""
        return self._columns.raw_counts(role, column, num_ids)

    def raw_label_sums(self, cells: Cells, weights: FloatArray, num_cells: int) -> FloatArray:
        """Labels of each cell, of weighted rows.

        Privacy:
          As `label_sums`.
        """
        return label_sums(cells, self._labels, weights, num_cells)

    def raw_row_sums(self, cells: Cells, weights: FloatArray, num_cells: int) -> FloatArray:
        """Residuals and predictions of each cell, of weighted rows.

        Privacy:
          As `row_sums`.
        """
        return row_sums(cells, self._labels, self._predictions, weights, num_cells)

    def predicted(
        self, cells: Cells, weights: FloatArray, num_cells: int
    ) -> tuple[FloatArray, FloatArray]:
        """Sums of predictions of weighted rows, and of rows weighted by their squares.

        Public as long as the model has used public columns alone.
        """
        weighted = weights * self._predictions
        return (
            sum_by_cell(cells, weighted, num_cells),
            sum_by_cell(cells, weights * weighted, num_cells),
        )

    def add(self, change: FloatArray | float) -> None:
        """Changes the log odds of the rows."""
        self._log_odds += change
        np.clip(self._log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS, out=self._log_odds)
        self._predictions = 1 / (1 + np.exp(-self._log_odds))
