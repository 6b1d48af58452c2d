"""The sensitive rows of a run, and their exact sums over the cells of a table.

`RowColumns` and `PredictedRows` hold the columns, labels and present predictions of the training
rows. `label_sums` and `row_sums` add them up by cell, each row with a weight. Nothing here is
released: noise is added by `noise_shares`.

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
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.cell_model import CellPart, cells_of_rows
from tulle.train.methods.mosaic.label_parts import LABEL_BITS, label_parts, rounding_weights
from tulle.train.methods.mosaic.row_parts import DividedLabels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Cells = NDArray[np.int64]
Weights = IntArray | np.int64
"""Weight of each row in steps of the noise, or the one weight that all rows have."""

_ONE = np.int64(1)
"""Weight of rows that are only counted."""
LABEL_SENSITIVITY = 1.0
"""L2 sensitivity of sums of labels over all tables of a round of share 1, if a label is replaced
and cells, weights and predictions are public."""
ROW_SENSITIVITY = math.sqrt(2.0)
"""L2 sensitivity of sums of residuals and predictions over all tables of a round of share 1, if a
row is replaced. The same bounds counts of one column's values: one count falls, one rises."""

MAX_ROWS = 1 << 30
"""Most rows of a run. A sum of so many terms of at most `_MAX_TERM` is at most 2^62, which with its
noise fits 64 bits; more rows are refused before anything is summed."""
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
_MOST_LOG_ODDS = 16 << LOG_ODDS_BITS
"""Largest absolute log odds of a prediction, in steps: probabilities stay 1e-7 from
0 and 1."""
_SQUARE_BITS = 10
"""Bits of a typical weight that its square is computed of: enough for the variance of a sum."""
_MAX_TERM = 1 << 32
"""Largest absolute number that one row adds to a sum."""
_LEAST_PIECE = 1 << 16
"""Rows that are worked on together, so that what is computed for them stays in the cache."""
_ROWS_AT_A_TIME = 1 << 21
"""Rows that are added up as floats: 2^21 whole numbers of at most 2^32 stay within 2^53, below
which floats add whole numbers exactly. Pieces are added up as 64-bit integers."""


class Probabilities(NamedTuple):
    """What predictions look up by log odds, in parts of 2^30; the place is steps + `most`."""

    predicted: IntArray
    """Probability p of label 1."""
    capped: IntArray
    """min(p, c): what a row adds to the sum of predictions."""
    factors: IntArray
    """u = min(1, c / p), rounded down: what a row of label 1 adds to the sum of labels."""
    most: int = _MOST_LOG_ODDS
    """Largest steps of log odds; those beyond count as this many."""


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
    return Probabilities(predicted, capped, factors)


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
    sums = np.zeros(num_cells, np.int64)
    for rows in pieces_of_rows(len(cells), num_cells):
        terms = _of_rows(weights, rows) * labels[rows].astype(np.int64)
        terms >>= LABEL_BITS
        sums += exact_sums(cells[rows], terms, num_cells)
    return sums


def row_sums(
    cells: Cells,
    labels: NDArray[np.int32],
    log_odds: NDArray[np.int32],
    weights: Weights,
    num_cells: int,
    *,
    are_values: bool = False,
    most: int | IntArray = MOST_PREDICTED,
) -> IntArray:
    """Raw residuals and raw predictions of each cell, of weighted rows, as [2, cells] in steps.

    Args:
      cells: [rows]: cell of each row.
      labels: [rows]: labels in parts of 2^30.
      log_odds: [rows]: predicted log odds of label 1, in steps.
      weights: Weights of the rows, in steps.
      num_cells: Number of cells of the table.
      are_values: True if labels may be between 0 and 1; rows then get `rounding_weights`.
      most: The c of the proof, see `most_predicted`; or [rows]: most that each row is predicted
        with, where labels of users are divided.

    Privacy:
      Unit: one row, whose label, cell, prediction and weight are replaced. L2 sensitivity of both
      rows of numbers together: sqrt(2) times the larger weight, for labels from 0 to 1 and
      whatever is predicted. Over several tables: sqrt(2), if squares of the weights of each row
      add up to at most 1. Over the tables of K classes of share w each, with their c: sqrt(2)
      sqrt(2 w), for `ClassShares`. The same as for one row holds for a user with several rows, if
      labels and `most` of the user add up to at most 1 and c, and the squares of each row's weights
      to at most 1/2. Nothing is released here.
    """
    table = probabilities(most if isinstance(most, int) else MOST_PREDICTED)
    sums = np.zeros((2, num_cells), np.int64)
    for rows in pieces_of_rows(len(cells), num_cells):
        places, own = _places(log_odds[rows]), _of_rows(weights, rows)
        own = rounding_weights(own) if are_values else own
        capped, factors = table.capped[places], table.factors[places]
        if not isinstance(most, int):
            probs = table.predicted[places]
            capped = np.minimum(probs, most[rows])
            factors = (capped << PROBABILITY_BITS) // probs
        predicted = own * capped
        predicted >>= PROBABILITY_BITS
        residuals = own * factors
        residuals >>= PROBABILITY_BITS
        residuals *= labels[rows]
        residuals >>= LABEL_BITS
        residuals -= predicted
        sums[0] += exact_sums(cells[rows], residuals, num_cells)
        sums[1] += exact_sums(cells[rows], predicted, num_cells)
    return sums


def exact_sums(cells: NDArray[np.integer[Any]], terms: IntArray, num_cells: int) -> IntArray:
    """The exact sum of the terms of each cell, whatever the order of the rows.

    Args:
      cells: [rows]: cell of each row.
      terms: [rows]: whole numbers, none beyond 2^32 in size.
      num_cells: Number of cells of the table.

    Raises:
      DataError: There are terms that floats would round or 64 bits could not hold.
    """
    if terms.dtype != np.int64 or not (
        len(terms) <= MAX_ROWS
        and terms.min(initial=0) >= -_MAX_TERM
        and terms.max(initial=0) <= _MAX_TERM
    ):
        raise DataError(
            f"exact sums are of at most {MAX_ROWS:,} whole numbers of at most 2^32; "
            "train on fewer rows."
        )
    sums = np.zeros(num_cells, np.int64)
    for start in range(0, len(terms), _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        sums += np.bincount(cells[rows], terms[rows], minlength=num_cells).astype(np.int64)
    return sums


def pieces_of_rows(num_rows: int, num_cells: int = 0) -> Iterator[slice]:
    """Pieces of the rows that are small enough for the cache and no smaller than the table.

    Args:
      num_rows: Number of all rows.
      num_cells: Number of cells that are added up after each piece.
    """
    size = min(max(_LEAST_PIECE, num_cells), _ROWS_AT_A_TIME)
    for start in range(0, num_rows, size):
        yield slice(start, start + size)


def _of_rows(weights: Weights, rows: slice) -> Weights:
    """The weights of some rows."""
    return weights[rows] if isinstance(weights, np.ndarray) else weights


def _places(log_odds: NDArray[np.int32]) -> NDArray[np.int32]:
    """Places of log odds in the table of probabilities."""
    places: NDArray[np.int32] = np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
    places += np.int32(_MOST_LOG_ODDS)
    return places


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

    def _read(self, role: str, column: int) -> NDArray[np.int32]:
        examples = self._examples
        ids = examples.public_features if role == "public" else examples.sensitive_features
        if ids is None:
            raise DataError("the sensitive columns of these rows are out of reach.")
        chosen = ids[:, column] if examples.rows is None else ids[examples.rows, column]
        return np.ascontiguousarray(chosen)


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
        return np.zeros(self.num_rows, np.int64)

    def cells(self, parts: Sequence[CellPart]) -> Cells:
        """The cell of each row in a table of these parts. Sensitive if one of them is."""
        return cells_of_rows(parts, [self._columns.ids(part.role, part.column) for part in parts])

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
        ids = self._columns.ids(role, column)
        if isinstance(weights, np.ndarray):
            return exact_sums(ids, weights, num_ids)
        return np.bincount(ids, minlength=num_ids) * weights

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
        if self._positives_only:
            weights = weights * (self._labels > 0)
        divided = None if are_whole else self._divided
        return row_sums(
            cells,
            self._labels if divided is None else divided.labels,
            self._log_odds if divided is None else self._log_odds + divided.offsets,
            weights,
            num_cells,
            are_values=self._are_values,
            most=self._most if divided is None else divided.caps,
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
        num_cells = len(typical_weights)
        log_odds = self._log_odds
        if self._divided is not None and not are_whole:
            log_odds = log_odds + self._divided.offsets
        sums, squared_sums = np.zeros((2, num_cells), np.int64)
        # Weights go over many powers of ten, but not within a cell: its typical one fixes the unit.
        shifts = np.frexp(typical_weights)[1].astype(np.int64) - _SQUARE_BITS
        down, up = np.maximum(shifts, 0), np.maximum(-shifts, 0)
        for rows in pieces_of_rows(len(cells), num_cells):
            own, its_cells = _of_rows(weights, rows), cells[rows]
            # Nothing here is hidden by noise, so products may be rounded to the nearest step.
            weighted = own * probabilities().predicted[_places(log_odds[rows])]
            weighted += 1 << (PROBABILITY_BITS - 1)
            weighted >>= PROBABILITY_BITS
            sums += exact_sums(its_cells, weighted, num_cells)
            squares = (own >> down[its_cells]) << up[its_cells]
            np.minimum(squares, _MAX_TERM >> 1, out=squares)
            squares *= weighted
            squares >>= _SQUARE_BITS
            np.minimum(squares, _MAX_TERM, out=squares)
            squared_sums += exact_sums(its_cells, squares, num_cells)
        return sums, np.ldexp(squared_sums.astype(np.float64), shifts + _SQUARE_BITS)

    def add(self, steps: NDArray[np.int32] | int) -> None:
        """Adds steps to the log odds of each row, or of all rows."""
        self._log_odds += np.int32(steps) if isinstance(steps, int) else steps
