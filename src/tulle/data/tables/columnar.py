"""Parquet and Arrow files: read in blocks of rows with their types, and written in a stream."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import polars as pl
from polars.io.plugins import register_io_source

from tulle.data.tables.archives import FileForm
from tulle.data.tables.layout import Block, Position, Reading
from tulle.data.tables.refusals import check_names
from tulle.data.tables.text import without_markers
from tulle.errors import DataError

# Fewest rows fetched at once: smaller blocks are cut from them, as each fetch has a fixed cost.
_ROWS_PER_READ = 1 << 16


def read_column_blocks(
    path: Path, form: FileForm, reading: Reading, start: Position
) -> Iterator[Block]:
    """Streams blocks of a file. Types stay, except that text of any kind becomes String.

    Args:
      path: The file.
      form: Parquet or Arrow.
      reading: What is read.
      start: Where to begin.
    """
    types = _checked_types(path, form, reading)
    num_rows = count_rows(path, form)
    if start.row > num_rows:
        raise DataError(
            f"{path.name} is shorter than when reading stopped; the file has changed since. "
            "Start again from its beginning."
        )
    num_fetched = max(reading.rows_per_block, _ROWS_PER_READ)
    for first in range(start.row, num_rows, num_fetched):
        table = _fetch(path, form, types, (first, num_fetched), reading.form.missing)
        if len(table) != min(num_fetched, num_rows - first):
            raise _damaged(path, first)
        for offset in range(0, len(table), reading.rows_per_block):
            part = table.slice(offset, reading.rows_per_block)
            row = first + offset + len(part)
            yield Block(part, Position(start.file_index, row, byte=0, line=0), num_bad_lines=0)


def stored_columns(path: Path, form: FileForm) -> list[str]:
    """The names of the columns; no value is read."""
    return list(_stored_types(path, form))


def count_rows(path: Path, form: FileForm) -> int:
    """The number of rows that a file has."""
    with _plain_errors(path, 0):
        return int(_scan(path, form).select(pl.len()).collect().item())


def _scan(path: Path, form: FileForm) -> pl.LazyFrame:
    if form is FileForm.PARQUET:
        return pl.scan_parquet(path, glob=False)
    return pl.scan_ipc(path, glob=False)


def _stored_types(path: Path, form: FileForm) -> pl.Schema:
    with _plain_errors(path, 0):
        return _scan(path, form).collect_schema()


@contextlib.contextmanager
def _plain_errors(path: Path, row: int) -> Iterator[None]:
    # Whatever polars says of a damaged file may quote its values.
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _damaged(path, row) from error


def _fetch(
    path: Path,
    form: FileForm,
    types: dict[str, pl.DataType],
    rows: tuple[int, int],
    missing: tuple[str, ...],
) -> pl.DataFrame:
    first, num_rows = rows
    with _plain_errors(path, first):
        table = _scan(path, form).select(list(types)).slice(first, num_rows).collect()
    try:
        table = table.cast({name: kind for name, kind in types.items() if kind == pl.String})
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{path.name} has bytes that are not UTF-8 in a text column somewhere after row "
            f"{first}; store it as text."
        ) from error
    columns = [
        without_markers(table.select(name), _markers(missing, kind)) for name, kind in types.items()
    ]
    return pl.concat(columns, how="horizontal")


def _markers(missing: tuple[str, ...], kind: pl.DataType) -> list[object]:
    if kind == pl.String:
        return list(missing)
    if not kind.is_numeric():
        return []
    numbers = [number for text in missing if (number := _number(text)) is not None]
    if kind.is_integer():
        numbers = [number for number in numbers if number == int(number)]
        if kind.is_unsigned_integer():
            numbers = [number for number in numbers if number >= 0]
        return [int(number) for number in numbers]
    return list(numbers)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _checked_types(path: Path, form: FileForm, reading: Reading) -> dict[str, pl.DataType]:
    stored = _stored_types(path, form)
    check_names(path.name, list(stored), reading.columns)
    types = {}
    for name in reading.columns:
        kind = stored[name]
        if kind.is_nested() or kind.is_(pl.Object):
            raise DataError(
                f"{path.name} has column {name!r} of type {kind}, but a value must be a number, "
                "a text or a time; unfold it into columns first."
            )
        is_text = kind in (pl.Categorical, pl.Enum, pl.Binary, pl.Null)
        types[name] = pl.String() if is_text else kind
    return types


def _damaged(path: Path, row: int) -> DataError:
    return DataError(
        f"{path.name} is cut off or damaged somewhere after row {row}; fetch or write it again. "
        "Such a file is never read in part."
    )


def sink_tables(
    path: Path,
    types: Mapping[str, pl.DataType] | pl.Schema,
    tables: Iterator[pl.DataFrame],
    *,
    compression: Literal["zstd", "lz4"] = "zstd",
) -> None:
    """Writes tables of one schema into one file, in their order.

    Args:
      path: Parquet file to write.
      types: Type of each column.
      tables: Tables, of which one at a time is held in memory.
      compression: "zstd" makes smaller files, "lz4" writes several times as fast.
    """

    def pieces(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        num_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        # A sink asks for everything: there is no projection and no filter to apply.
        del with_columns, predicate, num_rows, batch_size
        yield from tables

    register_io_source(pieces, schema=pl.Schema(types)).sink_parquet(path, compression=compression)
