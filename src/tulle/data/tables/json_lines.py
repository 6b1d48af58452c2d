"""Rows from JSON lines: one row a line, or one line with a list of rows.

A log has one row a line, and comes in blocks in which every value is text, as from any other text:
what a column holds is for the schema to say. Rows of auctions may have a list in a line; the keys
beside it belong to every row of it, a value has the type that JSON gives it, and a column with
values of several types is refused.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data.tables.archives import FileForm, Lines, LineSource
from tulle.data.tables.layout import BadLines, Block, Position, Reading
from tulle.data.tables.refusals import check_names
from tulle.data.tables.text import SKIPPING, line_problem, without_markers
from tulle.errors import DataError

IntArray = npt.NDArray[np.int64]
_Record = dict[str, Any]

_NO_LIST = ""
"""Key of a list of rows in a log, which has none: no column has an empty name."""
_FLAGS = {True: "true", False: "false"}

_TYPES = (
    ({bool}, pl.Boolean()),
    ({int}, pl.Int64()),
    ({int, float}, pl.Float64()),
    ({str}, pl.String()),
)


def read_json_blocks(
    path: Path, form: FileForm, reading: Reading, start: Position
) -> Iterator[Block]:
    """Streams blocks of a log of JSON lines; a missing key and null are missing values.

    Args:
      path: The file.
      form: Plain or compressed.
      reading: What is read. The first line must have all of its columns.
      start: Where to begin.

    Privacy:
      Reads sensitive rows and releases nothing. Errors name lines and columns, no values.
    """
    check_names(path.name, first_keys(path, form, _NO_LIST), reading.columns)
    with LineSource(path, form) as source:
        if start.row:
            source.resume(start.byte, start.line)
        row = start.row
        while lines := source.take(reading.rows_per_block):
            rows, problems = _text_rows(lines, reading.columns)
            if problems and reading.bad_lines is BadLines.REFUSE:
                first = min(problems)
                raise DataError(
                    f"{path.name} line {lines.first_line + first} {problems[first]}. Correct it, "
                    f"or {SKIPPING}."
                )
            row += lines.num_lines
            schema = dict.fromkeys(reading.columns, pl.String())
            table = pl.DataFrame(rows, schema=schema, orient="row")
            following = Position(start.file_index, row, source.offset, source.num_lines)
            table = without_markers(table, reading.form.missing)
            yield Block(table, following, num_bad_lines=len(problems))


def first_keys(path: Path, form: FileForm, list_key: str) -> list[str]:
    """The keys of the first row of a file.

    Args:
      path: File of JSON lines.
      form: Form of the file, plain or compressed.
      list_key: Key of the list of rows within an object; empty if each object is a row.
    """
    for _, records in _batches(path, form, 1):
        return list(_rows_of(records[0], list_key, f"{path.name} line 1")[0])
    raise DataError(f"{path.name} is empty; it must have one JSON object on each line.")


def read_json_rows(
    path: Path,
    form: FileForm,
    columns: tuple[str, ...],
    *,
    absent: tuple[str, ...],
    list_key: str,
    rows_per_table: int,
) -> Iterator[tuple[pl.DataFrame, IntArray]]:
    """Streams tables of the named columns with the line of each row; a missing key is null.

    Args:
      path: File of JSON lines.
      form: Form of the file, plain or compressed.
      columns: Names of the columns that are read.
      absent: Wanted columns that the first row has not; a later row that has one is refused.
      list_key: Key of the list of rows within an object; empty if each object is a row.
      rows_per_table: Number of objects that are read at once.

    Privacy:
      Reads sensitive rows and releases nothing. Values of other keys are not looked at.
    """
    for first_line, records in _batches(path, form, rows_per_table):
        lines = np.arange(first_line, first_line + len(records))
        if any(list_key in record for record in records):
            lists = [
                _rows_of(record, list_key, f"{path.name} line {line}")
                for line, record in zip(lines, records, strict=True)
            ]
            rows = list(itertools.chain.from_iterable(lists))
            places = np.repeat(lines, list(map(len, lists)))
        else:
            rows, places = records, lines
        _refuse_late_keys(path.name, rows, places, absent)
        values = {name: [row.get(name) for row in rows] for name in columns}
        yield pl.DataFrame([_column(path.name, *entry, places) for entry in values.items()]), places


def _text_rows(
    lines: Lines, columns: tuple[str, ...]
) -> tuple[list[list[str | None]], dict[int, str]]:
    """The values of each good line as text, and why the others are bad, by their index."""
    rows: list[list[str | None]] = []
    problems: dict[int, str] = {}
    for index, line in enumerate(lines.data.split(b"\n")[:-1]):
        raw_line = line.removesuffix(b"\r")
        problem = line_problem(raw_line)
        try:
            # Numbers stay the text that they are: a float would change their last digits.
            record = None if problem else json.loads(raw_line, parse_float=str, parse_int=str)
            if record is not None and not isinstance(record, dict):
                problem = "is no JSON object"
        except (ValueError, RecursionError):
            problem = "is no JSON"
        if problem is None and record is not None:
            values = [record.get(name) for name in columns]
            if any(isinstance(value, list | dict) for value in values):
                problem = "has a list or an object where a value should be"
        if problem is not None:
            problems[index] = problem
        else:
            rows.append([_FLAGS.get(value, value) for value in values])
    return rows, problems


def _batches(path: Path, form: FileForm, num_lines: int) -> Iterator[tuple[int, list[_Record]]]:
    """The objects of a file with the line of the first, from 1; at most so many at once."""
    with LineSource(path, form) as source:
        while lines := source.take(num_lines):
            records = _clean_records(lines.data)
            if records is None:
                each = enumerate(lines.data.split(b"\n")[:-1], start=lines.first_line)
                records = [_record(line, f"{path.name} line {number}") for number, line in each]
            yield lines.first_line, records


def _clean_records(data: bytes) -> list[_Record] | None:
    # The quick way, for lines without any problem; None sends them one by one.
    try:
        records = [json.loads(line) for line in data.decode().split("\n")[:-1]]
    except (ValueError, RecursionError):
        return None
    is_clean = set(map(type, records)) == {dict} and b"\0" not in data and b"\r" not in data
    return records if is_clean else None


def _record(raw_line: bytes, place: str) -> _Record:
    raw_line = raw_line.removesuffix(b"\r")
    if problem := line_problem(raw_line):
        raise DataError(f"{place} {problem}; correct it.")
    try:
        record = json.loads(raw_line)
    except (ValueError, RecursionError):  # not chained: it quotes the line
        raise DataError(f"{place} is no JSON; each line must be one JSON object.") from None
    if not isinstance(record, dict):
        raise DataError(f"{place} is no JSON object; write keys and values in braces.")
    return record


def _rows_of(record: _Record, list_key: str, place: str) -> list[_Record]:
    if list_key not in record:
        return [record]
    rows = record[list_key]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{place}: {list_key!r} must be a list of JSON objects.")
    if not rows:
        raise DataError(f"{place}: {list_key!r} is empty; leave out such a line.")
    return [record | row for row in rows]


def _refuse_late_keys(
    file_name: str, rows: list[_Record], places: IntArray, absent: tuple[str, ...]
) -> None:
    late = set(absent)
    if all(map(late.isdisjoint, rows)):
        return
    place, name = next(
        (place, name) for place, row in enumerate(rows) for name in absent if name in row
    )
    raise DataError(
        f"{file_name} line {places[place]} has the key {name!r}, which the first line lacks; give "
        "it on every line or on none."
    )


def _column(file_name: str, name: str, values: list[Any], places: IntArray) -> pl.Series:
    found = set(map(type, values)) - {type(None)}
    kind = next((kind for types, kind in _TYPES if found <= types), None)
    if kind is None:
        first = next(type(value) for value in values if value is not None)
        odd = (at for at, value in enumerate(values) if type(value) not in (first, type(None)))
        raise DataError(
            f"{file_name} line {places[next(odd, 0)]}: column {name!r} has a list, an object or "
            "another type than before; use one kind of value: number, text or true and false."
        )
    try:
        return pl.Series(name, values, dtype=kind if found else pl.String())
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        raise DataError(
            f"{file_name}: column {name!r} has a whole number beyond 64 bits; write it as text."
        ) from None
