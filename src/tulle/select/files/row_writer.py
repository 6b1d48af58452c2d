"""Rows as one file of Parquet, delimited text or JSON lines, written in a stream."""

import enum
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException, PolarsError

from tulle.data.parquet_stream import sink_tables
from tulle.errors import ConfigError, DataError, RunStateError


class RowForm(enum.Enum):
    """How rows are written."""

    PARQUET = "Parquet"
    CSV = "comma-separated text"
    JSON_LINES = "JSON lines"

    @classmethod
    def of(cls, path: Path) -> "RowForm":
        """What the name of a file says."""
        form = _FORMS.get(path.suffix.lower())
        if form is None:
            raise ConfigError(
                f"the name {path.name} does not say how to write rows; end it in "
                f"{', '.join(_FORMS)}."
            )
        return form


_FORMS = {
    ".parquet": RowForm.PARQUET,
    ".pq": RowForm.PARQUET,
    ".csv": RowForm.CSV,
    ".jsonl": RowForm.JSON_LINES,
    ".ndjson": RowForm.JSON_LINES,
}


def write_row_tables(path: Path, tables: Iterator[pl.DataFrame], form: RowForm) -> pl.Schema:
    """Writes tables of one schema, in their order, safely to disk; gives back the schema.

    Args:
      path: New file; its name need not say the form. It is gone if writing fails.
      tables: Tables, at least one. An error that they raise is raised here as it is.
      form: How the rows are written.

    Raises:
      DataError: There is no table, or tables have different columns or types.
      RunStateError: The file is there, or the disk refuses it.
    """
    first = next(tables, None)
    if first is None:
        raise DataError("there are no rows to write; give at least one table.")
    problem: list[BaseException] = []

    def watched() -> Iterator[pl.DataFrame]:
        try:
            for table in itertools.chain([first], tables):
                if table.schema != first.schema:
                    raise DataError(
                        "tables of one file have different columns or types; ids must be all "
                        "whole numbers or all texts."
                    )
                yield table
        except BaseException as error:
            problem.append(error)  # polars would wrap it in one of its own
            raise

    try:
        # Made first, so that a file that is there already is not replaced.
        path.open("xb").close()
    except OSError as error:
        raise _refused(path, error) from None
    try:
        _write(path, first.schema, watched(), form)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if problem:
            raise problem[0] from None
        if isinstance(error, OSError | PolarsError | PanicException):
            raise _refused(path, error) from None
        raise
    return first.schema


def _write(path: Path, schema: pl.Schema, tables: Iterator[pl.DataFrame], form: RowForm) -> None:
    if form is RowForm.PARQUET:
        sink_tables(path, schema, tables)
    else:
        with path.open("wb") as file:
            for place, table in enumerate(tables):
                if form is RowForm.CSV:
                    table.write_csv(file, include_header=place == 0)
                else:
                    table.write_ndjson(file)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _refused(path: Path, error: BaseException) -> RunStateError:
    reason = getattr(error, "strerror", None) or error
    return RunStateError(
        f"{path.name} cannot be written: {reason}; name a new file in a folder that exists and "
        "has room."
    )
