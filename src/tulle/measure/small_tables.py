"""Small tables beside the log: wanted slices, earlier counts, past values, exported totals.

They fit into memory and come as a file of any form or as a table in memory, through the reader of
all tables, with its refusals by column and row.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tulle.data.row_arrays import DOUBTFUL_TIME, MOST_DOUBTFUL_TIME
from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_numbers, as_text
from tulle.data.tables.memory import as_polars
from tulle.data.tables.refusals import refuse_missing, refuse_values
from tulle.data.tables.rows import (
    RowTable,
    column_names,
    read_row_tables,
    source_name,
    times_of,
    whole_numbers_of,
)
from tulle.measure.ad_log import DAY_SECONDS, MAX_SECONDS

_ROWS_AT_ONCE = 1 << 20
"""Rows that are read at once, before they are put together."""
_MEND = "correct it"
"""Way out of a value that is none of its kind."""


def read_rows(data: object, columns: Sequence[str], *, if_there: Sequence[str] = ()) -> RowTable:
    """Reads columns of a whole table, with the places of its rows.

    Args:
      data: A path, or a table of polars, pandas, Arrow or DuckDB.
      columns: What is read of it.
      if_there: What is read too, if the table has it.

    Raises:
      DataError: It cannot be read, or lacks a column.
      ConfigError: The name of the file does not say how it is written.
    """
    if isinstance(data, str | os.PathLike):
        source: object = Path(data)
        known = column_names(source) if if_there else []
    else:
        source = as_polars(data, columns=[*columns, *if_there])
        known = source.columns
    names = tuple(dict.fromkeys([*columns, *(name for name in if_there if name in known)]))
    found = list(read_row_tables(source, names, rows_per_table=_ROWS_AT_ONCE))
    if not found:
        empty = pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        return RowTable(
            table=empty,
            source_name=source_name(source),
            place_word="row",
            numbers=np.zeros(0, np.int64),
        )
    return RowTable(
        table=pl.concat([rows.table for rows in found], how="vertical_relaxed"),
        source_name=found[0].source_name,
        place_word=found[0].place_word,
        numbers=np.concatenate([rows.numbers for rows in found]),
    )


def texts_of(rows: RowTable, column: str) -> pl.Series:
    """Values of a slice as the text that rows of the log are compared by, null where missing."""
    values = rows.table[column]
    if values.dtype == pl.Date:
        return values.cast(pl.String)
    return as_text(values, Kind.CATEGORICAL, rows.place)


def present_texts_of(rows: RowTable, column: str) -> pl.Series:
    """Values as text, of which none is missing."""
    texts = texts_of(rows, column)
    refuse_missing(texts, rows.place, "every row needs a value")
    return texts


def seconds_of(rows: RowTable, column: str, kind: Kind | None = None) -> pl.Series:
    """Times in whole seconds since 1970, rounded down.

    Args:
      rows: The rows.
      column: The column with their times.
      kind: Timestamp (seconds) or integer (days) where the column is declared so; None where
        nothing is said, and a number that may count either is refused.

    Raises:
      DataError: A time is missing, cannot be read or is in doubt.
    """
    if kind is Kind.INTEGER:
        seconds = whole_numbers_of(rows, column) * DAY_SECONDS
    else:
        seconds = times_of(rows, column)
    if kind is None:
        values = rows.table[column]
        is_number = values.cast(pl.Float64, strict=False).is_not_null()
        if values.dtype in (pl.Date, pl.Datetime):
            is_number = pl.repeat(False, len(values), eager=True)
        refuse_values(
            column,
            is_number & seconds.is_between(-MOST_DOUBTFUL_TIME, MOST_DOUBTFUL_TIME),
            rows.place,
            DOUBTFUL_TIME,
            f'say which by kinds = {{{column} = "integer"}} for days, "timestamp" for seconds '
            "(--column-kind)",
        )
    refuse_values(
        column,
        ~seconds.is_between(0, MAX_SECONDS),
        rows.place,
        "is outside of the years 1970 to 5138 when read as seconds",
        "divide milliseconds by 1000 in all rows, or store timestamps",
    )
    return seconds


def numbers_of(rows: RowTable, column: str) -> pl.Series:
    """Finite numbers, of which none is missing."""
    numbers = as_numbers(rows.table[column], Kind.REAL, rows.place, way_out=_MEND)
    is_right = numbers.is_finite().fill_null(False)
    refuse_values(column, ~is_right, rows.place, "is no finite number", _MEND)
    return numbers


def file_stem(name: str) -> str:
    """A name as that of a file, without its ending."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "table"
