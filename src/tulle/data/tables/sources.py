"""Sources of rows: files of any form, one after the other, or a table in memory.

Both are read in blocks, from any of them on. No file is loaded whole. What cannot be read without
guessing is an error with file and line, or is counted and skipped. A truncated archive is always an
error.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import polars as pl

from tulle.data.schema import Schema
from tulle.data.tables.archives import FileForm, detect_form
from tulle.data.tables.columnar import read_column_blocks
from tulle.data.tables.json_lines import read_json_blocks
from tulle.data.tables.layout import (
    BadLines,
    Block,
    Layout,
    Position,
    Reading,
    is_json_lines,
    layout_for,
)
from tulle.data.tables.memory import columns_of
from tulle.data.tables.refusals import Place
from tulle.data.tables.text import LineBlock, read_line_blocks, read_text_blocks
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

TABLE_NAME = "the table"
"""What messages call a table in memory."""

_ROWS_PER_BLOCK = 100_000
"""Rows held at once: enough that the fixed cost of a block is small, few enough that memory stays
flat."""


class Log(Protocol):
    """A source of rows. Names of files, layout and choices are public, rows are not."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files; positions refer to them by their index."""

    @property
    def layout(self) -> Layout:
        """What the columns are."""

    @property
    def bad_lines(self) -> BadLines:
        """What happens to lines that cannot be read."""

    def blocks(self, start: Position | None = None) -> Iterator[Block]:
        """The rows, the same each time, from the beginning or from a position on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogFiles:
    """Files of one layout, one after the other."""

    paths: tuple[Path, ...]
    layout: Layout
    bad_lines: BadLines = BadLines.REFUSE
    rows_per_block: int = _ROWS_PER_BLOCK
    columns: tuple[str, ...] | None = None
    """What is read of the columns with a role; None: all of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(Path, self.paths)))

    def blocks(self, start: Position | None = None) -> Iterator[Block]:
        """The rows, the same each time, from the beginning or from a position on."""
        return read_blocks(
            self.paths,
            self.layout,
            rows_per_block=self.rows_per_block,
            bad_lines=self.bad_lines,
            start=start,
            columns=self.columns,
        )

    def unsplit_blocks(self) -> Iterator[Block | LineBlock]:
        """The rows, those of delimited text as lines that are not split yet."""
        reading = _reading(self.layout, self.columns, self.rows_per_block, self.bad_lines)
        return _stream(self.paths, _forms(self.paths), reading, _START, read_line_blocks)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TableLog:
    """A table in memory, in blocks. Sensitive: it holds raw rows."""

    table: object = dataclasses.field(repr=False)
    """Table of polars, pandas, Arrow or DuckDB; see `as_polars`."""
    schema: Schema
    rows_per_block: int = _ROWS_PER_BLOCK

    @property
    def paths(self) -> tuple[Path, ...]:
        """Nothing: there are no files."""
        return ()

    @property
    def layout(self) -> Layout:
        """The columns that are used; empty texts are missing values, as in files."""
        columns = self.schema.used
        schema = dataclasses.replace(self.schema, ignored=())
        return Layout(
            name=TABLE_NAME, columns=columns, separator=",", has_header=True, schema=schema
        )

    @property
    def bad_lines(self) -> BadLines:
        """A table has no line that could be bad."""
        return BadLines.REFUSE

    def blocks(self, start: Position | None = None) -> Iterator[Block]:
        """The rows, the same each time, from the beginning or from a position on."""
        used = self.schema.used
        table = columns_of(self.table, used, name=TABLE_NAME)
        for first in range(0 if start is None else start.row, len(table), self.rows_per_block):
            part = table.slice(first, self.rows_per_block)
            yield Block(part, Position(0, first + len(part), byte=0, line=0), num_bad_lines=0)


def open_log(
    data: object, schema: Schema | None = None, *, layout: Layout | None = None, skip: bool = False
) -> LogFiles | TableLog:
    """Opens a file, several files or a table in memory as one log.

    Args:
      data: A path, several paths, or a table of polars, pandas, Arrow or DuckDB.
      schema: The roles of columns; None: those of the layout.
      layout: How files are written; None: as the name and the header of the first one say.
      skip: Whether lines that cannot be read are counted and left out; else they are refused.

    Raises:
      ConfigError: There are no roles, or no file.
    """
    roles = schema if schema is not None or layout is None else layout.schema
    if roles is None:
        raise ConfigError("the roles of columns are missing: give a schema or a layout.")
    if isinstance(data, str | os.PathLike):
        data = (data,)
    if not isinstance(data, list | tuple):
        return TableLog(table=data, schema=roles)
    paths = tuple(Path(path) for path in data)
    if not paths:
        raise ConfigError("data=[] must name at least one file.")
    chosen = layout_for(paths[0], roles) if layout is None else layout
    return LogFiles(
        paths=paths,
        layout=dataclasses.replace(chosen, schema=roles),
        bad_lines=BadLines.SKIP if skip else BadLines.REFUSE,
    )


def whole_table(log: Log) -> pl.DataFrame:
    """All rows of a log as one table in memory, with the columns that have a role."""
    used = log.layout.schema.used
    parts = [block.table.select(used) for block in log.blocks()]
    return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(used, pl.String))


def block_place(log: Log, block: Block | LineBlock, start: Position, num_rows: int) -> Place:
    """Says where a row of a block is; only between which rows, where some were left out.

    Args:
      log: Where the block is from.
      block: The rows.
      start: The position before the block.
      num_rows: How many rows of it are left.
    """
    name = log.paths[start.file_index].name if log.paths else TABLE_NAME

    def place(index: int) -> str:
        if num_rows == block.next.row - start.row:
            return f"{name}, row {start.row + index + 1}"
        return f"{name}, between rows {start.row + 1} and {block.next.row}"

    return place


def placed_blocks(log: Log) -> Iterator[tuple[Block, Position]]:
    """All blocks of a log, each with the position before it."""
    return _placed(log.blocks())


def placed_unsplit_blocks(log: Log) -> Iterator[tuple[Block | LineBlock, Position]]:
    """All blocks of a log, each with the position before it; lines of files are not split yet.

    Whoever takes them can split them in threads, and lines that are plain where they stand.
    """
    return _placed(log.unsplit_blocks() if isinstance(log, LogFiles) else log.blocks())


_SomeBlock = TypeVar("_SomeBlock", bound=Block | LineBlock)


def _placed(blocks: Iterable[_SomeBlock]) -> Iterator[tuple[_SomeBlock, Position]]:
    start = _START
    for block in blocks:
        if block.next.file_index != start.file_index:
            start = Position(block.next.file_index, 0, 0, 0)
        yield block, start
        start = block.next


def read_blocks(
    paths: Sequence[Path],
    layout: Layout,
    *,
    rows_per_block: int = 200_000,
    bad_lines: BadLines = BadLines.REFUSE,
    start: Position | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Block]:
    """Streams the rows of a log, in order, each good row once.

    From text files every column is text; from Parquet it has the type stored
    there. Missing values are null in both.

    Args:
      paths: Files of the log, in order. They may differ in compression.
      layout: How the log is written.
      rows_per_block: Most rows in a block; very long rows make shorter blocks.
      bad_lines: What to do with lines that cannot be read without guessing.
      start: `next` of the last block already seen; None starts at the beginning.
      columns: Columns with a role to read, in this order; None for all of them.

    Privacy:
      Reads sensitive rows and releases nothing. Blocks, and how many bad lines
      they had, are as sensitive as the files.

    Raises:
      DataError: A file cannot be read; raised before its first block, or where it is broken.
    """
    reading = _reading(layout, columns, rows_per_block, bad_lines)
    return read_files(paths, reading, start)


def read_files(paths: Sequence[Path], reading: Reading, start: Position | None) -> Iterator[Block]:
    """Streams the rows of files. All of them are looked at before the first is read.

    Args:
      paths: Files of one form each, in the order of their rows.
      reading: Form of text, columns that are read, and treatment of bad lines.
      start: Position to continue from; None for the first row.
    """
    if isinstance(paths, (str, Path)) or not paths:
        raise ConfigError(f"paths={paths!r} must be a list of at least one file.")
    start = start or _START
    if start.file_index >= len(paths):
        raise ConfigError(
            f"start has file_index={start.file_index}, but there are only {len(paths)} files; "
            "name the same files as before."
        )
    return _stream(paths, _forms(paths), reading, start, read_text_blocks)


_START = Position(file_index=0, row=0, byte=0, line=0)


def _reading(
    layout: Layout, columns: Sequence[str] | None, rows_per_block: int, bad_lines: BadLines
) -> Reading:
    used = layout.schema.used
    chosen = used if columns is None else tuple(columns)
    for column in chosen:
        if column not in used:
            raise ConfigError(
                f"column {column!r} has no role under which layout {layout.name!r} reads it"
                f"{did_you_mean(column, used)}; give it one in the schema."
            )
    return Reading(
        form=layout.text_form, columns=chosen, rows_per_block=rows_per_block, bad_lines=bad_lines
    )


def _forms(paths: Sequence[Path]) -> list[FileForm]:
    return [detect_form(Path(path)) for path in paths]


def _stream(
    paths: Sequence[Path],
    forms: Sequence[FileForm],
    reading: Reading,
    start: Position,
    read_text: Callable[[Path, FileForm, Reading, Position], Iterator[_SomeBlock]],
) -> Iterator[Block | _SomeBlock]:
    for index in range(start.file_index, len(paths)):
        path = Path(paths[index])
        position = start if index == start.file_index else Position(index, row=0, byte=0, line=0)
        if forms[index].is_columnar:
            yield from read_column_blocks(path, forms[index], reading, position)
        elif is_json_lines(path):
            yield from read_json_blocks(path, forms[index], reading, position)
        else:
            yield from read_text(path, forms[index], reading, position)
