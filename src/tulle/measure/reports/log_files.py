"""Reading the columns of a log that a simulator needs, with errors that say what is wrong."""

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from tulle.errors import DataError
from tulle.privacy.fields import did_you_mean


def scan_table(path: Path) -> pl.LazyFrame:
    """A Parquet or CSV file, not yet read."""
    if not path.exists():
        raise DataError(f"{path.name} is not there; name a Parquet or CSV file.")
    return pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path)


def load_columns(table: str, frame: pl.LazyFrame, names: Iterable[str]) -> pl.DataFrame:
    """These columns, each once.

    Args:
      table: What errors call it, in the plural.
      frame: The table.
      names: Columns it must have.
    """
    wanted = list(dict.fromkeys(names))
    try:
        known = frame.collect_schema().names()
        for name in wanted:
            if name not in known:
                raise DataError(
                    f"{table} have no column {name!r}{did_you_mean(name, known)}; a CSV needs a "
                    "header with the names of columns."
                )
        loaded = frame.select(wanted).collect()
    except pl.exceptions.PolarsError:
        raise DataError(
            f"{table} cannot be read; give a Parquet file, or CSV whose first line is a header."
        ) from None
    if not len(loaded):
        raise DataError(f"{table} have no rows; there is nothing to simulate.")
    return loaded
