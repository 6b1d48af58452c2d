"""What the rows of one unit may weigh together, where units have several rows or rows differ.

A unit is what is protected together: one row, or all rows of a user (in one window of time). Whose
each row is, is public, and so are sample weights. The proof (docs/theory/mosaic.md) bounds what one
row adds to all sums. A unit of several rows must not add more:

- While cells are public, rows of a unit in different cells of a table move different sums, so that
  their squared weights add up. The m rows of a unit in one cell may all move the same sum: there a
  row pays m times its squared weight, since (a_1 + … + a_m)^2 <= m (a_1^2 + … + a_m^2). Together
  the rows of a unit pay at most the share.
- Once cells are sensitive, all rows of a unit may be in one cell. By the triangle inequality it is
  enough that their weights add up to at most the weight of one row.

All parts are whole numbers, rounded down, so that those of a unit never add up to more than 1.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError

IntArray = NDArray[np.int64]

PART_BITS = 30
"""Parts are whole numbers of 2^-30: times a weight of at most 2^30 steps they fit 64 bits."""
_WHOLE = 1 << PART_BITS
"""The part of a row that is a whole unit."""
_PRODUCT_BITS = 62
"""Bits that the product of a squared share and a part may have, so that it fits 64 bits."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowParts:
    """Part of its unit's weight, and of its squared weight, that each row has. Public."""

    num_rows: int
    linear: IntArray | None = None
    """[rows]: parts that add up to at most 1 for each unit; None: each row is a whole unit."""
    squared: IntArray | None = None
    """[rows]: the same for squared weights of rows that move different sums."""
    given: IntArray | None = None
    """[rows]: sample weights; None: all are 1."""
    owners: IntArray | None = None
    """[shared rows]: number of the unit of each row that is not alone in its unit."""
    shared: IntArray | None = None
    """[shared rows]: the places of these rows."""

    def weights(self, weight: np.int64) -> IntArray | np.int64:
        """The weight of each row in sums on which a unit has this weight, all in steps."""
        return weight if self.linear is None else (weight * self.linear) >> PART_BITS

    def public_limits(self, allowance: int) -> IntArray:
        """What each row may spend of a share while cells are public, in squared steps."""
        if self.squared is None:
            return self._whole(allowance)
        # Low bits of a large share are dropped first, which only makes the limits smaller.
        dropped = max(0, allowance.bit_length() + PART_BITS - _PRODUCT_BITS)
        limits: IntArray = self.squared * np.int64(allowance >> dropped)
        return limits >> (PART_BITS - dropped)

    def limits(self, allowance: int) -> IntArray:
        """What each row may spend of a share once cells are sensitive, in squared steps."""
        if self.linear is None:
            return self._whole(allowance)
        return np.square(self.weights(np.int64(math.isqrt(allowance))))

    def costs(self, cells: NDArray[np.integer[Any]], num_cells: int) -> IntArray | None:
        """What a squared weight of 1 costs each row: the rows of its unit in the same cell.

        None means 1 for every row.

        Args:
          cells: [rows]: cell of each row, which is public.
          num_cells: Number of cells of the table.
        """
        if self.shared is None or self.owners is None:
            return None
        costs = np.ones(self.num_rows, np.int64)
        keys = self.owners * num_cells + cells[self.shared]
        _, places, numbers = np.unique(keys, return_inverse=True, return_counts=True)
        costs[self.shared] = numbers[places]
        return costs

    @property
    def total(self) -> float:
        """Sum of the parts of all rows."""
        return float(self.num_rows) if self.linear is None else float(self.linear.sum()) / _WHOLE

    @property
    def mean(self) -> float:
        """Mean part of a row."""
        return self.total / self.num_rows

    @property
    def unevenness(self) -> float:
        """Mean square of the parts over the square of their mean: 1 if all rows weigh alike."""
        if self.linear is None:
            return 1.0
        return float(np.square(np.ldexp(self.linear, -PART_BITS)).mean()) / self.mean**2

    def _whole(self, allowance: int) -> IntArray:
        return np.broadcast_to(np.int64(allowance), self.num_rows)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DividedLabels:
    """Labels that rows of a user divide among them, and what goes with them (`user_labels`)."""

    labels: NDArray[np.int32]
    """[rows]: labels in parts of 2^30. Those of a user add up to at most 1. Sensitive."""
    caps: NDArray[np.int32]
    """[rows]: most that a row is predicted with, in parts of 2^30; c for a row that is alone."""
    offsets: NDArray[np.int32]
    """[rows]: what divided labels make log odds smaller by, in steps, at most 0."""


def row_parts(
    num_rows: int,
    units: IntArray | None = None,
    sample_weights: NDArray[np.float32] | None = None,
    *,
    full_rows: int = 1,
) -> RowParts:
    """Divides the weight of each unit among its rows.

    Rows of units with few rows weigh alike, so that a model of all rows is learnt. Rows of units
    with more than `full_rows` rows weigh less than these, or such units would be more exposed.

    Args:
      num_rows: Number of rows.
      units: [rows]: number of the unit that each row belongs to; None: each row is a unit.
      sample_weights: [rows]: relative weight of each row, from 0 to 1; None: all alike. A row of
        weight 0 adds nothing to any sum.
      full_rows: Number of rows that a unit may have before each of them weighs less. At 1 all
        units weigh the same; more makes all weights smaller against the noise.

    Raises:
      DataError: A sample weight is not from 0 to 1.
    """
    if units is None and sample_weights is None:
        return RowParts(num_rows=num_rows)
    if sample_weights is None:
        given = np.full(num_rows, _WHOLE, np.int64)
    else:
        if not (sample_weights.min() >= 0 and sample_weights.max() <= 1):
            raise DataError("weights of rows must be from 0 to 1; divide by the largest.")
        given = (sample_weights.astype(np.float64) * _WHOLE).astype(np.int64)
    squares = (given * given) >> PART_BITS
    if units is None:
        return RowParts(num_rows=num_rows, linear=given, squared=squares, given=given)
    _, owners, numbers = np.unique(units, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(numbers[owners] > 1)
    return RowParts(
        num_rows=num_rows,
        linear=_divided(given, owners, full_rows),
        squared=_divided(squares, owners, full_rows),
        given=given,
        owners=owners[shared],
        shared=shared,
    )


def _divided(given: IntArray, owners: IntArray, full_rows: int) -> IntArray:
    """Each number as a part of the sum of its unit's, or of `full_rows` if that is more."""
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    totals = np.add.reduceat(given[order], starts)
    return (given << PART_BITS) // np.maximum(totals, full_rows * _WHOLE)[owners]
