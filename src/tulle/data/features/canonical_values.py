"""One form for each value, whichever file it came from.

Text files give text, Parquet gives numbers; the same value must become the
same feature id. The kind of the column in the schema decides:

- categorical: text as it stands ("5", "05" and "5.0" differ). A whole number is
  its decimal text, whichever type carries it: 5 and 5.0 from Parquet are "5"
  from a text file, because a gap makes floats of integers in many tables (below
  2^63 in size). Another float is the text of Python's repr, True is "true".
- integer: a number; text is parsed, so "05" is 5. Below 2^63 in size.
- real: a number; its text is that of Python's repr, the shortest that reads
  back as the same float ("0.50" and 0.5 agree, -0.0 is "0.0").
- timestamp: whole seconds, rounded down; dates and times count from 1970 UTC.

Null and NaN are missing. Empty text is a value of a categorical column and a
mistake in any other. Messages name the column only: how many values are wrong
may be sensitive.
"""

from typing import Any

import numpy as np
import polars as pl

from tulle.data.schema import Kind
from tulle.errors import DataError

_NUMBER_WORDS = {
    Kind.INTEGER: "whole numbers below 2^63 in size",
    Kind.REAL: "numbers",
    Kind.TIMESTAMP: "seconds as numbers below 2^63 in size",
}
_LARGEST = 2.0**63


def as_text(values: pl.Series, kind: Kind) -> pl.Series:
    """The canonical text of each value, null where it is missing."""
    if kind is Kind.REAL and not values.dtype.is_float():
        values = as_numbers(values, kind)
    if kind in (Kind.INTEGER, Kind.TIMESTAMP):
        values = as_numbers(values, kind)
    if values.dtype == pl.String:
        return values
    if values.dtype.is_float():
        return _float_texts(values, kind)
    if _is_plain(values.dtype):
        return values.cast(pl.String)
    raise _wrong_type(values, kind)


def as_numbers(values: pl.Series, kind: Kind) -> pl.Series:
    """The values as Int64 (integers, timestamps) or Float64 (reals), null where missing."""
    if kind is Kind.CATEGORICAL:
        raise DataError(
            f"column {values.name!r} is categorical and has no numbers; "
            "declare it integer, real or timestamp in the schema's kinds."
        )
    if kind is Kind.TIMESTAMP and values.dtype in (pl.Datetime, pl.Date):
        return values.dt.epoch("s").cast(pl.Int64)
    if values.dtype == pl.Null:
        return values.cast(pl.Float64 if kind is Kind.REAL else pl.Int64)
    if values.dtype != pl.String and not values.dtype.is_numeric():
        raise _wrong_type(values, kind)
    target = pl.Int64 if kind is Kind.INTEGER and not values.dtype.is_float() else pl.Float64
    if values.dtype.is_integer() and kind is Kind.TIMESTAMP:
        target = pl.Int64
    numbers = values.cast(target, strict=False)
    # Text with a fraction gives null, a decimal number would lose it.
    is_cut = values.dtype.is_decimal() and target == pl.Int64 and (values != values.floor()).any()
    if is_cut or numbers.null_count() > values.null_count():
        raise _wrong_values(values, kind)
    if numbers.dtype == pl.Int64:
        return numbers
    numbers = numbers.fill_nan(None)
    return numbers if kind is Kind.REAL else _whole_numbers(numbers, kind)


def _whole_numbers(floats: pl.Series, kind: Kind) -> pl.Series:
    rounded = floats.floor()
    is_wrong = (rounded.abs() >= _LARGEST) | ((rounded != floats) & (kind is Kind.INTEGER))
    if is_wrong.any():
        raise _wrong_values(floats, kind)
    return rounded.cast(pl.Int64)


def _float_texts(floats: pl.Series, kind: Kind) -> pl.Series:
    known = floats.fill_nan(None)
    distinct = known.drop_nulls().unique()
    whole = kind is Kind.CATEGORICAL
    texts = [
        str(int(value)) if whole and _is_whole(value) else _shortest_text(value)
        for value in distinct.to_numpy()
    ]
    if not texts:
        return known.cast(pl.String)
    return known.replace_strict(distinct, texts, default=None, return_dtype=pl.String)


def _is_whole(value: np.floating[Any]) -> bool:
    return value.is_integer() and bool(abs(value) < _LARGEST)


def _shortest_text(value: np.floating[Any]) -> str:
    # numpy prints a 32-bit float with as few digits as tell it from its neighbours.
    # Adding 0.0 turns -0.0 into it.
    return repr(float(str(value)) + 0.0)


def _is_plain(dtype: pl.DataType) -> bool:
    named = (pl.Categorical, pl.Enum, pl.Boolean, pl.Null)
    return dtype.is_integer() or dtype in named


def _wrong_type(values: pl.Series, kind: Kind) -> DataError:
    return DataError(
        f"column {values.name!r} is declared {kind.value} and has the type {values.dtype}; "
        "change its kind in the schema or convert it first."
    )


def _wrong_values(values: pl.Series, kind: Kind) -> DataError:
    return DataError(
        f"column {values.name!r} is declared {kind.value}, but not all its values are "
        f"{_NUMBER_WORDS[kind]}; mend the file or declare it categorical in the schema's kinds."
    )
