"""Rows of real numbers with a declared bound on their length.

Sums of floats depend on the order and round, so a label could move a sum by more than
its row is long. Entries are therefore cut to whole multiples of a grid width, a 2^-24th
of the bound, towards zero: rows only get shorter, and label sums are whole numbers.
The model is fitted and used on the same cut entries, so the cut costs no accuracy.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count, check_finite

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_GRID_BITS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedFeatures:
    """How long a row of real numbers may be. Public."""

    num_columns: int
    """Length of a row; put in a column of equal entries for a constant."""
    max_norm: float
    """Largest L2 norm of a row."""

    def __post_init__(self) -> None:
        check_count("num_columns", self.num_columns)
        if not 1e-100 < check_finite("max_norm", self.max_norm) < 1e100:
            raise ConfigError(f"max_norm={self.max_norm} must be > 0 and not extreme, e.g. 1.0.")

    @property
    def grid_exponent(self) -> int:
        """Entries are whole multiples of 2^grid_exponent."""
        return math.frexp(self.max_norm)[1] - 1 - _GRID_BITS

    def rows(self, matrix: Any) -> "BoundedRows":
        """Rows of a dense array or of a sparse matrix of scipy."""
        return BoundedRows.of(self, matrix)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BoundedRows:
    """Rows of a table of real numbers. Make them with `BoundedFeatures.rows`."""

    features: BoundedFeatures
    steps: "csr_array"
    """Entries in grid widths, whole numbers as float64."""

    @classmethod
    def of(cls, features: BoundedFeatures, matrix: Any) -> "BoundedRows":
        """Cuts entries to the grid and checks every row's length.

        Raises:
          DataError: Another shape, an entry that is missing, or a row that is too long.
        """
        from scipy.sparse import csr_array

        entries = csr_array(matrix, dtype=np.float64, copy=True)
        if entries.ndim != 2 or entries.shape[1] != features.num_columns:
            raise DataError(
                f"the matrix has the shape {entries.shape}; it needs num_columns="
                f"{features.num_columns} columns."
            )
        entries.sum_duplicates()
        if not np.isfinite(entries.data).all():
            raise DataError("the matrix has NaN or infinity; replace them by a public default.")
        longest = math.ldexp(features.max_norm, -features.grid_exponent)
        # A row that is short enough has squares below 2^50, whose sum is exact; one that
        # is too long is seen, exact or not.
        with np.errstate(over="ignore"):
            entries.data = np.trunc(np.ldexp(entries.data, -features.grid_exponent))
            squares = entries.power(2).sum(axis=1)
        if squares.size and float(np.max(squares)) > longest * longest:
            raise DataError(
                f"a row is longer than max_norm={features.max_norm}; scale or clip rows first, "
                "or declare a larger bound."
            )
        return cls(features=features, steps=entries)

    @property
    def layout(self) -> BoundedFeatures:
        """What the columns are."""
        return self.features

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return int(self.steps.shape[0])

    @property
    def row_weights(self) -> FloatArray | float:
        """How often each row counts in a sum over the table."""
        return 1.0

    @property
    def constant(self) -> tuple[int, float] | None:
        """A column that is the same in every row, and its entry; None if there is none."""
        columns = self.steps.tocsc()
        for column in np.flatnonzero(np.diff(columns.indptr) == self.num_rows):
            entries = columns.data[columns.indptr[column] : columns.indptr[column + 1]]
            if entries.size and entries[0] != 0 and np.all(entries == entries[0]):
                return int(column), float(entries[0]) * self.width
        return None

    @property
    def width(self) -> float:
        """The grid width."""
        return math.ldexp(1.0, self.features.grid_exponent)

    def dot(self, weights: FloatArray) -> FloatArray:
        """Each row times a vector of one weight a column."""
        return np.asarray(self.steps @ (weights * self.width))

    def sums(self, row_values: FloatArray) -> FloatArray:
        """The sum of all rows, each times its value: one number a column."""
        return np.asarray(self.steps.T @ row_values) * self.width

    def square_sums(self, row_values: FloatArray) -> FloatArray:
        """As `sums`, of squared entries."""
        return np.asarray(self.steps.power(2).T @ row_values) * self.width**2

    def products(self, row_values: FloatArray) -> FloatArray:
        """The sum over the rows of each one's outer product, times its value."""
        weighted = self.steps.multiply(row_values[:, None]).tocsr()
        return np.asarray((weighted.T @ self.steps).toarray()) * self.width**2

    def exact_sums(self, is_counted: NDArray[np.bool_]) -> IntArray:
        """The sum of the rows that count, in grid widths."""
        whole = self.steps[is_counted].astype(np.int64)
        return np.asarray(whole.sum(axis=0), np.int64).reshape(-1)

    def sum_bounds(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest label sum of each column, over all labels."""
        ones = np.ones(self.num_rows)
        least = np.asarray(self.steps.minimum(0).T @ ones) * self.width
        most = np.asarray(self.steps.maximum(0).T @ ones) * self.width
        return least, most
