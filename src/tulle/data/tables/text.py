"""Blocks of rows from one delimited text file.

A line is bad if it cannot be split without guessing. Reasons never quote the
line: its content is sensitive and messages end up in logs.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tulle.data.tables.archives import MAX_LINE_BYTES, FileForm, Lines, LineSource
from tulle.data.tables.layout import QUOTE, BadLines, Block, Position, Reading, TextForm
from tulle.data.tables.refusals import MOST_NAMES_SHOWN, check_names
from tulle.data.tables.split_lines import SplitLines, clean_text, split_in_place
from tulle.errors import DataError

_MAX_BLOCK_BYTES = 1 << 28
"""Long lines end a block before its number of rows does, so that 256 MiB of text is the most that
is held."""
SKIPPING = "have such lines counted and skipped with bad_lines=BadLines.SKIP"
_QUOTED = '"(?:[^"]|"")*"'


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineBlock:
    """Whole lines of one file, not split yet: that is for whoever takes them, in any thread."""

    name: str
    """Name of the file."""
    lines: Lines
    reading: Reading
    """Form of text, columns that are read, and treatment of bad lines."""
    width: int
    """Number of values that each line must have."""
    places: Mapping[str, int]
    """Place of each column that is read in a line, from 0."""
    next: Position
    """Position at which reading goes on after this block."""

    def rows(self) -> SplitLines | pl.DataFrame:
        """The good lines: split where they stand if all are plain, as a table if not.

        Raises:
          DataError: There is a bad one, and such lines are refused.
        """
        split = split_in_place(self.lines, self.reading.form, self.width, self.places)
        return self.parsed().table if split is None else split

    def parsed(self) -> "ParsedLines":
        """The good lines as a table, and the bad ones.

        Raises:
          DataError: There is a bad one, and such lines are refused.
        """
        parsed = parse_lines(self.lines, self.reading.form, self.width, self.places)
        if not parsed.bad or self.reading.bad_lines is not BadLines.REFUSE:
            return parsed
        first = min(parsed.bad)
        line = self.lines.first_line + first
        if line == 1:
            raise DataError(
                f"{self.name} line 1 {parsed.bad[first]}. If this is no log of the layout that was "
                "named, read it with a schema of its own; else correct the line, or "
                f"{SKIPPING}."
            )
        raise DataError(f"{self.name} line {line} {parsed.bad[first]}. Correct it, or {SKIPPING}.")


def read_text_blocks(
    path: Path, form: FileForm, reading: Reading, start: Position
) -> Iterator[Block]:
    """Blocks of a plain or compressed text file, every value as text, missing ones null.

    Args:
      path: Text file.
      form: Form of the file, plain or compressed.
      reading: Form of text, columns that are read, and treatment of bad lines.
      start: Position to continue from.
    """
    with LineSource(path, form) as source:
        next_lines = _reader(path, source, reading, start)
        position = start
        while block := _next_block(next_lines, reading.rows_per_block, position):
            yield block
            position = block.next


def read_line_blocks(
    path: Path, form: FileForm, reading: Reading, start: Position
) -> Iterator[LineBlock]:
    """Lines of a plain or compressed text file, a few megabytes at a time and not split yet.

    Args:
      path: Text file.
      form: Form of the file, plain or compressed.
      reading: Form of text, columns that are read, and treatment of bad lines.
      start: Position to continue from.
    """
    with LineSource(path, form) as source:
        next_lines = _reader(path, source, reading, start)
        position = start
        while block := next_lines(position, reading.rows_per_block):
            yield block
            position = block.next


_NextLines = Callable[[Position, int], LineBlock | None]
"""Gives the next lines behind a position, at most so many; None at the end."""


def _reader(path: Path, source: LineSource, reading: Reading, start: Position) -> _NextLines:
    """Reads the header, goes to the start, and gives what reads on from there."""
    names = list(reading.form.columns)
    if reading.form.has_header:
        names = _read_header(path.name, source.take(1), reading)
    places = {name: names.index(name) for name in reading.columns}
    if start.row:
        source.resume(start.byte, start.line)

    def next_lines(position: Position, max_lines: int) -> LineBlock | None:
        lines = source.take(max_lines)
        if lines is None:
            return None
        following = Position(
            file_index=position.file_index,
            row=position.row + lines.num_lines,
            byte=source.offset,
            line=source.num_lines,
        )
        return LineBlock(
            name=path.name,
            lines=lines,
            reading=reading,
            width=len(names),
            places=places,
            next=following,
        )

    return next_lines


def _next_block(next_lines: _NextLines, max_rows: int, start: Position) -> Block | None:
    tables: list[pl.DataFrame] = []
    num_bad_lines = 0
    position = start
    while (num_left := start.row + max_rows - position.row) and (
        position.byte - start.byte < _MAX_BLOCK_BYTES
    ):
        block = next_lines(position, num_left)
        if block is None:
            break
        parsed = block.parsed()
        tables.append(parsed.table)
        num_bad_lines += len(parsed.bad)
        position = block.next
    if not tables:
        return None
    return Block(pl.concat(tables, rechunk=False), position, num_bad_lines)


def _read_header(name: str, line: Lines | None, reading: Reading) -> list[str]:
    expected = ", ".join(reading.columns[:MOST_NAMES_SHOWN])
    if line is None:
        raise DataError(f"{name} is empty; it must start with a header that names {expected}.")
    raw = line.data.removesuffix(b"\n").removesuffix(b"\r")
    if problem := line_problem(raw):
        raise DataError(f"{name} line 1, the header, {problem}; correct it.")
    names = split_header(raw.decode(), reading.form)
    if names is None:
        raise DataError(f"{name} line 1, the header, has a quote out of place; correct it.")
    check_names(name, names, reading.columns, may_be_row=True)
    return names


@dataclasses.dataclass(frozen=True)
class ParsedLines:
    """The good lines as a table and, by their place among the lines, the bad ones."""

    table: pl.DataFrame
    bad: Mapping[int, str]
    """Reasons why lines are bad, by their index from 0."""


def parse_lines(lines: Lines, form: TextForm, width: int, places: Mapping[str, int]) -> ParsedLines:
    """Splits lines of `width` values and keeps the named columns, each at its place.

    Args:
      lines: Bytes of whole lines.
      form: Separator, quotes and texts that mean a missing value.
      width: Number of values that each line must have.
      places: Place of each kept column in a line, from 0.
    """
    texts, bad = _decode(lines)
    values = _split(texts, form)
    is_good = (values.list.len() == width).fill_null(False)
    if not is_good.all():
        indices = np.setdiff1d(np.arange(lines.num_lines), list(bad))
        bad |= {
            int(indices[place]): _shape_problem(texts[place], values[place], width)
            for place in (~is_good).arg_true().to_list()
        }
        values = values.filter(is_good)
    flat = pl.DataFrame({"": values.explode() if len(values) else texts.clear()})
    table = flat.select(
        pl.col("").gather_every(width, place).alias(name) for name, place in places.items()
    )
    return ParsedLines(table=without_markers(table, form.missing), bad=bad)


def split_header(line: str, form: TextForm) -> list[str] | None:
    """The names in a header line, without spaces around them; None if it cannot be split."""
    values = _split(pl.Series([line], dtype=pl.String), form)
    return None if values.null_count() else [name.strip() for name in values.explode().to_list()]


def without_markers(table: pl.DataFrame, markers: Sequence[object]) -> pl.DataFrame:
    """The table with null where a value equals a marker of missing values."""
    if not markers:
        return table
    present = functools.reduce(operator.and_, (pl.all() != marker for marker in markers))
    return table.select(pl.when(present).then(pl.all()))


def line_problem(line: bytes) -> str | None:
    """Reason why the bytes of a line, without its end, cannot be read; None if they can."""
    if len(line) > MAX_LINE_BYTES:
        return f"is longer than {MAX_LINE_BYTES} bytes"
    if not line:
        return "is empty"
    if b"\0" in line:
        return "has a NUL byte"
    if b"\r" in line:
        return "has a carriage return inside"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None


def _decode(lines: Lines) -> tuple[pl.Series, dict[int, str]]:
    texts = _decode_clean(lines.data)
    if texts is not None:
        return texts, {}
    each = [line.removesuffix(b"\r") for line in lines.data.split(b"\n")[:-1]]
    problems = [line_problem(line) for line in each]
    good = [line.decode() for line, why in zip(each, problems, strict=True) if not why]
    bad = {index: why for index, why in enumerate(problems) if why}
    return pl.Series(good, dtype=pl.String), bad


def _decode_clean(data: bytes) -> pl.Series | None:
    # The quick way, for lines without any problem; None sends the others one by one.
    clean = clean_text(data)
    if clean is None:
        return None
    # No line has a NUL, so with it as separator each line is one value.
    table = pl.read_csv(
        clean, has_header=False, separator="\0", quote_char=None, schema={"line": pl.String}
    )
    lengths = table["line"].str.len_bytes()
    is_readable = lengths.is_between(1, MAX_LINE_BYTES).fill_null(False).all()
    is_complete = lengths.sum() + len(lengths) == len(clean)
    return table["line"] if is_readable and is_complete else None


def _split(texts: pl.Series, form: TextForm) -> pl.Series:
    if form.quote is not None and texts.str.contains(form.quote, literal=True).any():
        return _split_quoted(texts, form.separator)
    return texts.str.split(form.separator)


def _split_quoted(texts: pl.Series, separator: str) -> pl.Series:
    # Each value with the separator before it. On a well-formed line the values make up the line.
    value = f'(?:{_QUOTED}|[^"{separator}]*)'
    values = (separator + texts).str.extract_all(f"[{separator}]{value}")
    is_whole = texts.str.contains(f"^{value}(?:[{separator}]{value})*$")
    item = pl.element().str.strip_prefix(separator)
    inside = item.str.strip_prefix(QUOTE).str.strip_suffix(QUOTE)
    unquoted = inside.str.replace_all(QUOTE * 2, QUOTE, literal=True)
    values = values.list.eval(pl.when(item.str.starts_with(QUOTE)).then(unquoted).otherwise(item))
    return pl.select(pl.when(is_whole).then(values)).to_series()


def _shape_problem(text: str, values: pl.Series | None, width: int) -> str:
    if values is not None:
        return f"has {len(values)} columns in place of {width}"
    if text.count(QUOTE) % 2:
        return "has a quote that never ends; a value may not span lines"
    return "has a quote inside a value that is not quoted as a whole"
