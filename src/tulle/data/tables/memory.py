"""Tables from memory as polars tables, whichever library made them, and as files for a while.

A column comes out as the Parquet reader would give it: text of any kind is
String, and what is missing (null, NaN, None, NaT, empty text) is null. So a
value becomes the same feature id as from a file. pandas and pyarrow are never
imported: an Arrow table offers itself through its stream of C structures, and
a pandas table hands out numpy arrays.

Work that reads a file several times gets the table in a scratch folder that only
this user can enter, and only while it is worked on.
"""

import contextlib
import io
import os
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from tulle.errors import DataError
from tulle.scratch_folders import scratch_folder

_TEXT_TYPES = (pl.Categorical, pl.Enum, pl.Binary, pl.Null)
_NUMBER_KINDS = "biuf"


def as_polars(table: object, *, columns: Container[str] | None = None) -> pl.DataFrame:
    """A table of polars, pandas, Arrow or DuckDB as a polars table, rows in their order.

    Args:
      table: A polars DataFrame or LazyFrame, a pandas DataFrame, or anything that exports an
        Arrow stream of rows, such as a pyarrow Table or a relation of DuckDB. The index of a
        pandas table is left out.
      columns: What to keep of it; names that it lacks are passed over. None: all.

    Privacy:
      The rows stay what they are. Errors name a column and never a value.

    Raises:
      DataError: It is no table, a name is not text or is there twice, or a column has
        values of several types or of one that is no number, text or time.
    """
    if isinstance(table, pl.DataFrame):
        found = table
    elif isinstance(table, pl.LazyFrame):
        found = _collected(table, columns)
    elif _is_pandas(table):
        found = _from_pandas(table, columns)
    elif hasattr(table, "__arrow_c_stream__") and not isinstance(table, pl.Series):
        found = _from_arrow(table)
    else:
        raise DataError(
            f"a table of type {type(table).__name__} cannot be read; pass a table of polars, "
            "pandas, Arrow or DuckDB."
        )
    kept = [name for name in found.columns if columns is None or name in columns]
    return found.select([_plain_values(found[name]) for name in kept])


def _is_pandas(table: object) -> bool:
    # pandas itself is not imported: its classes are known by their name.
    return any(
        cls.__name__ == "DataFrame" and cls.__module__.partition(".")[0] == "pandas"
        for cls in type(table).__mro__
    )


def _collected(table: pl.LazyFrame, columns: Container[str] | None) -> pl.DataFrame:
    try:
        known = table.collect_schema().names()
        return table.select([n for n in known if columns is None or n in columns]).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        # Not chained: what polars says may quote a value.
        raise DataError(
            f"the lazy polars table cannot be collected ({type(error).__name__}); collect() it "
            "first to see why."
        ) from None


def _from_arrow(table: object) -> pl.DataFrame:
    try:
        rows = pl.Series(table)  # type: ignore[arg-type]
        if rows.dtype == pl.Struct:
            return rows.struct.unnest()
    except pl.exceptions.DuplicateError:
        raise DataError("the Arrow table has a column name twice; rename one of them.") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError):
        raise DataError(
            "the Arrow table has a column of a type that polars does not know; select the "
            "columns with a role first."
        ) from None
    raise DataError(
        f"an Arrow stream of type {type(table).__name__} has values and no columns; pass a table."
    )


def _from_pandas(table: Any, columns: Container[str] | None) -> pl.DataFrame:
    names = [name for name in table.columns if columns is None or name in columns]
    for name in names:
        if not isinstance(name, str):
            raise DataError(
                f"the pandas table has a column name of type {type(name).__name__}; names must be "
                "text, e.g. by table.columns = table.columns.astype(str)."
            )
        if names.count(name) > 1:
            raise DataError(f"the pandas table has column {name!r} twice; rename one of them.")
    return pl.DataFrame([_pandas_column(name, table[name]) for name in names])


def _pandas_column(name: str, values: Any) -> pl.Series:
    kind = getattr(values.dtype, "kind", "O")
    try:
        if values.dtype.name == "category":
            return _pandas_categories(name, values)
        if kind == "M":
            # Times with a zone become UTC. NaT is null.
            return pl.Series(name, values.to_numpy("datetime64[us]", na_value=np.datetime64("NaT")))
        if kind in _NUMBER_KINDS:
            return _pandas_numbers(name, values)
        return pl.Series(name, values.to_numpy(object, na_value=None).tolist(), strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        # Not chained: what polars says quotes a value.
        raise DataError(
            f"column {name!r} of the pandas table has values of several types, or of one that is "
            "no number, text or time; convert it first."
        ) from None


def _pandas_categories(name: str, values: Any) -> pl.Series:
    categories = _pandas_column(name, values.cat.categories.to_series())
    places = pl.Series(values.cat.codes.to_numpy()).cast(pl.Int64)
    return categories.gather(places.set(places < 0, None))


def _pandas_numbers(name: str, values: Any) -> pl.Series:
    stored = getattr(values.dtype, "numpy_dtype", None)
    if stored is None:
        return pl.Series(name, np.asarray(values))
    # A nullable column keeps what is missing beside its numbers.
    numbers = pl.Series(name, values.to_numpy(stored, na_value=stored.type(0)))
    return numbers.set(pl.Series(values.isna().to_numpy()), None)


def _plain_values(values: pl.Series) -> pl.Series:
    if values.dtype.is_nested() or values.dtype == pl.Object:
        raise DataError(
            f"column {values.name!r} has the type {values.dtype}, but a value must be a number, a "
            "text or a time; unfold it into columns first."
        )
    if values.dtype in _TEXT_TYPES:
        try:
            values = values.cast(pl.String)
        except pl.exceptions.PolarsError:
            raise DataError(
                f"column {values.name!r} has bytes that are not UTF-8; store it as text."
            ) from None
    if values.dtype == pl.String:
        return values.set(values == "", None)
    return values.fill_nan(None) if values.dtype.is_float() else values


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
