"""Rows of one-hot fields: each row has a one in the constant and in one column of each field.

A field is its own block of columns, also where two fields share an embedding table, so
a row is always a vector with exactly as many ones as there are fields, constant included.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.prepared.format import PreparedFeature
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 18


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneHotFields:
    """How many ids each field has. Public."""

    num_ids: tuple[int, ...]
    """Of each field; ids are 0 to num_ids - 1. The constant is not listed."""

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
        """As `sums`, of squared entries: the same, as entries are 0 or 1."""
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
