"""Small tables that settings name: keys, earlier counts, public values."""

import re
from pathlib import Path

import polars as pl

from tulle.errors import DataError


def read_table(path: Path, *, as_text: bool = False) -> pl.DataFrame:
    """A CSV or Parquet file that fits into memory.

    Args:
      path: The file.
      as_text: Whether all columns of a CSV are read as text.

    Raises:
      DataError: It cannot be read.
    """
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        return pl.read_csv(path, infer_schema=not as_text)
    except FileNotFoundError:
        raise DataError(f"{path.name} does not exist; name a CSV or Parquet file.") from None
    except (OSError, pl.exceptions.PolarsError):
        raise DataError(f"{path.name} cannot be read as a table; give CSV or Parquet.") from None


def file_stem(name: str) -> str:
    """A name as that of a file, without its ending."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "table"
