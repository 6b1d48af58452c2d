"""The files of a log: what they are by their names, their headers, and copies that engines scan.

Names of files and of columns decide how a file is read, by the rules of `data.tables`, and never a
row. An engine that looks at values to find separators, quotes or types lets one row change how all
others are read, and no bound on what one user adds would hold. Forms that an engine does not scan
itself (Arrow, JSON lines) are copied to Parquet by the reader of all other tables.
"""

import dataclasses
import enum
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from tulle.data.schema import Kind
from tulle.data.source_files import refuse_copies
from tulle.data.tables.archives import FileForm, detect_form, form_by_name
from tulle.data.tables.columnar import sink_tables
from tulle.data.tables.kinds import as_text
from tulle.data.tables.layout import text_form, text_suffix
from tulle.data.tables.rows import column_names, is_json, read_row_tables
from tulle.errors import DataError
from tulle.measure.ad_log import FileTable

_ROWS_PER_BLOCK = 100_000
"""Rows that are copied at once, which bounds the memory."""


class FileKind(enum.Enum):
    """What the files of a table are, by their names."""

    PARQUET = "Parquet"
    ARROW = "Arrow"
    CSV = "CSV"
    TSV = "TSV"
    JSON = "JSON lines"


_TEXT_KINDS = {
    ".csv": FileKind.CSV,
    ".tsv": FileKind.TSV,
    ".tab": FileKind.TSV,
    ".jsonl": FileKind.JSON,
    ".ndjson": FileKind.JSON,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTable:
    """How the text files of one table are written."""

    columns: tuple[str, ...]
    """Names in the header, which is the same in all files."""
    separator: str
    quote: str
    """Quote around texts, doubled inside; empty where a quote is only text."""


def file_kind(source: FileTable) -> FileKind:
    """The kind of all files of a table, by their names.

    Raises:
      DataError: A name says nothing, or the files are of several kinds.
    """
    kinds = [_kind_of(path) for path in source.paths]
    if len(set(kinds)) > 1:
        raise DataError(
            f"{source.paths[0].name} and other files of its table are of several kinds; use one "
            "kind of file per table."
        )
    return kinds[0]


def check_files(source: FileTable) -> None:
    """Refuses files that are missing, no table by their content, named twice or copies.

    Raises:
      DataError: It names the file.
    """
    for path in source.paths:
        detect_form(path)
    refuse_copies(source.paths, has_header=True)


def text_table(source: FileTable) -> TextTable:
    """How the CSV or TSV files of a table are written, by their headers.

    Raises:
      DataError: Headers differ, or name a column twice.
    """
    first = source.paths[0]
    headers = [column_names(path) for path in source.paths]
    for path, header in zip(source.paths, headers, strict=True):
        if header != headers[0]:
            raise DataError(
                f"{path.name} has another header line than {first.name}; all files of a table need "
                "the same columns in the same order."
            )
    # Engines take Site and site for one.
    folded = [name.casefold() for name in headers[0]]
    if not all(folded) or len(set(folded)) < len(folded):
        raise DataError(
            f"{first.name}: its first line has a name twice or an empty one; the first line of "
            "CSV names the columns."
        )
    forms = [text_form(path, tuple(headers[0])) for path in source.paths]
    for path, form in zip(source.paths, forms, strict=True):
        # An engine splits all files of a table alike.
        if form.separator != forms[0].separator:
            raise DataError(
                f"{path.name} separates its columns otherwise than {first.name}; write all files "
                "of a table alike."
            )
    return TextTable(
        columns=forms[0].columns, separator=forms[0].separator, quote=forms[0].quote or ""
    )


def as_scanned(source: FileTable, endings: Sequence[str], copy: Path) -> FileTable:
    """The files themselves where an engine scans them, else one Parquet file with their rows.

    Args:
      source: The files of one table.
      endings: Endings of the names that the engine scans.
      copy: Where a copy goes; as sensitive as the files.
    """
    if all(path.name.endswith(tuple(endings)) for path in source.paths):
        return source
    _write_parquet(source, copy)
    return FileTable(paths=(copy,))


def _kind_of(path: Path) -> FileKind:
    form = form_by_name(path)
    if form.is_columnar:
        return FileKind.PARQUET if form is FileForm.PARQUET else FileKind.ARROW
    kind = _TEXT_KINDS.get(text_suffix(path))
    if kind is None:
        raise DataError(
            f"the name {path.name} does not say what kind of table it is; end it in .csv, .tsv or "
            ".jsonl (each also with .gz or .zst), .parquet or .arrow."
        )
    return kind


def _write_parquet(source: FileTable, path: Path) -> None:
    blocks = _blocks(source)
    first = next(blocks, None)
    if first is None:
        names = column_names(source.paths[0])
        pl.DataFrame(schema=dict.fromkeys(names, pl.String)).write_parquet(path)
        return
    sink_tables(path, first.schema, itertools.chain([first], blocks))


def _blocks(source: FileTable) -> Iterator[pl.DataFrame]:
    """The rows of all files: text as text, columns that are stored with their types as they are."""
    columns = tuple(column_names(source.paths[0]))
    types: pl.Schema | None = None
    for file in source.paths:
        for rows in read_row_tables(file, columns, rows_per_table=_ROWS_PER_BLOCK):
            table = rows.table
            if is_json(file):
                # One type for all rows: which numbers are whole must not depend on other rows.
                table = table.select(as_text(table[name], Kind.CATEGORICAL) for name in columns)
            types = types or table.schema
            if table.schema != types:
                raise DataError(
                    f"{file.name} has columns of other types than {source.paths[0].name}; write "
                    "both in one way."
                )
            yield table
