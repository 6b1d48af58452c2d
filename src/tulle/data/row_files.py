"""Rows of named columns from Parquet, delimited text or JSON lines, with their places.

Every table comes with the line (of text) or row (of Parquet) of each of its rows, so that an
error can say where. From delimited text every value is text; from the others it has the type
that the file gives it. Nothing is guessed from the values.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data.formats.archives import FileForm, detect_form, form_by_name
from tulle.data.formats.blocks import BadLines, Block, Reading
from tulle.data.formats.delimited import check_names
from tulle.data.formats.layout import QUOTE, TextForm
from tulle.data.formats.lines import LineSource
from tulle.data.formats.parquet import parquet_columns
from tulle.data.formats.tables import read_files
from tulle.data.formats.values import split_header
from tulle.data.json_rows import first_keys, read_json_rows
from tulle.errors import ConfigError, DataError

IntArray = npt.NDArray[np.int64]

CANDIDATES_KEY = "candidates"
"""Key of the list in a JSON line that holds several rows; its other keys belong to all of them."""

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_JSON_SUFFIXES = (".jsonl", ".ndjson")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RowTable:
    """Consecutive rows of a file. As sensitive as the file."""

    table: pl.DataFrame = dataclasses.field(repr=False)
    file_name: str
    place_word: str
    """What numbers count: "line" or "row", from 1."""
    numbers: IntArray
    """[rows], where each row is in the file."""

    def place(self, row: int) -> str:
        """Where a row of this table is, for an error message."""
        return f"{self.file_name} {self.place_word} {self.numbers[row]}"


def column_names(path: Path) -> list[str]:
    """The columns that a file has: by its header, its schema, or the keys of its first line."""
    form = detect_form(path)
    if form is FileForm.PARQUET:
        return parquet_columns(path)
    if is_json(path):
        return first_keys(path, form, CANDIDATES_KEY)
    with LineSource(path, form) as source:
        header = source.take(1)
    try:
        line = "" if header is None else header.data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{path.name} line 1, the header, is not UTF-8; correct it.") from None
    names = split_header(line, _text_form(path, ("header",), ())) if line else None
    if names is None:
        raise DataError(f"{path.name} must start with a header that names its columns; add it.")
    return names


def read_row_tables(
    path: Path,
    columns: tuple[str, ...],
    *,
    rows_per_table: int,
    absent: tuple[str, ...] = (),
    missing: tuple[str, ...] = ("",),
) -> Iterator[RowTable]:
    """Streams the named columns of a file, in its order.

    Args:
      path: Ends in .parquet, .csv, .tsv, .jsonl or .ndjson; text may end in .gz or .zst too.
      columns: What is read. No other column of a Parquet or delimited file is looked at.
      rows_per_table: Most rows of a table, unless one JSON line has more.
      absent: Keys that no JSON line may have, because the first line has none of them.
      missing: Texts that mean that a value is missing; not in JSON, which has null.

    Privacy:
      Reads sensitive rows and releases nothing. Errors name places and columns, no values.

    Raises:
      DataError: The file cannot be read, or lacks a column.
      ConfigError: The name of the file does not say how it is written.
    """
    form = detect_form(path)
    if form is not FileForm.PARQUET and is_json(path):
        check_names(path.name, column_names(path), columns)
        for table, numbers in read_json_rows(
            path,
            form,
            columns,
            absent=absent,
            list_key=CANDIDATES_KEY,
            rows_per_table=rows_per_table,
        ):
            yield RowTable(table=table, file_name=path.name, place_word="line", numbers=numbers)
        return
    reading = Reading(
        form=_text_form(path, columns, missing),
        columns=columns,
        rows_per_block=rows_per_table,
        bad_lines=BadLines.REFUSE,
    )
    for block in read_files([path], reading, None):
        yield _row_table(path, block, is_text=form is not FileForm.PARQUET)


def is_json(path: Path) -> bool:
    """Whether the name says that a file holds JSON lines."""
    return _text_suffix(path) in _JSON_SUFFIXES


def _row_table(path: Path, block: Block, *, is_text: bool) -> RowTable:
    # Bad lines are refused, so each row of a text file is one line.
    last = block.next.line if is_text else block.next.row
    return RowTable(
        table=block.table,
        file_name=path.name,
        place_word="line" if is_text else "row",
        numbers=np.arange(last - len(block.table) + 1, last + 1),
    )


def _text_form(path: Path, columns: tuple[str, ...], missing: tuple[str, ...]) -> TextForm:
    if form_by_name(path) is FileForm.PARQUET:
        return TextForm(columns=columns, separator=",", has_header=True, missing=missing)
    separator = _SEPARATORS.get(_text_suffix(path))
    if separator is None:
        raise ConfigError(
            f"the name {path.name} does not say how rows are written; end it in .parquet, .csv, "
            ".tsv, .jsonl or .ndjson (text also with .gz or .zst behind)."
        )
    quote = QUOTE if separator == "," else None
    return TextForm(
        columns=columns, separator=separator, has_header=True, missing=missing, quote=quote
    )


def _text_suffix(path: Path) -> str:
    is_plain = form_by_name(path) is FileForm.PLAIN
    return (path if is_plain else path.with_suffix("")).suffix.lower()
