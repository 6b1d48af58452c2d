"""DuckDB in this process, over files, tables in memory or a database file."""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import contextlib
import dataclasses
import glob
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import DatabaseTable, FileTable, FrameTable, TableSource
from tulle.measure.engines.engine import UNREADABLE, Program, Rows, source_name
from tulle.measure.engines.log_files import FileKind, as_scanned, check_files, file_kind, text_table
from tulle.measure.engines.sql_text import SALT, SALT_VALUE, identifier, text_literal
from tulle.scratch_folders import scratch_folder

_FOLDER_PREFIX = "tulle-duckdb-"
"""What the names of scratch folders begin with."""
_SCANNED = (".parquet", ".pq", *(f"{t}{c}" for t in (".csv", ".tsv") for c in ("", ".gz", ".zst")))
"""Endings of files that DuckDB scans in place."""
_FIXED_SETTINGS = {
    "preserve_insertion_order": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
"""Settings of every database. The last keeps the name of a table from meaning a Python variable."""
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
    """Runs programs in a private in-memory database that reaches the files of the log alone.

    Neither a program nor what lies in a database file can open another file, load an extension or
    change a setting. Rows that need more than the memory lie in a folder of this process, which is
    removed when the engine closes. Folders that killed processes of the same user left behind are
    removed when the next engine opens.
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
        self._settings: dict[str, Any] = {**_FIXED_SETTINGS}
        if memory_limit is not None:
            self._settings["memory_limit"] = memory_limit
        if num_threads is not None:
            self._settings["threads"] = num_threads
        self._copies: dict[object, FileTable] = {}
        self._allowed: frozenset[Path] = frozenset()
        self._databases: dict[Path, str] = {}
        with contextlib.ExitStack() as stack:
            # DuckDB's own choice is the working directory; rows that spill are sensitive.
            self._folder = stack.enter_context(scratch_folder(_FOLDER_PREFIX))
            self._settings["temp_directory"] = str(spill_folder or self._folder)
            try:
                self._connection = self._locked_connection()
            except (duckdb.Error, TypeError) as error:
                given = {
                    "memory_limit": memory_limit,
                    "num_threads": num_threads,
                    "spill_folder": None if spill_folder is None else str(spill_folder),
                }
                named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
                raise ConfigError(
                    f"DuckDB refuses {' or '.join(named)}; write e.g. '4GB', 2 and a folder."
                ) from error
            self._closing = stack.pop_all()

    def column_types(self, source: TableSource) -> Mapping[str, str]:
        """Columns of a table and DuckDB's words for their types."""
        source = self._scanned(source)
        self._allow(_paths_of([source]))
        with self._named("tulle_described", source), _plain_errors(source_name(source)):
            rows = self._connection.execute("DESCRIBE tulle_described").fetchall()
        types = {row[0]: row[1] for row in rows}
        if isinstance(source, FrameTable):
            types |= {name: f"{UNREADABLE}{kind}" for name, kind in source.unreadable.items()}
        return types

    def run(self, program: Program) -> list[Rows]:
        """Rows of each output."""
        program = self._scanning(program)
        self._allow(_paths_of(program.tables.values()))
        with self._prepared(program), _plain_errors("the log"):
            return [
                self._connection.execute(f"SELECT * FROM {name}").fetchnumpy()
                for name in program.outputs
            ]

    def write(self, program: Program, path: Path) -> None:
        """Writes the only output to a Parquet file."""
        (output,) = program.outputs
        copy = f"COPY {output} TO {text_literal(str(path))} (FORMAT parquet)"
        program = self._scanning(program)
        self._allow({*_paths_of(program.tables.values()), path})
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
        self._closing.close()

    def _scanning(self, program: Program) -> Program:
        tables = {name: self._scanned(source) for name, source in program.tables.items()}
        return dataclasses.replace(program, tables=tables)

    def _scanned(self, source: TableSource) -> TableSource:
        """A table that DuckDB reads itself: files of other forms are copied, as they are now."""
        if isinstance(source, FileTable):
            file_kind(source)
            check_files(source)
            found = [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in source.paths]
            state: object = tuple(found)
            if state not in self._copies:
                self._copies[state] = as_scanned(source, _SCANNED, self._new_file())
            return self._copies[state]
        # Tables of polars reach DuckDB by pyarrow.
        if isinstance(source, FrameTable) and importlib.util.find_spec("pyarrow") is None:
            if source not in self._copies:
                path = self._new_file()
                source.table.write_parquet(path)
                self._copies[source] = FileTable(paths=(path,))
            return self._copies[source]
        return source

    def _new_file(self) -> Path:
        return self._folder / f"table-{len(self._copies)}.parquet"

    def _allow(self, paths: Set[Path]) -> None:
        """Lets the database reach more files. It cannot be told so later: another takes its place.

        Nothing is lost, since every program leaves the database as empty as it was.
        """
        if paths <= self._allowed:
            return
        self._connection.close()
        self._databases.clear()
        self._allowed |= paths
        with _plain_errors("the log"):
            self._connection = self._locked_connection()

    # In quotes: an annotation that is kept keeps the library from ending quietly.
    def _locked_connection(self) -> "duckdb.DuckDBPyConnection":
        connection = duckdb.connect(":memory:", config=self._settings)
        connection.execute("SET TimeZone = 'UTC'")
        # Else the type of a column of Python objects follows from a sample of its rows.
        connection.execute("SET pandas_analyze_sample = 0")
        # Files are allowed by what they are called and by the pattern that readers are given.
        names = {name for path in self._allowed for name in (str(path), glob.escape(str(path)))}
        allowed = ", ".join(map(text_literal, sorted(names)))
        connection.execute(f"SET allowed_paths = [{allowed}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    @contextlib.contextmanager
    def _prepared(self, program: Program) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, source in program.tables.items():
                stack.enter_context(self._named(name, source))
            for name, frame in program.frames.items():
                # As numpy arrays: polars tables need pyarrow on their way to DuckDB.
                arrays = {column.name: _array(column) for column in frame}
                stack.enter_context(self._registered(name, arrays))
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
            with self._registered(name, source.table):
                yield
            return
        with _plain_errors(source_name(source)):
            self._connection.execute(f"CREATE TEMP VIEW {name} AS {self._reader(source)}")
        try:
            yield
        finally:
            self._connection.execute(f"DROP VIEW {name}")

    @contextlib.contextmanager
    def _registered(self, name: str, table: object) -> Iterator[None]:
        with _plain_errors("the table in memory"):
            self._connection.register(name, table)
        try:
            yield
        finally:
            self._connection.unregister(name)

    def _reader(self, source: FileTable | DatabaseTable) -> str:
        if isinstance(source, FileTable):
            return _file_reader(source)
        parts = [identifier(part) for part in source.table.split(".")]
        if source.database is not None:
            parts.insert(0, self._attached(source.database))
            self._refuse_view(source, parts[0])
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

    def _refuse_view(self, source: DatabaseTable, database_name: str) -> None:
        """Refuses what is no table: a view may read other files, whose changes nobody would see."""
        *schema, name = source.table.split(".")
        found = self._connection.execute(
            "SELECT count(*) FROM duckdb_views() WHERE database_name = ? "
            "AND lower(schema_name) = lower(?) AND lower(view_name) = lower(?)",
            [database_name, schema[0] if schema else "main", name],
        ).fetchone()
        if found is not None and found[0]:
            raise DataError(
                f"{source.table!r} of {source.database} is a view, which may read other files; "
                "make a table of it in DuckDB (CREATE TABLE t AS FROM v), and name that one."
            )


def _paths_of(sources: Iterable[TableSource]) -> set[Path]:
    """Files that must be reached to read tables."""
    paths: set[Path] = set()
    for source in sources:
        if isinstance(source, FileTable):
            paths.update(source.paths)
        elif isinstance(source, DatabaseTable) and source.database is not None:
            log_of_changes = source.database.with_name(f"{source.database.name}.wal")
            paths.update((source.database, log_of_changes))
    return paths


def _array(column: pl.Series) -> npt.NDArray[Any]:
    if column.dtype == pl.String:
        return np.array(column.to_list(), dtype=object)
    return column.to_numpy()


def _file_reader(source: FileTable) -> str:
    # Paths are files, not patterns, and names of folders are no columns.
    paths = ", ".join(text_literal(glob.escape(str(path))) for path in source.paths)
    if file_kind(source) is FileKind.PARQUET:
        return f"SELECT * FROM read_parquet([{paths}], hive_partitioning = false)"
    text = text_table(source)
    types = ", ".join(f"{text_literal(name)}: 'VARCHAR'" for name in text.columns)
    quote = text_literal(text.quote)
    # An empty text is no value, in quotes or not: Spark cannot tell the two apart.
    return (
        f"SELECT * FROM read_csv([{paths}], auto_detect = false, header = true, "
        f"columns = {{{types}}}, delim = {text_literal(text.separator)}, quote = {quote}, "
        f"escape = {quote}, nullstr = '', allow_quoted_nulls = true, hive_partitioning = false)"
    )


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
