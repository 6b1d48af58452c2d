"""Tables as files: whole or not at all, in a stream, in the form that the name's suffix says.

`.gz` and `.zst` are compressed text, `.parquet` is Parquet with nulls for missing
values, any other name is plain text.

Numbers become text fast, by a matrix of bytes for each column. Every row of a matrix is
one field, padded with NUL bytes. Fields are laid side by side and the padding is dropped
at the end, so that no Python object is made for a field.
"""

import contextlib
import dataclasses
import functools
import gzip
import io
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import zstandard
from polars.exceptions import PolarsError

from tulle.atomic_files import sync_folder
from tulle.data.tables.archives import FileForm, form_by_name
from tulle.data.tables.columnar import sink_tables
from tulle.errors import ConfigError, DataError, reason_of

TextMatrix = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.integer]

_GROUP = 10_000
"""Four digits are one 32-bit word, so that a table of 10,000 words writes four digits at a time."""


def hex_text(words: npt.NDArray[np.uint32], *, upper: bool = False) -> TextMatrix:
    """Words as 8 hexadecimal digits each."""
    digits = _hex_pairs(upper)
    text = np.empty((len(words), 2), np.uint32)
    text[:, 0] = digits.take(words >> np.uint32(16))
    text[:, 1] = digits.take(words & np.uint32(0xFFFF))
    return text.view(np.uint8)


def integer_text(numbers: IntArray) -> TextMatrix:
    """Integers in decimal, with a sign if negative."""
    values = numbers.astype(np.int64)
    signs = np.where(values < 0, np.uint8(ord("-")), np.uint8(0))[:, None]
    rest = np.abs(values)
    groups = []
    while True:
        higher, group = np.divmod(rest, _GROUP) if rest.max(initial=0) >= _GROUP else (None, rest)
        if higher is None:
            groups.append(_plain_groups().take(group))
            break
        groups.append(
            np.where(higher > 0, _padded_groups().take(group), _plain_groups().take(group))
        )
        rest = higher
    # The highest group is NUL where a lower one is the first of its number.
    for place in range(1, len(groups)):
        groups[place][np.abs(values) < _GROUP**place] = 0
    text = np.stack(groups[::-1], axis=1)
    digits = np.ascontiguousarray(text).view(np.uint8)
    return np.hstack([signs, digits]) if signs.any() else digits


def decimal_text(numbers: IntArray, places: int) -> TextMatrix:
    """Non-negative fixed-point numbers, e.g. 1234 with 2 places as 12.34."""
    whole, part = np.divmod(numbers.astype(np.int64), 10**places)
    shown = integer_text(part + 10**places)[:, -places:]
    point = np.full((len(numbers), 1), ord("."), np.uint8)
    return np.hstack([integer_text(whole), point, shown])


def constant_text(text: str, num_rows: int) -> TextMatrix:
    """The same field in every row."""
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (num_rows, len(text)))


def blank_where(empty: npt.NDArray[np.bool_], text: TextMatrix) -> TextMatrix:
    """The same matrix with the fields made empty where the mark is set."""
    text[empty] = 0
    return text


def choose_text(
    use_first: npt.NDArray[np.bool_], first: TextMatrix, second: TextMatrix
) -> TextMatrix:
    """Fields of the first column where the mark is set, and of the second elsewhere.

    Args:
      use_first: Mark of each row.
      first: Fields of rows whose mark is set.
      second: Fields of the other rows.
    """
    width = max(first.shape[1], second.shape[1])
    chosen = np.zeros((len(use_first), width), np.uint8)
    chosen[:, : first.shape[1]] = first
    others = np.flatnonzero(~use_first)
    chosen[others] = 0
    chosen[others, : second.shape[1]] = second[others]
    return chosen


def join_lines(columns: list[TextMatrix], separator: str) -> bytes:
    """One line for each row."""
    widths = [column.shape[1] + 1 for column in columns]
    lines = np.empty((len(columns[0]), sum(widths)), np.uint8)
    start = 0
    for column, width in zip(columns, widths, strict=True):
        lines[:, start : start + width - 1] = column
        lines[:, start + width - 1] = ord(separator)
        start += width
    lines[:, -1] = ord("\n")
    return lines.tobytes().translate(None, b"\0")


@functools.cache
def _hex_pairs(upper: bool) -> npt.NDArray[np.uint32]:
    text = "".join(f"{n:04X}" if upper else f"{n:04x}" for n in range(1 << 16))
    return np.frombuffer(text.encode(), np.uint32)


@functools.cache
def _plain_groups() -> npt.NDArray[np.uint32]:
    text = "".join(f"{n}".rjust(4, "\0") for n in range(_GROUP))
    return np.frombuffer(text.encode(), np.uint32)


@functools.cache
def _padded_groups() -> npt.NDArray[np.uint32]:
    text = "".join(f"{n:04d}" for n in range(_GROUP))
    return np.frombuffer(text.encode(), np.uint32)


_GZIP_LEVEL = 4
"""Below Python's default of 9, which takes far longer for a slightly smaller file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableForm:
    """The columns of a table and how its lines are written."""

    columns: tuple[str, ...]
    separator: str = ","
    has_header: bool = True
    missing: tuple[str, ...] = ("",)
    """Texts that mean that a value is missing."""
    names: frozenset[str] = frozenset()
    """Columns that hold names; the others hold numbers."""
    reals: frozenset[str] = frozenset()
    """Columns of numbers with a fraction."""

    @property
    def types(self) -> dict[str, pl.DataType]:
        """The column types of a Parquet file."""
        kinds = {name: pl.Float64() if name in self.reals else pl.Int64() for name in self.columns}
        return kinds | {name: pl.String() for name in self.columns if name in self.names}


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


def write_table(path: Path, form: TableForm, pieces: Iterable[bytes]) -> None:
    """Writes a table from pieces of whole lines, without a header line among them.

    Args:
      path: File to write; its name says the form.
      form: Columns, types and separator.
      pieces: Bytes of whole lines, in order.
    """
    file_form = form_by_name(path)
    if file_form is FileForm.ARROW:
        raise ConfigError(f"path={str(path)!r} would be Arrow; name it .parquet, .csv or .tsv.")
    with _staged(path) as staged_path:
        if file_form is FileForm.PARQUET:
            sink_tables(staged_path, form.types, (_frame(piece, form) for piece in pieces))
            return
        header = [form.separator.join(form.columns).encode() + b"\n"] if form.has_header else []
        with staged_path.open("xb") as file, _compressed(file, file_form) as sink:
            for piece in header:
                sink.write(piece)
            for piece in pieces:
                sink.write(piece)


@contextlib.contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """A hidden path beside `path` that takes its place, safely on disk, if all goes well."""
    if not path.parent.is_dir():
        raise ConfigError(f"path={str(path)!r} is in a folder that does not exist; make it first.")
    if path.is_dir():
        raise ConfigError(f"path={str(path)!r} is a folder; name a file in it.")
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield hidden
    except (OSError, PolarsError) as error:  # polars has no error of its own for a full disk.
        hidden.unlink(missing_ok=True)
        shown = reason_of(error) if isinstance(error, OSError) else str(error)
        raise DataError(
            f"{path.name} cannot be written: {shown}; make room, or choose another folder."
        ) from None
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    try:
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(hidden, path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def _compressed(file: BinaryIO, form: FileForm) -> Iterator[_Sink]:
    if form is FileForm.GZIP:
        # No name and no time in the archive: the same log gives the same bytes.
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as sink:
            yield sink
    elif form is FileForm.ZSTD:
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as sink:
            yield sink
    else:
        yield file


def _frame(piece: bytes, form: TableForm) -> pl.DataFrame:
    return pl.read_csv(
        io.BytesIO(piece),
        has_header=False,
        separator=form.separator,
        schema=form.types,
        null_values=[text for text in form.missing if text],
        quote_char=None,
    )
