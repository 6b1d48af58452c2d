"""Feature rows whose length is known: one-hot fields, and real numbers with a declared bound.

Of one-hot fields each row has a one in the constant and in one column of each field. A field is its
own block of columns, also where two fields share an embedding table, so a row is always a vector
with exactly as many ones as there are fields, constant included.

Sums of floats depend on the order and round, so a label could move a sum by more than its row is
long. Entries of real rows are therefore cut to whole multiples of a grid width, a 2^-24th of the
bound, towards zero: rows only get shorter, and label sums are whole numbers. The model is fitted
and used on the same cut entries, so the cut costs no accuracy.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count, check_finite

if TYPE_CHECKING:
    from scipy.sparse import csr_array


FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 18
"""Rows that are turned into a matrix at once, so that memory stays bounded."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneHotFields:
    """How many ids each field has. Public."""

    num_ids: tuple[int, ...]
    """Number of ids of each field, which are 0 to this less one. The constant is not listed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_ids", tuple(self.num_ids))
        for field, num_ids in enumerate(self.num_ids):
            check_count(f"num_ids[{field}]", num_ids)
        if not self.num_ids:
            raise ConfigError("num_ids=() must name at least one field; a constant alone is a sum.")

    @classmethod
    def of(cls, features: Sequence[PreparedFeature]) -> "OneHotFields":
        """The fields of a prepared dataset. All of them must be public columns.

        Raises:
          ConfigError: A feature is sensitive. Noise on labels does not protect it.
        """
        if sensitive := [feature.name for feature in features if feature.role != "public"]:
            raise ConfigError(
                f"feature {sensitive[0]!r} is sensitive; noisy label sums protect labels alone. "
                "Pass the features of dataset.without_sensitive()."
            )
        return cls(num_ids=tuple(feature.num_ids for feature in features))

    @property
    def num_ones(self) -> int:
        """Ones of every row: its L1 norm, and the square of its L2 norm."""
        return len(self.num_ids) + 1

    @property
    def num_columns(self) -> int:
        """Length of a row: the constant first, then field after field."""
        return 1 + sum(self.num_ids)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first column of each field."""
        return tuple(1 + sum(self.num_ids[:field]) for field in range(len(self.num_ids)))

    def rows(self, ids: ArrayLike) -> "OneHotRows":
        """Rows with these ids, [rows, fields]."""
        return OneHotRows(fields=self, ids=np.asarray(ids))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OneHotRows:
    """Rows of a table as ids. They may be mapped from a file: they are read in blocks."""

    fields: OneHotFields
    ids: NDArray[np.integer]
    """[rows, fields]"""
    repeats: FloatArray | None = None
    """How many rows of the table each of these stands for; None for one each."""

    def __post_init__(self) -> None:
        num_fields = len(self.fields.num_ids)
        if self.ids.ndim != 2 or self.ids.shape[1] != num_fields or self.ids.dtype.kind not in "iu":
            raise DataError(
                f"ids of the type {self.ids.dtype} have the shape {self.ids.shape}; pass whole "
                f"numbers in the shape (rows, {num_fields}), a column for each field."
            )
        for block in self._blocks():
            ids = self.ids[block]
            if ids.size and (ids.min() < 0 or np.any(ids.max(0) >= self.fields.num_ids)):
                raise DataError(
                    "ids must be from 0 to num_ids - 1 of their field; encode the table with the "
                    "encoder that made the fields."
                )

    @property
    def layout(self) -> OneHotFields:
        """What the columns are."""
        return self.fields

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return len(self.ids) if self.repeats is None else int(self.repeats.sum())

    @property
    def row_weights(self) -> FloatArray | float:
        """How often each row counts in a sum over the table."""
        return 1.0 if self.repeats is None else self.repeats

    @property
    def constant(self) -> tuple[int, float] | None:
        """A column that is the same in every row, and its entry."""
        return 0, 1.0

    def distinct(self) -> "OneHotRows":
        """The same table with equal rows put together. Sums over it stay as they are."""
        ids, counts = np.unique(self.ids, axis=0, return_counts=True)
        if self.repeats is not None:
            _, places = np.unique(self.ids, axis=0, return_inverse=True)
            counts = np.bincount(places.reshape(-1), self.repeats)
        return OneHotRows(fields=self.fields, ids=ids, repeats=counts.astype(np.float64))

    def dot(self, weights: FloatArray) -> FloatArray:
        """Each row times a vector of one weight a column."""
        result = np.full(len(self.ids), weights[0])
        for block in self._blocks():
            ids = self.ids[block]
            for field, start in enumerate(self.fields.starts):
                result[block] += weights[start : start + self.fields.num_ids[field]][ids[:, field]]
        return result

    def sums(self, row_values: FloatArray) -> FloatArray:
        """The sum of all rows of the table, each times its value: one number a column."""
        values = row_values * self.row_weights
        result = np.zeros(self.fields.num_columns)
        for block in self._blocks():
            ids, part = self.ids[block], values[block]
            result[0] += part.sum()
            for field, start in enumerate(self.fields.starts):
                size = self.fields.num_ids[field]
                result[start : start + size] += np.bincount(ids[:, field], part, minlength=size)
        return result

    def square_sums(self, row_values: FloatArray) -> FloatArray:
        """Sums of squared entries: those of `sums`, as entries are 0 or 1."""
        return self.sums(row_values)

    def products(self, row_values: FloatArray) -> FloatArray:
        """The sum over the table of each row's outer product, times its value."""
        values = row_values * self.row_weights
        size = self.fields.num_columns
        result = np.zeros((size, size))
        result[0] = self.sums(row_values)
        starts, sizes = self.fields.starts, self.fields.num_ids
        for first, second in itertools.combinations_with_replacement(range(len(starts)), 2):
            counts = np.zeros(sizes[first] * sizes[second])
            for block in self._blocks():
                ids = self.ids[block].astype(np.int64)
                cells = ids[:, first] * sizes[second] + ids[:, second]
                counts += np.bincount(cells, values[block], minlength=counts.size)
            rows = slice(starts[first], starts[first] + sizes[first])
            columns = slice(starts[second], starts[second] + sizes[second])
            result[rows, columns] = counts.reshape(sizes[first], sizes[second])
        return np.triu(result) + np.triu(result, 1).T

    def exact_sums(self, is_counted: NDArray[np.bool_]) -> IntArray:
        """The sum of the rows that count, in whole numbers."""
        ids = self.ids[is_counted]
        parts = [
            np.bincount(ids[:, field], minlength=size)
            for field, size in enumerate(self.fields.num_ids)
        ]
        return np.concatenate([[len(ids)], *parts]).astype(np.int64)

    def sum_bounds(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest label sum of each column: zero and its number of rows."""
        counts = self.sums(np.ones(len(self.ids)))
        return np.zeros_like(counts), counts

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, len(self.ids), _ROWS_AT_ONCE):
            yield slice(start, start + _ROWS_AT_ONCE)


_GRID_BITS = 24
"""Bits by which the grid is finer than the bound: the cut moves a row by a 2^-24th of it."""


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

    def rows(self, matrix: Any) -> "ClippedFeatureRows":
        """Rows of a dense array or of a sparse matrix of scipy."""
        return ClippedFeatureRows.of(self, matrix)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ClippedFeatureRows:
    """Rows of a table of real numbers. Make them with `BoundedFeatures.rows`."""

    features: BoundedFeatures
    steps: "csr_array"
    """Entries in grid widths, whole numbers as float64."""

    @classmethod
    def of(cls, features: BoundedFeatures, matrix: Any) -> "ClippedFeatureRows":
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
        """Sums of squared entries, weighted as in `sums`."""
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
