"""Tables as files: whole or not at all, in a stream, in the form that the name's suffix says.

`.gz` and `.zst` are compressed text, `.parquet` is Parquet with nulls for missing
values, any other name is plain text.
"""

import contextlib
import dataclasses
import gzip
import io
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import polars as pl
import zstandard
from polars.exceptions import PolarsError

from tulle.atomic_files import sync_folder
from tulle.data.parquet_stream import sink_tables
from tulle.data.tables.archives import FileForm, form_by_name
from tulle.errors import ConfigError, DataError, reason_of

_GZIP_LEVEL = 4


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
