"""Values by their kind: one form for each value, whichever file or table it came from.

Text files give text, Parquet and tables in memory give types; the same value must become the
same number and the same feature id. The kind of the column in the schema decides:

- categorical: text as it stands ("5", "05" and "5.0" differ). A whole number is
  its decimal text, whichever type carries it: 5 and 5.0 from Parquet are "5"
  from a text file, because a gap makes floats of integers in many tables (below
  2^63 in size). Another float is the text of Python's repr, True is "true".
- integer: a number; text is parsed, so "05" and "5.0" are 5. Below 2^63 in size.
- real: a number; its text is that of Python's repr, the shortest that reads
  back as the same float ("0.50" and 0.5 agree, -0.0 is "0.0").
- boolean: true or false. The words true, t, yes, false, f and no are read in capitals or not,
  and so are 1 and 0; its text is "true" or "false".
- timestamp: whole seconds, rounded down. A number counts seconds; dates and times, also in
  ISO 8601 text, count from 1970 and are in UTC where they name no zone.

Null and NaN are missing. Empty text is a value of a categorical column and a
mistake in any other. A refusal names the column and, where the reader knows it, the row.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import polars as pl

from tulle.data.schema import Kind, Schema
from tulle.data.tables.refusals import Place, refuse_values
from tulle.errors import DataError

_WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]*")

ISO_TIME = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    "([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?"
    "(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$"
)
"""Texts that are dates or times of ISO 8601: a pattern that polars, DuckDB and Spark read alike."""
TIME_WORDS = "time: a number of seconds, or a date and time in ISO form"
FLAG_WORDS = "true, false, yes or no"
"""Words that a truth value may be in place of 1 and 0, for messages."""

FLAG_TEXTS = {"true": True, "t": True, "yes": True, "1": True, "1.0": True} | {
    "false": False,
    "f": False,
    "no": False,
    "0": False,
    "0.0": False,
}
"""Texts, in small letters, that are truth values."""
NO_FLAG = f"holds no truth value: {FLAG_WORDS}, or one and zero as digits"
"""Reason why a value of a column that is declared boolean is refused, for messages."""
_WANTED = {
    Kind.INTEGER: "whole number below 2^63 in size",
    Kind.REAL: "number",
    Kind.BOOLEAN: f"truth value: {FLAG_WORDS}, or one and zero as digits",
    Kind.TIMESTAMP: TIME_WORDS,
}
_WAY_OUT_OF_NEW_ROWS = (
    "correct it, or leave it empty, which counts as missing: the model knows the column by its kind"
)
"""What a refusal advises where a model meets new rows."""
MOST_SECONDS = 100_000_000_000
"""3,100 years: larger numbers are times in a smaller unit, which would give wrong hours and
windows."""
_LARGEST = 2.0**63
"""The first float that is no 64-bit integer any more; a cast of it would give any number."""
_ZONE = ":[0-9.]+([+-][0-9]{2}):?([0-9]{2})?$"


def typed_columns(
    table: pl.DataFrame,
    schema: Schema,
    place: Place,
    *,
    columns: Collection[str] | None = None,
    is_new: bool = False,
) -> pl.DataFrame:
    """The table with columns as values of their kinds, which they keep ever after.

    Categories, and numbers that are stored as reals already, stay as they are.

    Args:
      table: Rows of the columns that a reader found.
      schema: The kinds.
      place: Says where a row is.
      columns: Which columns, as far as they are there; None: the features.
      is_new: True for rows that a model meets whose schema is settled: then nobody is advised to
        change it.

    Privacy:
      Releases nothing. A refusal names the column and the row, never the value.

    Raises:
      DataError: A value is none of its column's kind.
    """
    way_out = _WAY_OUT_OF_NEW_ROWS if is_new else None
    typed = [
        _typed(table[name], kind, place, way_out)
        for name in (schema.features if columns is None else columns)
        if name in table.columns and (kind := schema.kind(name)) is not Kind.CATEGORICAL
    ]
    return table.with_columns(typed)


def as_text(values: pl.Series, kind: Kind, place: Place | None = None) -> pl.Series:
    """The canonical text of each value, null where it is missing.

    Args:
      values: A column.
      kind: What it is declared to be.
      place: Says where a row is; None: a refusal names the column alone.
    """
    if kind is not Kind.CATEGORICAL:
        values = _typed(values, kind, place)
    if values.dtype == pl.String:
        return values
    if values.dtype.is_float():
        return _float_texts(values, kind)
    if _is_plain(values.dtype):
        return values.cast(pl.String)
    raise _wrong_type(values, kind)


def as_numbers(
    values: pl.Series, kind: Kind, place: Place | None = None, *, way_out: str | None = None
) -> pl.Series:
    """The values as Int64 (integers, timestamps, truth values) or Float64, null where missing.

    Args:
      values: A column.
      kind: What it is declared to be; no category.
      place: Says where a row is; None: a refusal names the column alone.
      way_out: What a refusal advises; None: to correct the row or the schema.
    """
    if kind is Kind.CATEGORICAL:
        raise DataError(
            f"column {values.name!r} is categorical and has no numbers; "
            "declare it integer, real, boolean or timestamp in the schema's kinds."
        )
    if kind is Kind.BOOLEAN:
        return as_flags(values, place, way_out=way_out).cast(pl.Int64)
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    if values.dtype == pl.Null:
        return values.cast(pl.Float64 if kind is Kind.REAL else pl.Int64)
    is_moment = kind is Kind.TIMESTAMP and values.dtype in (pl.Datetime, pl.Date)
    if not (is_moment or values.dtype == pl.String or values.dtype.is_numeric()):
        raise _wrong_type(values, kind)
    if kind is Kind.REAL:
        numbers = values.cast(pl.Float64, strict=False)
    else:
        numbers = _integers(values) if kind is Kind.INTEGER else _seconds(values)
    given = values.is_not_null()
    if values.dtype.is_float():
        given &= values.is_not_nan()
    _refuse(values.name, given & numbers.is_null(), kind, place, way_out)
    return numbers.fill_nan(None) if kind is Kind.REAL else numbers


def as_flags(
    values: pl.Series, place: Place | None = None, *, way_out: str | None = None
) -> pl.Series:
    """The values as true and false, null where missing.

    Args:
      values: A column of truth values, of their words, or of 1 and 0.
      place: Says where a row is; None: a refusal names the column alone.
      way_out: What a refusal advises; None: to correct the row or the schema.
    """
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    if values.dtype in (pl.Boolean, pl.Null):
        return values.cast(pl.Boolean)
    if values.dtype == pl.String:
        given = values.is_not_null()
        flags = _flags_of_text(values)
    elif values.dtype.is_numeric():
        numbers = values.cast(pl.Float64).fill_nan(None)
        given = numbers.is_not_null()
        flags = (numbers == 1).set(~numbers.is_in([0.0, 1.0]).fill_null(False), None)
    else:
        raise _wrong_type(values, Kind.BOOLEAN)
    _refuse(values.name, given & flags.is_null(), Kind.BOOLEAN, place, way_out)
    return flags


def label_numbers(values: pl.Series) -> pl.Series:
    """Labels as floats, each by itself; null where a value is missing or stands for no number.

    Truth values and their words stand for 1 and 0.
    """
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    numbers = values.cast(pl.Float64, strict=False).fill_nan(None)
    if values.dtype != pl.String:
        return numbers
    return numbers.fill_null(_flags_of_text(values).cast(pl.Float64))


def are_whole_numbers(names: Sequence[str]) -> bool:
    """Whether all names are whole numbers, written as Python writes them."""
    return all(_WHOLE_NUMBER.fullmatch(name) for name in names)


def class_numbers(values: pl.Series, classes: Sequence[str]) -> pl.Series:
    """Labels as the places of their names among classes; null where one is missing or has no place.

    Whole numbers, also those that are stored as floats, are named by their digits, and truth values
    by the words true and false.

    Args:
      values: The labels.
      classes: Names of the classes.
    """
    if values.dtype.is_float():
        values = _integers(values.fill_nan(None))
    names = values.cast(pl.String)
    if are_whole_numbers(classes):
        names = names.str.replace("^([+-]?[0-9]+)[.]0+$", "$1")
    places = [float(place) for place in range(len(classes))]
    return names.replace_strict(list(classes), places, default=None, return_dtype=pl.Float32)


def _typed(
    values: pl.Series, kind: Kind, place: Place | None, way_out: str | None = None
) -> pl.Series:
    # A short float keeps its type, and with it the text that it has in few digits.
    if kind is Kind.REAL and values.dtype.is_float():
        return values
    if kind is Kind.BOOLEAN:
        return as_flags(values, place, way_out=way_out)
    numbers = as_numbers(values, kind, place, way_out=way_out)
    if kind is Kind.TIMESTAMP:
        refuse_values(
            numbers.name,
            (numbers > MOST_SECONDS) | (numbers < -MOST_SECONDS),
            place,
            f"is a time and beyond {MOST_SECONDS:,} seconds",
            "such times look like milliseconds; convert them to seconds",
        )
    return numbers


def _flags_of_text(values: pl.Series) -> pl.Series:
    words, flags = list(FLAG_TEXTS), list(FLAG_TEXTS.values())
    return values.str.to_lowercase().replace_strict(
        words, flags, default=None, return_dtype=pl.Boolean
    )


def _integers(values: pl.Series) -> pl.Series:
    """Whole numbers, null where a value is none."""
    if values.dtype == pl.String:
        numbers = values.cast(pl.Int64, strict=False)
        if numbers.null_count() == values.null_count():
            return numbers
        return values.str.replace("^([+-]?[0-9]+)[.]0+$", "$1").cast(pl.Int64, strict=False)
    if values.dtype.is_float():
        return _whole(values.set(values != values.floor(), None))
    if values.dtype.is_decimal():
        values = values.set(values != values.floor(), None)
    return values.cast(pl.Int64, strict=False)


def _seconds(values: pl.Series) -> pl.Series:
    """Whole seconds, rounded down, null where a value is no time."""
    if values.dtype in (pl.Datetime, pl.Date):
        return values.dt.epoch("s").cast(pl.Int64)
    if values.dtype.is_integer():
        return values.cast(pl.Int64, strict=False)
    numbers = _whole(values.cast(pl.Float64, strict=False))
    if values.dtype == pl.String and numbers.null_count() > values.null_count():
        return numbers.fill_null(_seconds_of_iso(values))
    return numbers


def _whole(floats: pl.Series) -> pl.Series:
    rounded = floats.fill_nan(None).floor()
    return rounded.set(rounded.abs() >= _LARGEST, None).cast(pl.Int64)


def _seconds_of_iso(texts: pl.Series) -> pl.Series:
    moments = texts.set(~texts.str.contains(ISO_TIME).fill_null(False), None)
    # Of a date alone the parts below are empty, and count nothing.
    days = moments.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).dt.epoch("d")
    clock = moments.str.slice(11)
    hours, minutes = _digits(clock.str.slice(0, 2)), _digits(clock.str.slice(3, 2))
    seconds = _digits(clock.str.extract("^[0-9]{2}:[0-9]{2}:([0-9]{2})", 1))
    zone_hours = clock.str.extract(_ZONE, 1)
    zone = 60 * _digits(zone_hours.str.slice(1)) + _digits(clock.str.extract(_ZONE, 2))
    zone = (-zone).zip_with(zone_hours.str.starts_with("-").fill_null(False), zone)
    return 86_400 * days.cast(pl.Int64) + 3600 * hours + 60 * (minutes - zone) + seconds


def _digits(texts: pl.Series) -> pl.Series:
    return texts.cast(pl.Int64, strict=False).fill_null(0)


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


def _refuse(
    column: str, is_wrong: pl.Series, kind: Kind, place: Place | None, way_out: str | None
) -> None:
    in_schema = f"correct it, or change the kind {kind.value} of the column in the schema's kinds"
    refuse_values(column, is_wrong, place, f"holds no {_WANTED[kind]}", way_out or in_schema)


def _wrong_type(values: pl.Series, kind: Kind) -> DataError:
    return DataError(
        f"column {values.name!r} is declared {kind.value} and has the type {values.dtype}; "
        "change its kind in the schema or convert it first."
    )
