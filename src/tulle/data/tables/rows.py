"""Rows of named columns with their places, as values of the types that they are declared to have.

They come from Parquet, Arrow, delimited text, JSON lines or a table in memory. Every table comes
with the place of each of its rows, so that an error can say where. Nothing is guessed from the
values. What is missing or does not fit is an error that names the column and the place, and never
the value.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.atomic_files import read_whole
from tulle.data.schema import Kind
from tulle.data.tables.archives import LineSource, detect_form
from tulle.data.tables.columnar import stored_columns
from tulle.data.tables.json_lines import first_keys, read_json_rows
from tulle.data.tables.kinds import as_flags, as_numbers
from tulle.data.tables.layout import BadLines, Block, Reading, is_json_lines, text_form
from tulle.data.tables.memory import as_polars, columns_of
from tulle.data.tables.refusals import check_names, refuse_values
from tulle.data.tables.sources import TABLE_NAME, read_files
from tulle.data.tables.text import split_header
from tulle.errors import DataError
from tulle.privacy.fields import parse_json

IntArray = npt.NDArray[np.int64]
RowSource = Path | object
"""A file, or a table of polars, pandas, Arrow or DuckDB in memory."""

CANDIDATES_KEY = "candidates"
"""Key of the list in a JSON line that holds several rows; its other keys belong to all of them."""

_MISSING = "give every row a value"
_MEND = "correct it"
_ROW = 'a JSON object with the value of each column, such as {"campaign": 7}'


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RowTable:
    """Consecutive rows of a file or a table. As sensitive as the file."""

    table: pl.DataFrame = dataclasses.field(repr=False)
    source_name: str
    place_word: str
    """What numbers count: "row", or "line" of JSON, from 1."""
    numbers: IntArray
    """[rows], where each row is in its source."""

    def place(self, row: int) -> str:
        """Place of a row of this table, for an error message."""
        return f"{self.source_name}, {self.place_word} {self.numbers[row]}"


ColumnReader = Callable[[RowTable, str], pl.Series]
"""Takes rows and the name of a column, and gives its values."""


def source_name(source: RowSource) -> str:
    """What messages call a source of rows."""
    return source.name if isinstance(source, Path) else TABLE_NAME


def column_names(source: RowSource) -> list[str]:
    """The columns of a source: by its header, its schema, or the keys of its first line."""
    if not isinstance(source, Path):
        return as_polars(source).columns
    form = detect_form(source)
    if form.is_columnar:
        return stored_columns(source, form)
    if is_json_lines(source):
        return first_keys(source, form, CANDIDATES_KEY)
    with LineSource(source, form) as lines:
        header = lines.take(1)
    if header is None:
        raise DataError(
            f"{source.name} is empty; it must start with a header that names its columns."
        )
    try:
        line = header.data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{source.name} line 1, the header, is not UTF-8; correct it.") from None
    names = split_header(line, text_form(source, ("header",))) if line else None
    if names is None:
        raise DataError(f"{source.name} must start with a header that names its columns; add it.")
    return names


def read_row_tables(
    source: RowSource,
    columns: tuple[str, ...],
    *,
    rows_per_table: int,
    absent: tuple[str, ...] = (),
    missing: tuple[str, ...] = ("",),
) -> Iterator[RowTable]:
    """Streams the named columns of a source, in its order.

    Args:
      source: A table in memory; or a file that ends in .parquet, .arrow, .csv, .tsv, .jsonl or
        .ndjson, where text may end in .gz or .zst too.
      columns: What is read. No other column is looked at, but keys of JSON.
      rows_per_table: Most rows of a table, unless one JSON line has more.
      absent: Keys that no JSON line may have, because the first line has none of them.
      missing: Texts that mean that a value is missing; not in JSON, which has null.

    Privacy:
      Reads sensitive rows and releases nothing. Errors name places and columns, no values.

    Raises:
      DataError: The source cannot be read, or lacks a column.
      ConfigError: The name of the file does not say how it is written.
    """
    if not isinstance(source, Path):
        yield from _rows_in_memory(source, columns, rows_per_table)
        return
    form = detect_form(source)
    if is_json_lines(source):
        check_names(source.name, column_names(source), columns)
        for table, numbers in read_json_rows(
            source,
            form,
            columns,
            absent=absent,
            list_key=CANDIDATES_KEY,
            rows_per_table=rows_per_table,
        ):
            yield RowTable(table=table, source_name=source.name, place_word="line", numbers=numbers)
        return
    reading = Reading(
        form=text_form(source, columns, missing),
        columns=columns,
        rows_per_block=rows_per_table,
        bad_lines=BadLines.REFUSE,
    )
    for block in read_files([source], reading, None):
        yield _rows_of_block(source.name, block)


def is_json(source: RowSource) -> bool:
    """Whether a source is a file that holds JSON lines, by its name."""
    return isinstance(source, Path) and is_json_lines(source)


def ids_of(rows: RowTable, column: str) -> pl.Series:
    """Whole numbers as Int64, texts as they are."""
    values = _present(rows, column, _MISSING)
    if values.dtype == pl.String:
        return values
    if not values.dtype.is_integer():
        raise _wrong_type(rows, column, values, "whole numbers or text")
    return as_numbers(values, Kind.INTEGER, rows.place, way_out=_MEND)


def whole_numbers_of(rows: RowTable, column: str) -> pl.Series:
    """Whole numbers of 64 bits."""
    return as_numbers(_present(rows, column, _MISSING), Kind.INTEGER, rows.place, way_out=_MEND)


def reals_of(rows: RowTable, column: str, *, if_missing: str = _MISSING) -> pl.Series:
    """Finite numbers >= 0.

    Args:
      rows: The rows.
      column: The name of the column.
      if_missing: What to do where a value is missing.
    """
    numbers = as_numbers(_present(rows, column, if_missing), Kind.REAL, rows.place, way_out=_MEND)
    is_right = (numbers.is_finite() & (numbers >= 0)).fill_null(False)
    refuse_values(column, ~is_right, rows.place, "is no finite number >= 0", _MEND)
    return numbers


def reals_or_missing_of(rows: RowTable, column: str) -> pl.Series:
    """Finite numbers >= 0, null where a value is missing."""
    values = _without_nan(rows.table[column])
    is_present = values.is_not_null().to_numpy()
    present = dataclasses.replace(
        rows, table=rows.table.filter(is_present), numbers=rows.numbers[is_present]
    )
    filled = np.full(len(values), np.nan)
    filled[is_present] = reals_of(present, column).to_numpy()
    return pl.Series(column, filled, nan_to_null=True)


def chances_of(rows: RowTable, column: str, *, if_missing: str = _MISSING) -> pl.Series:
    """Numbers in [0, 1].

    Args:
      rows: The rows.
      column: The name of the column.
      if_missing: What to do where a value is missing.
    """
    numbers = as_numbers(_present(rows, column, if_missing), Kind.REAL, rows.place, way_out=_MEND)
    is_right = numbers.is_between(0, 1).fill_null(False)
    refuse_values(column, ~is_right, rows.place, "is no probability in [0, 1]", _MEND)
    return numbers


def flags_of(rows: RowTable, column: str) -> pl.Series:
    """True and false, also written as yes and no, t and f, or 1 and 0."""
    return as_flags(_present(rows, column, _MISSING), rows.place, way_out=_MEND)


def times_of(rows: RowTable, column: str) -> pl.Series:
    """Numbers of seconds as they are; dates and times as seconds since 1970."""
    return as_numbers(_present(rows, column, _MISSING), Kind.TIMESTAMP, rows.place, way_out=_MEND)


def one_row_of(text: str) -> dict[str, object] | pl.DataFrame:
    """One row as it is given on a command line: a JSON object, or the name of a file.

    Args:
      text: An object such as {"campaign": 7}, or a file: .json with such an object, or a table.

    Raises:
      DataError: The file cannot be read, or the text is no object.
    """
    path, what = Path(text), "the row"
    if not text.lstrip().startswith("{"):
        if path.suffix != ".json":
            tables = read_row_tables(path, tuple(column_names(path)), rows_per_table=2)
            return next((rows.table for rows in tables), pl.DataFrame())
        text, what = read_whole(path, lambda found: found, what=what, way_out=_ROW), path.name
    data = parse_json(what, text)
    if not isinstance(data, dict):
        raise DataError(f"{what} must be {_ROW}.")
    return data


def _rows_in_memory(
    source: object, columns: tuple[str, ...], rows_per_table: int
) -> Iterator[RowTable]:
    table = columns_of(source, columns, name=source_name(source))
    for start in range(0, len(table), rows_per_table):
        part = table.slice(start, rows_per_table)
        numbers = np.arange(start + 1, start + len(part) + 1)
        name = source_name(source)
        yield RowTable(table=part, source_name=name, place_word="row", numbers=numbers)


def _rows_of_block(name: str, block: Block) -> RowTable:
    # Bad lines are refused, so each row of a text file is one line.
    last = block.next.row
    return RowTable(
        table=block.table,
        source_name=name,
        place_word="row",
        numbers=np.arange(last - len(block.table) + 1, last + 1),
    )


def _present(rows: RowTable, column: str, if_missing: str) -> pl.Series:
    values = _without_nan(rows.table[column])
    refuse_values(column, values.is_null(), rows.place, "is missing", if_missing)
    return values


def _without_nan(values: pl.Series) -> pl.Series:
    return values.fill_nan(None) if values.dtype.is_float() else values


def _wrong_type(rows: RowTable, column: str, values: pl.Series, wanted: str) -> DataError:
    return DataError(
        f"{rows.source_name}: column {column!r} has the type {values.dtype}, must be {wanted}."
    )
