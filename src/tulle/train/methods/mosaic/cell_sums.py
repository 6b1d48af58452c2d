"""The sensitive rows of a run, and their exact sums over the cells of a table.

`RowColumns` and `PredictedRows` hold the columns, labels and present predictions of the training
rows. `label_sums` and `row_sums` add them up by cell, each row with a weight, by loops in C or in
numpy (`cell_kernels`, `row_loops`). Nothing here is released: noise is added by `noise_shares`.

All of it is whole numbers, so that a sum is the same in whatever order its rows come, in one piece
or in many, and in every engine that adds whole numbers:

- Log odds are steps of 2^-12. So are the bias and the weights of the model: the log odds of a row
  are a sum of steps, and its probability is looked up in one public table (`probabilities`).
- Probabilities are parts of 2^30.
- Labels are parts of 2^30 of the largest value that a label has: 0 or 2^30, or anything between if
  labels are values (`label_parts`).
- Weights of rows are steps of the noise (`noise_shares`), at most 2^30 of them.
- A row adds (weight * probability) >> 30 steps: the product rounded down.

While only public columns have been used, cells, weights and predictions are public, and the unit
is one label. A label that changes moves one sum of labels in each table, by the weight of its row.

Afterwards the unit is a row with its sensitive columns, and its cell and its prediction p change
with it. A row of weight a and label y adds (y U - Q, Q) to its cell, with U = floor(a u),
Q = floor(a min(p, c)) and u = min(1, c / p). Let c be at most (sqrt(3) - 1) / 2. The distance of
two such rows is then at most sqrt(2) times their weight, over all tables of a round together. The
proof (docs/theory/mosaic.md) needs nothing of the roundings but 0 <= Q <= U <= a and Q <= c a. If
y is between 0 and 1, y U is rounded down as well, and a is a little below the weight that the row
has paid for. With K classes, a row adds to the tables of all of them, and c is smaller
(`most_predicted`).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.cell_kernels import loops_over_rows
from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.label_parts import LABEL_BITS, label_parts
from tulle.train.methods.mosaic.row_numbers import (
    SQUARE_BITS,
    Cells,
    IntArray,
    Probabilities,
    RowRules,
    Weights,
)
from tulle.train.methods.mosaic.row_parts import DividedLabels

FloatArray = NDArray[np.float64]

_ONE = np.int64(1)
"""Weight of rows that are only counted."""
LABEL_SENSITIVITY = 1.0
"""L2 sensitivity of sums of labels over all tables of a round of share 1, if a label is replaced
and cells, weights and predictions are public."""
ROW_SENSITIVITY = math.sqrt(2.0)
"""L2 sensitivity of sums of residuals and predictions over all tables of a round of share 1, if a
row is replaced. The same bounds counts of one column's values: one count falls, one rises."""

MAX_ROWS = 1 << 30
"""Most rows of a run. A sum of so many terms of at most 2^32 (`row_loops`) is at most 2^62, which
with its noise fits 64 bits; more rows are refused before anything is summed."""
PROBABILITY_BITS = 30
"""Probabilities are parts of 2^30: one part in a billion. Times a weight they stay below 2^62."""


def most_predicted(num_classes: int) -> int:
    """The c of the proof in parts of 2^30, rounded down.

    Rows that are predicted to be of a class with a higher probability count less in its tables. For
    K classes it is the positive root of 1 + 2 c + 2 (K - 1) c^2 = 2, the largest number with which
    a whole row that is replaced costs no more than a label: twice the share of one class. One set
    of tables for labels of 0 and 1 needs the same number as two classes do.

    Args:
      num_classes: Number of classes, at least 2.
    """
    root = math.isqrt((2 * num_classes - 1) << 2 * PROBABILITY_BITS)
    return (root - (1 << PROBABILITY_BITS)) // (2 * (num_classes - 1))


MOST_PREDICTED = most_predicted(2)
"""The c of labels of 0 and 1, about (sqrt(3) - 1) / 2."""
LOG_ODDS_BITS = 12
"""Log odds are steps of 2^-12 = 0.00024. A cell whose log odds are known that well has more than a
hundred million rows."""
_ALL_ALIKE = RowRules()
"""Rows with labels of 0 and 1 of which each is a unit."""
_MOST_LOG_ODDS = 16 << LOG_ODDS_BITS
"""Largest absolute log odds of a prediction, in steps: probabilities stay 1e-7 from
0 and 1."""
_MOST_SHIFT = 60
"""Most bits by which weights are shifted where they are squared; no cell with rows needs more."""
_SMALL_IDS = (np.uint8, np.uint16)
"""Types of ids in memory, the first that holds all of a column; 32 bits if none does."""


@functools.cache
def probabilities(most: int = MOST_PREDICTED) -> Probabilities:
    """The public table of all probabilities that a prediction can have.

    Args:
      most: The c of the proof, see `most_predicted`.
    """
    steps = np.arange(-_MOST_LOG_ODDS, _MOST_LOG_ODDS + 1)
    chances = 1 / (1 + np.exp(-np.ldexp(steps.astype(np.float64), -LOG_ODDS_BITS)))
    predicted = np.rint(np.ldexp(chances, PROBABILITY_BITS)).astype(np.int64)
    capped = np.minimum(predicted, most)
    # 2^30 up to p = c, rounded down beyond; never below `capped`, as the proof needs Q <= U.
    factors = (capped << PROBABILITY_BITS) // predicted
    # 32 bits, of which more stay in the cache.
    columns = [column.astype(np.int32) for column in (predicted, capped, factors)]
    return Probabilities(columns[0], columns[1], columns[2], most=_MOST_LOG_ODDS)


def log_odds_steps(log_odds: FloatArray | float) -> NDArray[np.int32]:
    """The nearest whole number of steps of each log odds."""
    steps: NDArray[np.int32] = np.rint(np.ldexp(log_odds, LOG_ODDS_BITS)).astype(np.int32)
    return steps


def label_sums(
    cells: Cells, labels: NDArray[np.int32], weights: Weights, num_cells: int
) -> IntArray:
    """Raw sums of the labels of each cell, of weighted rows, in steps.

    Args:
      cells: [rows]: cell of each row.
      labels: [rows]: labels in parts of 2^30.
      weights: Weights of the rows, in steps.
      num_cells: Number of cells of the table.

    Privacy:
      Unit: the label of one row, replaced; cells and weights are public. L2 sensitivity: the
      weight of the row. Nothing is released here.
    """
    _check_rows(cells)
    return loops_over_rows(len(cells)).label_sums(cells, labels, weights, num_cells)


def row_sums(
    cells: Cells,
    labels: NDArray[np.int32],
    log_odds: NDArray[np.int32],
    weights: Weights,
    num_cells: int,
    *,
    most: int = MOST_PREDICTED,
    rules: RowRules = _ALL_ALIKE,
) -> IntArray:
    """Raw residuals and raw predictions of each cell, of weighted rows, as [2, cells] in steps.

    Args:
      cells: [rows]: cell of each row.
      labels: [rows]: labels in parts of 2^30.
      log_odds: [rows]: predicted log odds of label 1, in steps.
      weights: Weights of the rows, in steps.
      num_cells: Number of cells of the table.
      most: The c of the proof, see `most_predicted`.
      rules: How rows count: if labels are values, if those of users are divided, and if rows with
        the label 0 take part.

    Privacy:
      Unit: one row, whose label, cell, prediction and weight are replaced. L2 sensitivity of both
      rows of numbers together: sqrt(2) times the larger weight, for labels from 0 to 1 and
      whatever is predicted. Over several tables: sqrt(2), if squares of the weights of each row
      add up to at most 1. Over the tables of K classes of share w each, with their c: sqrt(2)
      sqrt(2 w), for `ClassShares`. The same as for one row holds for a user with several rows, if
      labels and caps of the user add up to at most 1 and c, and the squares of each row's weights
      to at most 1/2. Nothing is released here.
    """
    _check_rows(cells)
    table, loops = probabilities(most), loops_over_rows(len(cells))
    return loops.row_sums(cells, labels, log_odds, weights, table, num_cells, rules)


def exact_sums(cells: Cells, terms: Weights, num_cells: int) -> IntArray:
    """The exact sum of the terms of each cell, whatever the order of the rows.

    Args:
      cells: [rows]: cell of each row.
      terms: Whole numbers, none beyond 2^32 in size; one for each row, or one for all.
      num_cells: Number of cells of the table.

    Raises:
      DataError: There are terms that floats would round or 64 bits could not hold.
    """
    _check_rows(cells)
    if terms.dtype != np.int64:
        raise DataError(f"exact sums are of whole numbers of 64 bits, not of {terms.dtype}.")
    return loops_over_rows(len(cells)).exact_sums(cells, terms, num_cells)


def _check_rows(cells: Cells) -> None:
    """Refuses so many rows that 64 bits might not hold their sums."""
    if len(cells) > MAX_ROWS:
        raise DataError(
            f"exact sums are of at most {MAX_ROWS:,} whole numbers of at most 2^32; "
            "train on fewer rows."
        )


class RowColumns:
    """Ids of the rows by role and column. Sensitive: never log or save them."""

    def __init__(self, examples: ExampleSet) -> None:
        self._examples = examples
        self._columns: dict[tuple[str, int], NDArray[np.integer[Any]]] = {}

    def ids(self, role: str, column: int) -> NDArray[np.integer[Any]]:
        """The ids of one feature, one for each row; kept in memory once they were read."""
        key = (role, column)
        if key not in self._columns:
            self._columns[key] = self._read(role, column)
        return self._columns[key]

    def _read(self, role: str, column: int) -> NDArray[np.integer[Any]]:
        examples = self._examples
        ids = examples.public_features if role == "public" else examples.sensitive_features
        if ids is None:
            raise DataError("the sensitive columns of these rows are out of reach.")
        chosen = ids[:, column] if examples.rows is None else ids[examples.rows, column]
        num_ids = [one.num_ids for one in examples.features if one.role == role][column]
        least, most = chosen.min(initial=0), chosen.max(initial=0)
        # A file may have changed since its ids were checked.
        if least < 0 or most >= num_ids:
            raise DataError("an id is not one of its feature; prepare the data again.")
        # By the largest id that occurs: features may share a vocabulary of which each has little.
        dtype = next((small for small in _SMALL_IDS if most <= np.iinfo(small).max), np.int32)
        return np.ascontiguousarray(chosen, dtype)


class PredictedRows:
    """Labels, columns and log odds of the training rows. Sensitive: never log or save it.

    Args:
      examples: All training rows.
      clip: Largest value that a label counts as; None for labels of 0 and 1.
      positives_only: True if rows with the label 0 add nothing to sums of residuals and
        predictions.
      most: The c of the proof, see `most_predicted`.
    """

    def __init__(
        self,
        examples: ExampleSet,
        *,
        clip: float | None = None,
        positives_only: bool = False,
        most: int = MOST_PREDICTED,
    ) -> None:
        if examples.labels is None:
            raise DataError("the training rows have no label column; name one in the schema.")
        # The sensitivities hold for labels of 0 and 1, and for values up to the clip: any other
        # label would show through the noise. An id beyond those of its feature would change how
        # many cells there are, or fall into the cell of another id.
        dataclasses.replace(examples, num_classes=2 if clip is None else None).check()
        if examples.num_rows > MAX_ROWS:
            raise DataError(
                f"the training data have {examples.num_rows:,} rows; sums of 64 bits hold at most "
                f"{MAX_ROWS:,}. Train on fewer rows."
            )
        self._labels = label_parts(examples.labels, clip)
        self._are_values = clip is not None
        self._positives_only, self._most = positives_only, most
        self._columns = RowColumns(examples)
        self._log_odds = np.zeros(len(self._labels), np.int32)
        self._divided: DividedLabels | None = None

    @property
    def labels(self) -> NDArray[np.int32]:
        """[rows]: whole labels in parts of 2^30."""
        return self._labels

    def divide(self, divided: DividedLabels) -> None:
        """Takes divided labels for the sums of tables; the overall level keeps whole ones."""
        self._divided = divided

    @property
    def num_rows(self) -> int:
        """Number of training rows."""
        return len(self._labels)

    @property
    def one_cell(self) -> Cells:
        """Cells of a table that has all rows in one cell, for overall sums."""
        return np.zeros(self.num_rows, np.int32)

    def ids(self, role: str, column: int) -> NDArray[np.integer[Any]]:
        """The ids of one feature, one for each row. Sensitive if the role is."""
        return self._columns.ids(role, column)

    def cells(self, parts: Sequence[CellPart]) -> Cells:
        """The cell of each row in a table of these parts. Sensitive if one of them is."""
        columns = [self._columns.ids(part.role, part.column) for part in parts]
        return loops_over_rows(self.num_rows).cells(parts, columns)

    def raw_counts(
        self, role: str, column: int, num_ids: int, weights: Weights = _ONE
    ) -> NDArray[np.int64]:
        """Raw sum of the weights of the rows that have each id of a feature.

        Args:
          role: 'public' or 'sensitive'.
          column: Place of the column among the features of that role.
          num_ids: Number of ids of the feature.
          weights: Weights of the rows, in steps.

        Privacy:
          Unit: one row, replaced. L2 sensitivity: sqrt(2) times its weight for a sensitive column;
          counts of a public column are public. Nothing is released here.
        """
        return exact_sums(self._columns.ids(role, column), weights, num_ids)

    def raw_label_sums(
        self, cells: Cells, weights: Weights, num_cells: int, *, are_whole: bool = False
    ) -> IntArray:
        """Raw sums of the labels of each cell, of weighted rows, in steps.

        Args:
          cells: [rows]: cell of each row.
          weights: Weights of the rows, in steps.
          num_cells: Number of cells of the table.
          are_whole: True for labels that are not divided among the rows of a user.

        Privacy:
          The same as for `label_sums`.
        """
        divided = None if are_whole else self._divided
        labels = self._labels if divided is None else divided.labels
        return label_sums(cells, labels, weights, num_cells)

    def raw_lost_sums(
        self, rows: NDArray[np.bool_], labels: NDArray[np.int32], weights: Weights
    ) -> IntArray:
        """Raw sum of the labels of some rows, and of what other labels are smaller by, in steps.

        Args:
          rows: [rows]: True for those that count, which is public.
          labels: [rows]: labels in parts of 2^30, none above the row's own.
          weights: Weights of the rows, in steps.

        Privacy:
          Unit: all rows of one user, with labels replaced. L2 sensitivity: sqrt(2) times the
          weight of all these rows. Nothing is released here.
        """
        own = np.where(rows, self._labels, 0).astype(np.int32)
        lost = np.where(rows, self._labels - labels, 0).astype(np.int32)
        sums = [label_sums(self.one_cell, some, weights, 1) for some in (own, lost)]
        return np.concatenate(sums)

    def raw_square_sum(self, weights: Weights) -> IntArray:
        """Raw sum of the squared labels of all rows, weighted, in steps, as [1].

        Args:
          weights: Weights of the rows, in steps.

        Privacy:
          Unit: the label of one row, replaced. L2 sensitivity: the weight of the row, as squares
          of labels from 0 to 1 are from 0 to 1. Nothing is released here.
        """
        squares = (self._labels.astype(np.int64) ** 2 >> LABEL_BITS).astype(np.int32)
        return label_sums(self.one_cell, squares, weights, 1)

    def raw_row_sums(
        self, cells: Cells, weights: Weights, num_cells: int, *, are_whole: bool = False
    ) -> IntArray:
        """Raw sums of residuals and of predictions of each cell, of weighted rows, as [2, cells].

        Args:
          cells: [rows]: cell of each row.
          weights: Weights of the rows, in steps.
          num_cells: Number of cells of the table.
          are_whole: True for labels that are not divided among the rows of a user.

        Privacy:
          The same as for `row_sums`. A row that adds nothing adds one of the vectors of the proof.
        """
        divided = None if are_whole else self._divided
        return row_sums(
            cells,
            self._labels if divided is None else divided.labels,
            self._log_odds,
            weights,
            num_cells,
            most=self._most,
            rules=RowRules(
                are_values=self._are_values,
                positives_only=self._positives_only,
                offsets=None if divided is None else divided.offsets,
                caps=None if divided is None else divided.caps,
            ),
        )

    def predicted(
        self,
        cells: Cells,
        weights: Weights,
        typical_weights: FloatArray,
        *,
        are_whole: bool = False,
    ) -> tuple[IntArray, FloatArray]:
        """Sums of predictions over each cell: with the weights of rows, and with their squares.

        Args:
          cells: [rows]: cell of each row.
          weights: Weights of the rows in steps, none of them above 2^31.
          typical_weights: [cells]: mean weight of the rows of each cell in steps, about.
          are_whole: True for predictions of labels that are not divided.

        Returns:
          The sums in steps and in squared steps. Those of squares are rounded to some 10 bits.

        Privacy:
          Public as long as the model has used public columns alone; raw and sensitive afterwards.
        """
        divided = None if are_whole else self._divided
        offsets = None if divided is None else divided.offsets
        # Weights go over many powers of ten, but not within a cell: its typical one fixes the unit.
        shifts = np.frexp(typical_weights)[1] - SQUARE_BITS
        shifts = np.clip(shifts, -_MOST_SHIFT, _MOST_SHIFT).astype(np.int8)
        loops, table = loops_over_rows(self.num_rows), probabilities()
        sums, squares = loops.predicted(cells, self._log_odds, offsets, weights, shifts, table)
        return sums, np.ldexp(squares.astype(np.float64), shifts + SQUARE_BITS)

    def add(self, steps: NDArray[np.int32] | int, cells: Cells | None = None) -> None:
        """Adds steps to the log odds of each row.

        Args:
          steps: One number for each cell, or for each row, or one for all rows.
          cells: [rows]: cell of each row, if steps are those of cells.
        """
        if cells is not None and isinstance(steps, np.ndarray):
            loops_over_rows(self.num_rows).add_lookups(self._log_odds, steps, cells)
        else:
            self._log_odds += np.int32(steps) if isinstance(steps, int) else steps
