"""The sensitive rows of a run, and their raw sums over the cells of a table with its sensitivity.

`RowColumns` and `PredictedRows` hold the columns, labels and present predictions of the training
rows. `label_sums` and `row_sums` add them up by cell, each row with a weight. Nothing here is
released: noise is added by `noise_shares`.

While only public columns have been used, cells, weights and predictions are public, and the unit
is one label. A label that changes moves one sum of labels in each table, by the weight of its row.

Afterwards the unit is a row with its sensitive columns, and its cell and its prediction p change
with it. A row of weight a and label y adds a v to its cell, with v = (w (y - p), w p) and
w = min(1, c / p). The proof that c = (sqrt(3) - 1) / 2 bounds the distance by sqrt(2):

- For y = 1 the norm of v is at most 1: sqrt((1 - p)^2 + p^2) up to p = c, and no more beyond.
- For y = 0 the norm of v is at most c sqrt(2), since w p is at most c.
- The product of v and v' of two rows with equal labels is not negative. With different labels it
  is at least -c.
- Say the squares of the weights of a row in all tables of a round add up to at most 1, and so do
  those of the row that takes its place. With equal labels the squared distance over all tables
  together is at most the sum of a^2 + a'^2, which is 2. With different labels it is at most the
  sum of a^2 + 2 c^2 a'^2 + 2 c a a', which by Cauchy and Schwarz is at most 1 + 2 c^2 + 2 c = 2.

Without w, a row with y = 0 and p = 1 that takes the place of one with y = 1 and p = 0 would be
sqrt(5) away. See docs/theory/mosaic.md.
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
"""L2 sensitivity of sums of labels over all tables of a round of share 1, if a label is replaced
and cells, weights and predictions are public."""
ROW_SENSITIVITY = math.sqrt(2.0)
"""L2 sensitivity of sums of residuals and predictions over all tables of a round of share 1, if a
row is replaced. The same bounds counts of one column's values: one count falls, one rises."""
MOST_PREDICTED = (math.sqrt(3.0) - 1.0) / 2.0
"""The c of the proof: rows that are predicted to have label 1 with a higher probability than this
count less. It is the positive root of 1 + 2 c^2 + 2 c = 2, the largest c that the bound allows."""


def label_sums(
    cells: NDArray[np.int64], labels: FloatArray, weights: FloatArray, num_cells: int
) -> FloatArray:
    """Raw sums of the labels of each cell, of weighted rows.

    Args:
      cells: [rows]: cell of each row.
      labels: [rows]: labels, each 0 or 1.
      weights: [rows]: weight of each row.
      num_cells: Number of cells of the table.

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
    """Raw residuals and raw predictions of each cell, of weighted rows, as [2, cells].

    Args:
      cells: [rows]: cell of each row.
      labels: [rows]: labels, each 0 or 1.
      predictions: [rows]: predicted probability of label 1.
      weights: [rows]: weight of each row.
      num_cells: Number of cells of the table.

    Privacy:
      Unit: one row, whose label, cell, prediction and weight are replaced. L2 sensitivity of both
      rows of numbers together: sqrt(2) times the larger weight, for labels of 0 or 1 and
      whatever is predicted. Over several tables: sqrt(2), if squares of the weights of each row
      add up to at most 1. Nothing is released here.
    """
    # The sensitivity holds for probabilities. NaN or a number outside [0, 1] would show through
    # any noise, so it is made a probability here rather than trusted.
    chances = np.clip(np.nan_to_num(predictions, nan=0.0), 0.0, 1.0)
    likely = weights * likely_row_weights(chances)
    weighted = likely * chances
    residuals = sum_by_cell(cells, likely * labels - weighted, num_cells)
    return np.stack([residuals, sum_by_cell(cells, weighted, num_cells)])


def likely_row_weights(predictions: FloatArray) -> FloatArray:
    """Factor w = min(1, c / p) of each row, for predictions p."""
    # 1e-300 stands in for p = 0: the quotient is then far above 1 and the minimum is 1.
    return np.minimum(1.0, MOST_PREDICTED / np.maximum(predictions, 1e-300))


def sum_by_cell(cells: NDArray[np.integer], values: FloatArray, num_cells: int = 0) -> FloatArray:
    """The sum of the values of each cell.

    Args:
      cells: [rows]: cell of each row.
      values: [rows]: what is added up.
      num_cells: Least length of the result. Cells beyond the last one that occurs have a sum of 0.
    """
    sums: FloatArray = np.bincount(cells, values, minlength=num_cells).astype(np.float64)
    return sums


class RowColumns:
    """Ids of the rows by role and column. Sensitive: never log or save them."""

    def __init__(self, examples: ExampleSet) -> None:
        self._examples = examples
        self._columns: dict[tuple[str, int], NDArray[np.int32]] = {}

    def ids(self, role: str, column: int) -> NDArray[np.int32]:
        """The ids of one feature, one for each row; kept in memory once they were read."""
        key = (role, column)
        if key not in self._columns:
            self._columns[key] = self._read(role, column)
        return self._columns[key]

    def raw_counts(self, role: str, column: int, num_ids: int) -> NDArray[np.int64]:
        """Number of rows that have each id of a feature.

        Args:
          role: 'public' or 'sensitive'.
          column: Place of the column among the features of that role.
          num_ids: Number of ids of the feature.
        """
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
"""Largest absolute log odds of a row: probabilities stay about 1e-13 away from 0 and 1, and the
exponential cannot overflow however many tables add to a row."""


class PredictedRows:
    """Labels, columns and log odds of the training rows. Sensitive: never log or save it."""

    def __init__(self, examples: ExampleSet) -> None:
        if examples.labels is None:
            raise DataError("the training rows have no label column; name one in the schema.")
        # The sensitivities hold for labels of 0 and 1: any other label would show through the
        # noise. An id beyond those of its feature would change how many cells there are, or fall
        # into the cell of another id.
        examples.check()
        self._labels = examples.labels.astype(np.float64)
        self._columns = RowColumns(examples)
        self._log_odds = np.zeros(len(self._labels))
        self._predictions = np.full(len(self._labels), 0.5)

    @property
    def num_rows(self) -> int:
        """Number of training rows."""
        return len(self._labels)

    @property
    def one_cell(self) -> Cells:
        """Cells of a table that has all rows in one cell, for overall sums."""
        return np.zeros(self.num_rows, np.int64)

    def cells(self, parts: Sequence[CellPart]) -> Cells:
        """The cell of each row in a table of these parts. Sensitive if one of them is."""
        return cells_of_rows(parts, [self._columns.ids(part.role, part.column) for part in parts])

    def raw_counts(self, role: str, column: int, num_ids: int) -> NDArray[np.int64]:
        """Number of rows that have each id of a feature.

        Args:
          role: 'public' or 'sensitive'.
          column: Place of the column among the features of that role.
          num_ids: Number of ids of the feature.

        Privacy:
          Unit: one row, replaced. L2 sensitivity: sqrt(2) for a sensitive column; counts of a
          public column are public. Nothing is released here.
        """
        return self._columns.raw_counts(role, column, num_ids)

    def raw_label_sums(self, cells: Cells, weights: FloatArray, num_cells: int) -> FloatArray:
        """Raw sums of the labels of each cell, of weighted rows.

        Args:
          cells: [rows]: cell of each row.
          weights: [rows]: weight of each row.
          num_cells: Number of cells of the table.

        Privacy:
          The same as for `label_sums`.
        """
        return label_sums(cells, self._labels, weights, num_cells)

    def raw_row_sums(self, cells: Cells, weights: FloatArray, num_cells: int) -> FloatArray:
        """Raw sums of residuals and of predictions of each cell, of weighted rows, as [2, cells].

        Args:
          cells: [rows]: cell of each row.
          weights: [rows]: weight of each row.
          num_cells: Number of cells of the table.

        Privacy:
          The same as for `row_sums`.
        """
        return row_sums(cells, self._labels, self._predictions, weights, num_cells)

    def predicted(
        self, cells: Cells, weights: FloatArray, num_cells: int
    ) -> tuple[FloatArray, FloatArray]:
        """Sums of predictions over each cell: with the weights of rows, and with their squares.

        Args:
          cells: [rows]: cell of each row.
          weights: [rows]: weight of each row.
          num_cells: Number of cells of the table.

        Privacy:
          Public as long as the model has used public columns alone; raw and sensitive afterwards.
        """
        weighted = weights * self._predictions
        return (
            sum_by_cell(cells, weighted, num_cells),
            sum_by_cell(cells, weights * weighted, num_cells),
        )

    def add(self, change: FloatArray | float) -> None:
        """Adds to the log odds of each row, or of all rows, and predicts anew."""
        self._log_odds += change
        np.clip(self._log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS, out=self._log_odds)
        self._predictions = 1 / (1 + np.exp(-self._log_odds))
