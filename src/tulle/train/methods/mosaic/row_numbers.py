"""Numbers of rows that Mosaic's loops take: their types, their largest sizes, and who is refused.

What is said here holds for both kinds of loops, those in numpy (`row_loops`) and those in C
(`cell_kernels`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.label_parts import LABEL_BITS

IntArray = NDArray[np.int64]
Cells = NDArray[np.integer[Any]]
"""[rows]: cell of each row."""
Weights = IntArray | np.int64
"""Weight of each row in steps of the noise, or the one weight that all rows have."""
Costs = IntArray | None
"""What a squared weight of 1 costs each row, a whole number from 1; None: 1 for every row."""

MAX_TERM = 1 << 32
"""Largest absolute number that one row adds to a sum."""
MOST_CHARGED = 1 << 30
"""Largest weight that a row is charged for: that of the whole budget, whose square fits 64 bits."""
SQUARE_BITS = 10
"""Bits of a typical weight that its square is computed of: enough for the variance of a sum."""
PART_BITS = LABEL_BITS
"""Probabilities are parts of 2^30, as labels are."""
WEIGHT_BITS = 32
"""Weights in sums are below 2^32: times a probability, a factor or a label they fit 64 bits. Those
that rows are charged for are at most 2^30."""


class Probabilities(NamedTuple):
    """What predictions look up by log odds, in parts of 2^30; the place is steps + `most`."""

    predicted: NDArray[np.int32]
    """Probability p of label 1."""
    capped: NDArray[np.int32]
    """min(p, c): what a row adds to the sum of predictions."""
    factors: NDArray[np.int32]
    """u = min(1, c / p), rounded down: what a row of label 1 adds to the sum of labels."""
    most: int
    """Largest steps of log odds; those beyond count as this many."""


class RowRules(NamedTuple):
    """How the rows of a data set count in sums of residuals and predictions."""

    are_values: bool = False
    """True if labels may be between 0 and 1; rows then get `rounding_weights`."""
    positives_only: bool = False
    """True if rows with the label 0 add nothing."""
    offsets: NDArray[np.int32] | None = None
    """[rows]: steps to add to the log odds of each row; None: none."""
    caps: NDArray[np.integer[Any]] | None = None
    """[rows]: most that each row is predicted with, from 0 on; None: that of the table."""


def check_columns(parts: Sequence[CellPart], columns: Sequence[NDArray[np.integer[Any]]]) -> int:
    """Refuses a table with more cells than 32 bits tell apart; returns the number of its rows."""
    num_cells = 1
    for part in parts:
        num_cells *= part.size
    if num_cells >= 1 << 31:
        raise DataError(f"a table has {num_cells:,} cells, must have fewer than 2^31.")
    check_lengths(*columns)
    return len(columns[0])


def check_lengths(*arrays: NDArray[Any] | np.int64 | None) -> None:
    """Refuses arrays that do not have one number for each row."""
    if len({len(array) for array in arrays if isinstance(array, np.ndarray)}) > 1:
        raise DataError("the columns of one table must have one number for each row.")


def wrong_place() -> DataError:
    """What is said of a row whose cell or id is none of its table."""
    return DataError("a row is in a cell that its table does not have; prepare the data again.")


def wrong_number() -> DataError:
    """What is said of numbers that floats would round or 64 bits could not hold."""
    return DataError(
        "exact sums are of whole numbers of at most 2^32, with weights from 0 to less than that; "
        "make weights of rows smaller."
    )
