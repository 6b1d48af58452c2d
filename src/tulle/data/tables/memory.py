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
import datetime
import io
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PanicException, PolarsError

from tulle.data.tables.refusals import check_names
from tulle.errors import DataError
from tulle.scratch_folders import scratch_folder

_TEXT_TYPES = (pl.Categorical, pl.Enum, pl.Binary, pl.Null)
_NUMBER_KINDS = "biuf"
_PLAIN_VALUES = (bool, int, float, str, datetime.date, datetime.datetime, np.generic)
"""Types of the values of a row that is given value by value."""


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


def columns_of(table: object, columns: Sequence[str], *, name: str) -> pl.DataFrame:
    """Some columns of a table, in this order.

    Args:
      table: See `as_polars`.
      columns: Columns that it must have.
      name: What messages call it.

    Privacy:
      The rows stay what they are. Errors name a column and never a value.

    Raises:
      DataError: It is no table, or lacks a column; the message says which it has.
    """
    found = as_polars(table, columns=columns)
    if not set(columns) <= set(found.columns):
        check_names(name, _all_names(table) or found.columns, tuple(columns))
    return found.select(columns)


def _all_names(table: object) -> list[str]:
    """Names of all columns of a table, as far as it tells them without being read."""
    if isinstance(table, pl.LazyFrame):
        return table.collect_schema().names()
    names: Any = getattr(table, "column_names", getattr(table, "columns", ()))
    return [name for name in names if isinstance(name, str)]


def as_column(values: object, name: str) -> pl.Series:
    """One column of polars, pandas, Arrow or numpy, or a list, as a column of a polars table.

    Args:
      values: The column. An array or a table is taken if it has just one.
      name: What the column is called from now on.

    Privacy:
      The values stay what they are. Errors name the column and never a value.

    Raises:
      DataError: It is no column, or has values of several types or of one that is no number,
        text or time.
    """
    if isinstance(values, pl.DataFrame) or _is_pandas(values, "DataFrame"):
        table: Any = values
        if table.shape[1] != 1:
            raise _no_column(values, name, table.shape)
        values = table[table.columns[0]]
    if isinstance(values, pl.Series):
        return _plain_values(values.alias(name))
    if _is_pandas(values, "Series"):
        return _plain_values(_pandas_column(name, values))
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return _plain_values(pl.Series(name, values))  # type: ignore[arg-type]
    numbers = np.asarray(values)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        raise _no_column(values, name, numbers.shape)
    return _plain_values(_numpy_column(name, numbers))


def _no_column(values: object, name: str, shape: tuple[int, ...]) -> DataError:
    return DataError(
        f"{name} of type {type(values).__name__} is no single column: it has the shape {shape}; "
        "pass one value a row."
    )


def is_table(table: object) -> bool:
    """Whether something is a table of a kind that `as_polars` reads, with columns that have names.

    A pandas table whose columns are numbered has none.
    """
    if _is_pandas(table, "DataFrame"):
        names: Any = table
        return any(isinstance(name, str) for name in names.columns)
    is_polars = isinstance(table, pl.DataFrame | pl.LazyFrame)
    return is_polars or (hasattr(table, "__arrow_c_stream__") and not isinstance(table, pl.Series))


def as_numbered_columns(array: object) -> pl.DataFrame:
    """An array of rows, or a table without names, as a table with the columns x0, x1 and so on.

    Args:
      array: An array of two dimensions, a list of rows, or a pandas table with numbered columns.

    Privacy:
      The rows stay what they are. Errors never name a value.

    Raises:
      DataError: It has not two dimensions, no column, or values that are no number, text or time.
    """
    if _is_pandas(array, "DataFrame"):
        table: Any = array
        columns = [table.iloc[:, place] for place in range(table.shape[1])]
        return pl.DataFrame([as_column(values, f"x{i}") for i, values in enumerate(columns)])
    try:
        rows = np.asarray(array)
    except ValueError:
        raise DataError("X has rows of different lengths; pass a table, or rows alike.") from None
    if rows.dtype == object and rows.ndim == 0:
        raise DataError(
            f"a table of type {type(array).__name__} cannot be read; pass a table of polars, "
            "pandas, Arrow or DuckDB, or an array. A sparse array must be made dense first."
        )
    if rows.ndim != 2:
        raise DataError(
            f"X must have rows and columns and has {rows.ndim} dimensions. Reshape your data: "
            "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row."
        )
    if not rows.shape[1]:
        raise DataError(
            f"X has 0 feature(s) (shape={rows.shape}) while a minimum of 1 is required."
        )
    return pl.DataFrame(
        [_plain_values(_numpy_column(f"x{i}", rows[:, i])) for i in range(rows.shape[1])]
    )


def one_row(values: Mapping[str, object]) -> pl.DataFrame:
    """A table of one row, from the value of each column.

    Raises:
      DataError: A value is neither a number, text, a time nor missing.
    """
    columns = []
    for name, value in values.items():
        if not isinstance(value, _PLAIN_VALUES) and value is not None:
            raise DataError(
                f"the row has a value of type {type(value).__name__} in column {name!r}; give a "
                "number, text, a time, or None if it is missing."
            )
        columns.append(pl.Series(name, [value]))
    return pl.DataFrame(columns)


def with_nulls(table: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """The table with further columns in which every value is missing."""
    return table.with_columns(pl.lit(None).alias(name) for name in dict.fromkeys(columns))


def polars_table(columns: Mapping[str, Sequence[object]]) -> pl.DataFrame:
    """A polars table of columns, for packages that do not load polars themselves."""
    return pl.DataFrame(dict(columns))


def _numpy_column(name: str, values: NDArray[Any]) -> pl.Series:
    if values.dtype.kind == "c":
        raise DataError(f"column {name!r} has complex numbers. Complex data not supported.")
    try:
        if values.dtype.kind == "O":
            return pl.Series(name, values.tolist(), strict=True)
        return pl.Series(name, np.ascontiguousarray(values))
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        # Not chained: what polars says quotes a value.
        raise DataError(
            f"column {name!r} has values of several types, or of one that is no number, text or "
            "time; convert it first."
        ) from None


def _is_pandas(table: object, kind: str = "DataFrame") -> bool:
    # pandas itself is not imported: its classes are known by their name.
    return any(
        cls.__name__ == kind and cls.__module__.partition(".")[0] == "pandas"
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
