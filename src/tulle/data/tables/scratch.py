"""Tables in memory as files, for work that reads a file several times, and released files back.

A table lies in a scratch folder that only this user can enter, and only while it is worked on.
"""

import contextlib
import io
import os
from collections.abc import Container, Iterator
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException, PolarsError

from tulle.data.tables.memory import as_polars
from tulle.errors import DataError
from tulle.scratch_folders import scratch_folder

_SCRATCH = "tulle-tables-"
_JSON_LINES = (".jsonl", ".ndjson")


@contextlib.contextmanager
def as_file(
    data: object, *, name: str = "table.parquet", columns: Container[str] | None = None
) -> Iterator[Path]:
    """The path that was given, or a Parquet file with the table that was given.

    The same table gives the same bytes, so a ledger knows it again.

    Args:
      data: A path, or a table of polars, pandas or Arrow.
      name: What messages call a table in memory.
      columns: What is kept of a table in memory; None: all columns.

    Privacy:
      The rows of a table in memory are on disk, readable by their owner alone, until the block
      is left, also where the process is killed: then the next one removes them.
    """
    if isinstance(data, str | os.PathLike):
        yield Path(data)
        return
    with scratch_folder(_SCRATCH) as folder:
        path = folder / name
        as_polars(data, columns=columns).rechunk().write_parquet(path)
        yield path


def read_parquet_bytes(content: bytes) -> pl.DataFrame:
    """The table of a Parquet file that is held in memory."""
    return pl.read_parquet(io.BytesIO(content))


def read_row_table(path: Path) -> pl.DataFrame:
    """A file whose values have types, Parquet or JSON lines, as one table.

    Delimited text says no types; who wrote it knows them.

    Raises:
      DataError: The file is gone or cannot be read.
    """
    try:
        is_json = path.suffix.lower() in _JSON_LINES
        return pl.read_ndjson(path) if is_json else pl.read_parquet(path)
    except (OSError, ValueError, PolarsError, PanicException) as error:
        raise DataError(
            f"{path.name} cannot be read as a table ({type(error).__name__}); restore the file "
            "that was released."
        ) from None
