"""Columns of rows as values of the types that they are declared to have.

Text is read as its column's type row by row. What is missing or does not fit is an error that
names the column and the place, and never the value.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import polars as pl

from tulle.data.row_files import RowTable
from tulle.errors import DataError

ColumnReader = Callable[[RowTable, str], pl.Series]
"""Takes rows and the name of a column, and gives its values."""

_FLAGS = {"0": False, "1": True, "false": False, "true": True, "False": False, "True": True}
_MISSING = "give every row a value"


def ids_of(rows: RowTable, column: str) -> pl.Series:
    """Whole numbers as Int64, texts as they are."""
    values = _present(rows, column, _MISSING)
    if values.dtype == pl.String:
        return values
    if not values.dtype.is_integer():
        raise _wrong_type(rows, column, values, "whole numbers or text")
    return _converted(rows, column, values, pl.Int64(), "a whole number of 64 bits")


def whole_numbers_of(rows: RowTable, column: str) -> pl.Series:
    """Whole numbers of 64 bits."""
    values = _present(rows, column, _MISSING)
    if values.dtype != pl.String and not values.dtype.is_integer():
        raise _wrong_type(rows, column, values, "whole numbers")
    return _converted(rows, column, values, pl.Int64(), "a whole number of 64 bits")


def reals_of(rows: RowTable, column: str, *, if_missing: str = _MISSING) -> pl.Series:
    """Finite numbers >= 0."""
    numbers = _numbers(rows, column, if_missing)
    _refuse(rows, column, numbers.is_finite() & (numbers >= 0), "must be finite and >= 0")
    return numbers


def reals_or_missing_of(rows: RowTable, column: str) -> pl.Series:
    """Finite numbers >= 0, null where a value is missing."""
    values = rows.table[column]
    is_present = values.is_not_null().to_numpy()
    present = dataclasses.replace(
        rows, table=rows.table.filter(is_present), numbers=rows.numbers[is_present]
    )
    numbers = reals_of(present, column).to_numpy()
    filled = np.full(len(values), np.nan)
    filled[is_present] = numbers
    return pl.Series(column, filled, nan_to_null=True)


def chances_of(rows: RowTable, column: str, *, if_missing: str = _MISSING) -> pl.Series:
    """Numbers in [0, 1]."""
    numbers = _numbers(rows, column, if_missing)
    # NaN is greater than any number for polars.
    _refuse(rows, column, (numbers >= 0) & (numbers <= 1), "must be a chance in [0, 1]")
    return numbers


def flags_of(rows: RowTable, column: str) -> pl.Series:
    """True and false, also written as 1 and 0."""
    values = _present(rows, column, _MISSING)
    if values.dtype == pl.Boolean:
        return values
    if values.dtype != pl.String and not values.dtype.is_integer():
        raise _wrong_type(rows, column, values, "true and false, or 1 and 0")
    flags = values.cast(pl.String).replace_strict(
        list(_FLAGS), list(_FLAGS.values()), default=None, return_dtype=pl.Boolean
    )
    _refuse(rows, column, flags.is_not_null(), "must be true or false, or 1 or 0")
    return flags


def times_of(rows: RowTable, column: str) -> pl.Series:
    """Whole seconds as they are; times and dates of Parquet as seconds since 1970."""
    values = _present(rows, column, _MISSING)
    if values.dtype in (pl.Datetime, pl.Date):
        return values.dt.epoch("s").cast(pl.Int64)
    if values.dtype != pl.String and not values.dtype.is_integer():
        raise _wrong_type(rows, column, values, "whole seconds, times or dates")
    what = "whole seconds; write times so, or store them as timestamps in Parquet"
    return _converted(rows, column, values, pl.Int64(), what)


def _numbers(rows: RowTable, column: str, if_missing: str) -> pl.Series:
    values = _present(rows, column, if_missing)
    if values.dtype != pl.String and not values.dtype.is_numeric():
        raise _wrong_type(rows, column, values, "numbers")
    return _converted(rows, column, values, pl.Float64(), "a number")


def _present(rows: RowTable, column: str, if_missing: str) -> pl.Series:
    values = rows.table[column]
    _refuse(rows, column, values.is_not_null(), f"is missing; {if_missing}")
    return values


def _converted(
    rows: RowTable, column: str, values: pl.Series, kind: pl.DataType, what: str
) -> pl.Series:
    converted = values.cast(kind, strict=False)
    _refuse(rows, column, converted.is_not_null(), f"must be {what}")
    return converted


def _refuse(rows: RowTable, column: str, is_fine: pl.Series, problem: str) -> None:
    if not is_fine.all():
        first = int(np.argmin(is_fine.to_numpy()))
        raise DataError(f"{rows.place(first)}: column {column!r} {problem}.")


def _wrong_type(rows: RowTable, column: str, values: pl.Series, wanted: str) -> DataError:
    return DataError(
        f"{rows.file_name}: column {column!r} has the type {values.dtype}, must be {wanted}."
    )
