"""Weighted sums of residuals and of predictions over the cells of a table, and their sensitivity.

Before a sensitive column was used, predictions depend on public columns alone: then one label
that changes moves one sum of labels by the weight of its row, and sums of predictions are public.

Afterwards a row of weight a adds a (w (y - p), w p) to its cell, with w = min(1, c / p). A row with
label 1 has a norm of at most a there, one with label 0 of at most a c sqrt(2), and the product of
two such vectors of different labels is at least -a a' c. Say the squares of the weights of a row
in all tables of a round add up to at most 1, and so do those of the row that takes its place.
Then over all tables together they are at most sqrt(2) apart: with equal labels since products are
not negative, with different ones since 1 + 2 c^2 + 2 c = 2 for c = (sqrt(3) - 1) / 2.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.cell_model import CellPart, cells_of_rows

FloatArray = NDArray[np.float64]

LABEL_SENSITIVITY = 1.0
ROW_SENSITIVITY = math.sqrt(2.0)
MOST_PREDICTED = (math.sqrt(3.0) - 1.0) / 2.0
"""c: rows that are predicted to have label 1 with more than this chance count less."""


def label_sums(
    cells: NDArray[np.int64], labels: FloatArray, weights: FloatArray, num_cells: int
) -> FloatArray:
    """Raw sums of the labels of each cell, of weighted rows.

    Privacy:
      Unit: the label of one row, replaced; cells and weights are public. L2 sensitivity: the
      weight of the row. Nothing is released here.
    """
    return sum_by_cell(cells, weights * labels, num_cells)


def row_sums(
    cells: NDArray[np.int64],
    labels: FloatArray,
    predictions: FloatArray,
    weights: FloatArray,
    num_cells: int,
) -> FloatArray:
    """[2, cells]: raw residuals and raw predictions of each cell, of weighted rows.

    Privacy:
      Unit: one row, whose label, cell, prediction and weight are replaced. L2 sensitivity of both
      rows of numbers together: sqrt(2) times the larger weight, for labels of 0 or 1 and
      whatever is predicted. Over several tables: sqrt(2), if squares of the weights of each row
      add up to at most 1. Nothing is released here.
    """
    # A prediction that is no chance would show through any noise.
    chances = np.clip(np.nan_to_num(predictions, nan=0.0), 0.0, 1.0)
    likely = weights * likely_row_weights(chances)
    weighted = likely * chances
    residuals = sum_by_cell(cells, likely * labels - weighted, num_cells)
    return np.stack([residuals, sum_by_cell(cells, weighted, num_cells)])


def likely_row_weights(predictions: FloatArray) -> FloatArray:
    """w of the rows."""
    return np.minimum(1.0, MOST_PREDICTED / np.maximum(predictions, 1e-300))


def sum_by_cell(cells: NDArray[np.integer], values: FloatArray, num_cells: int = 0) -> FloatArray:
    """The sum of the values of each cell."""
    sums: FloatArray = np.bincount(cells, values, minlength=num_cells).astype(np.float64)
    return sums


class RowColumns:
    """Ids of the rows by role and column. Sensitive: never log or save them."""

    def __init__(self, examples: ExampleSet) -> None:
        self._examples = examples
        self._columns: dict[tuple[str, int], NDArray[np.int32]] = {}

    def ids(self, role: str, column: int) -> NDArray[np.int32]:
        """The ids of one feature, one for each row; kept once they were read."""
        key = (role, column)
        if key not in self._columns:
            self._columns[key] = self._read(role, column)
        return self._columns[key]

    def raw_counts(self, role: str, column: int, num_ids: int) -> NDArray[np.int64]:
        """How many rows have each id."""
        return np.bincount(self.ids(role, column), minlength=num_ids)

    def _read(self, role: str, column: int) -> NDArray[np.int32]:
        examples = self._examples
        ids = examples.public_features if role == "public" else examples.sensitive_features
        if ids is None:
            raise DataError("the sensitive columns of these rows are out of reach.")
        chosen = ids[:, column] if examples.rows is None else ids[examples.rows, column]
        return np.ascontiguousarray(chosen)


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

    def cells(self, parts: Sequence[CellPart]) -> Cells:
        """The cell of each row in a table of these parts. Sensitive if one of them is."""
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
