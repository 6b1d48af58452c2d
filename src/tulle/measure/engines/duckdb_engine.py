"""DuckDB in this process, over Parquet, CSV, tables in memory or a database file."""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import contextlib
import glob
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import DatabaseTable, FileTable, FrameTable, TableSource
from tulle.measure.engines.column_types import source_name
from tulle.measure.engines.engine import Program, Rows
from tulle.measure.engines.keyed_order import SALT, SALT_VALUE
from tulle.measure.engines.log_files import QUOTE, FileKind, check_files, csv_columns, file_kind
from tulle.measure.engines.sql_text import identifier, text_literal

_FOLDER_PREFIX = "tulle-duckdb-"
_REASONS = (
    ("number of columns", "a row has other columns than the header"),
    ("magic bytes", "it is no Parquet file"),
    ("too small to be a parquet", "it is no Parquet file"),
    ("not a valid duckdb", "it is no DuckDB database"),
    ("does not exist", "there is no such table"),
    ("schema mismatch", "one of its files lacks a column of the first"),
    ("utf-8", "its text is not UTF-8"),
)
"""Words in DuckDB's messages, and what they mean; the messages themselves may quote rows."""


class DuckDBEngine:
    """Runs programs in a private in-memory database.

    Rows that need more than the memory lie in a folder of this process, which is removed when the
    engine closes. Folders that killed processes of the same user left behind are removed when the
    next engine opens.
    """

    name = "duckdb"
    has_asof_join = True

    def __init__(
        self,
        *,
        memory_limit: str | None = None,
        num_threads: int | None = None,
        spill_folder: Path | None = None,
    ) -> None:
        # DuckDB's own choice is the working directory; rows that spill are sensitive.
        _remove_stale_folders()
        self._own_folder = tempfile.TemporaryDirectory(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-")
        settings: dict[str, Any] = {
            "preserve_insertion_order": "false",
            "temp_directory": str(spill_folder or self._own_folder.name),
        }
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        if num_threads is not None:
            settings["threads"] = num_threads
        try:
            self._connection = duckdb.connect(":memory:", config=settings)
            self._connection.execute("SET TimeZone = 'UTC'")
            # Else the type of a column of Python objects follows from a sample of its rows.
            self._connection.execute("SET pandas_analyze_sample = 0")
        except (duckdb.Error, TypeError) as error:
            self._own_folder.cleanup()
            raise ConfigError(
                f"DuckDB refuses memory_limit={memory_limit!r}, num_threads={num_threads!r} or "
                f"spill_folder={str(spill_folder)!r}; write e.g. '4GB', 2 and a folder."
            ) from error
        self._databases: dict[Path, str] = {}

    def column_types(self, source: TableSource) -> Mapping[str, str]:
        """Columns of a table and DuckDB's words for their types."""
        with self._named("tulle_described", source), _plain_errors(source_name(source)):
            rows = self._connection.execute("DESCRIBE tulle_described").fetchall()
        return {row[0]: row[1] for row in rows}

    def run(self, program: Program) -> list[Rows]:
        """Rows of each output."""
        with self._prepared(program), _plain_errors("the log"):
            return [
                self._connection.execute(f"SELECT * FROM {name}").fetchnumpy()
                for name in program.outputs
            ]

    def write(self, program: Program, path: Path) -> None:
        """Writes the only output to a Parquet file."""
        (output,) = program.outputs
        copy = f"COPY {output} TO {text_literal(str(path))} (FORMAT parquet)"
        with self._prepared(program), _plain_errors("the log"):
            try:
                self._connection.execute(copy)
            except duckdb.IOException:
                raise DataError(
                    f"DuckDB cannot write {path}; check that its folder is there and has room."
                ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._own_folder.cleanup()

    @contextlib.contextmanager
    def _prepared(self, program: Program) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, source in program.tables.items():
                stack.enter_context(self._named(name, source))
            for name, frame in program.frames.items():
                # As numpy arrays: polars tables need pyarrow on their way to DuckDB.
                arrays = {column.name: _array(column) for column in frame}
                stack.enter_context(self._named(name, FrameTable(frame=arrays)))
            if SALT in program.frames:
                # A variable is a constant of the plan; a table would be joined with every row.
                with _plain_errors("the log"):
                    self._connection.execute(f"SET VARIABLE {SALT} = {SALT_VALUE}")
                stack.callback(self._connection.execute, f"RESET VARIABLE {SALT}")
            shared = program.shared_steps
            for step in program.steps:
                sql = step.sql.replace(SALT_VALUE, f"GETVARIABLE('{SALT}')")
                kind = "TABLE" if step.name in shared else "VIEW"
                with _plain_errors("the log"):
                    self._connection.execute(f"CREATE TEMP {kind} {step.name} AS {sql}")
                stack.callback(self._connection.execute, f"DROP {kind} {step.name}")
            yield

    @contextlib.contextmanager
    def _named(self, name: str, source: TableSource) -> Iterator[None]:
        if isinstance(source, FrameTable):
            self._register(name, source)
            try:
                yield
            finally:
                self._connection.unregister(name)
            return
        with _plain_errors(source_name(source)):
            self._connection.execute(f"CREATE TEMP VIEW {name} AS {self._reader(source)}")
        try:
            yield
        finally:
            self._connection.execute(f"DROP VIEW {name}")

    def _register(self, name: str, source: FrameTable) -> None:
        is_polars = isinstance(source.frame, (pl.DataFrame, pl.LazyFrame))
        if is_polars and importlib.util.find_spec("pyarrow") is None:
            raise ConfigError(
                "polars tables reach DuckDB by pyarrow, which is missing; install it, or write "
                "the table to Parquet."
            )
        try:
            self._connection.register(name, source.frame)
        except (duckdb.Error, TypeError):
            raise DataError("the table in memory is no polars, pandas or Arrow table.") from None

    def _reader(self, source: FileTable | DatabaseTable) -> str:
        if isinstance(source, FileTable):
            return _file_reader(source)
        parts = [identifier(part) for part in source.table.split(".")]
        if source.database is not None:
            parts.insert(0, self._attached(source.database))
        return f"SELECT * FROM {'.'.join(parts)}"

    def _attached(self, database: Path) -> str:
        if not database.is_file():
            raise DataError(f"{database} is not there; name a DuckDB database file.")
        if database not in self._databases:
            name = f"tulle_database_{len(self._databases)}"
            place = text_literal(str(database))
            with _plain_errors(str(database)):
                self._connection.execute(f"ATTACH {place} AS {name} (READ_ONLY)")
            self._databases[database] = name
        return self._databases[database]


def _array(column: pl.Series) -> npt.NDArray[Any]:
    if column.dtype == pl.String:
        return np.array(column.to_list(), dtype=object)
    return column.to_numpy()


def _file_reader(source: FileTable) -> str:
    kind = file_kind(source)
    check_files(source)
    # Paths are files, not patterns, and names of folders are no columns.
    paths = ", ".join(text_literal(glob.escape(str(path))) for path in source.paths)
    if kind is FileKind.PARQUET:
        return f"SELECT * FROM read_parquet([{paths}], hive_partitioning = false)"
    columns = csv_columns(source.paths, kind)
    types = ", ".join(f"{text_literal(name)}: 'VARCHAR'" for name in columns)
    quote = text_literal(QUOTE)
    # An empty text is no value, in quotes or not: Spark cannot tell the two apart.
    return (
        f"SELECT * FROM read_csv([{paths}], auto_detect = false, header = true, "
        f"columns = {{{types}}}, delim = {text_literal(kind.separator)}, quote = {quote}, "
        f"escape = {quote}, nullstr = '', allow_quoted_nulls = true, hive_partitioning = false)"
    )


def _remove_stale_folders() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        found = re.match(rf"{_FOLDER_PREFIX}(\d+)-", folder.name)
        with contextlib.suppress(OSError):
            is_own = folder.stat(follow_symlinks=False).st_uid == os.getuid()
            if found and is_own and not _is_running(int(found[1])):
                shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    # DuckDB quotes rows and SQL in its messages, so neither text nor cause goes on.
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise DataError(
            f"DuckDB has not enough memory for {what}; raise memory_limit, or name a spill_folder "
            "with room."
        ) from None
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        reason = next((text for words, text in _REASONS if words in str(error).lower()), None)
        way_out = reason or (
            "check that it is a readable table whose columns have the types that are stated"
        )
        raise DataError(
            f"DuckDB cannot read or add up {what} ({type(error).__name__}): {way_out}."
        ) from None
    except RuntimeError as error:
        # A signal's own error does not get through DuckDB, which raises this in its place.
        if "interrupted" not in str(error).lower():
            raise
        raise KeyboardInterrupt from None
