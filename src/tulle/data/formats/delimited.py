"""Blocks of rows from one delimited text file."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from tulle.data.formats.archives import FileForm
from tulle.data.formats.blocks import BadLines, Block, Position, Reading
from tulle.data.formats.lines import Lines, LineSource
from tulle.data.formats.values import line_problem, parse_lines, split_header
from tulle.errors import DataError
from tulle.privacy.fields import did_you_mean

_MAX_BLOCK_BYTES = 1 << 28
_MOST_NAMES_SHOWN = 10
_SKIPPING = "have such lines counted and skipped with bad_lines=BadLines.SKIP"


def read_text_blocks(
    path: Path, form: FileForm, reading: Reading, start: Position
) -> Iterator[Block]:
    """Blocks of a plain or compressed text file, every value as text, missing ones null."""
    with LineSource(path, form) as source:
        names = list(reading.form.columns)
        if reading.form.has_header:
            names = _read_header(path.name, source.take(1), reading)
        places = {name: names.index(name) for name in reading.columns}
        if start.row:
            source.resume(start.byte, start.line)
        position = start
        while block := _next_block(path.name, source, reading, (len(names), places), position):
            yield block
            position = block.next


def _next_block(
    name: str,
    source: LineSource,
    reading: Reading,
    shape: tuple[int, Mapping[str, int]],
    position: Position,
) -> Block | None:
    tables: list[pl.DataFrame] = []
    num_bad_lines = num_rows = 0
    while num_rows < reading.rows_per_block and source.offset - position.byte < _MAX_BLOCK_BYTES:
        lines = source.take(reading.rows_per_block - num_rows)
        if lines is None:
            break
        parsed = parse_lines(lines, reading.form, *shape)
        if parsed.bad and reading.bad_lines is BadLines.REFUSE:
            first = min(parsed.bad)
            line = lines.first_line + first
            if line == 1:
                raise DataError(
                    f"{name} line 1 {parsed.bad[first]}. If this is no log of the layout that was "
                    "named, read it with a schema of its own; else correct the line, or "
                    f"{_SKIPPING}."
                )
            raise DataError(f"{name} line {line} {parsed.bad[first]}. Correct it, or {_SKIPPING}.")
        tables.append(parsed.table)
        num_rows += lines.num_lines
        num_bad_lines += len(parsed.bad)
    if not num_rows:
        return None
    following = Position(
        file_index=position.file_index,
        row=position.row + num_rows,
        byte=source.offset,
        line=source.num_lines,
    )
    return Block(pl.concat(tables, rechunk=False), following, num_bad_lines)


def _read_header(name: str, line: Lines | None, reading: Reading) -> list[str]:
    expected = ", ".join(reading.columns[:_MOST_NAMES_SHOWN])
    if line is None:
        raise DataError(f"{name} is empty; it must start with a header that names {expected}.")
    raw = line.data.removesuffix(b"\n").removesuffix(b"\r")
    if problem := line_problem(raw):
        raise DataError(f"{name} line 1, the header, {problem}; correct it.")
    names = split_header(raw.decode(), reading.form)
    if names is None:
        raise DataError(f"{name} line 1, the header, has a quote out of place; correct it.")
    check_names(name, names, reading.columns)
    return names


def check_names(file_name: str, names: list[str], needed: tuple[str, ...]) -> None:
    """Refuses a file that lacks a needed column or has one twice.

    The first line of a file without a header is data, so names are shown only
    if at least one of them is known.
    """
    if not set(names) & set(needed):
        raise DataError(
            f"{file_name} has none of the columns {', '.join(needed[:_MOST_NAMES_SHOWN])}; its "
            "first line must be a header that names them. Add it, or use the layout of the file."
        )
    for column in needed:
        if column not in names:
            shown = sorted(names)[:_MOST_NAMES_SHOWN]
            more = "" if len(names) <= _MOST_NAMES_SHOWN else ", …"
            raise DataError(
                f"{file_name} has no column {column!r}{did_you_mean(column, names)}; "
                f"present are {', '.join(shown)}{more}."
            )
    if repeated := [column for column in names if names.count(column) > 1]:
        raise DataError(
            f"{file_name} has column {repeated[0]!r} more than once; keep one or rename the others."
        )
