"""Spark, on this machine or on a cluster, from the same steps translated to its dialect."""

import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import DatabaseTable, FileTable, FrameTable, TableSource
from tulle.measure.engines.engine import UNREADABLE, Program, Rows, source_name
from tulle.measure.engines.log_files import FileKind, as_scanned, check_files, file_kind, text_table
from tulle.measure.engines.sql_text import translate

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}
"""Settings of every session: times in UTC, and errors in place of silent nulls."""


_SCANNED = (".parquet", ".pq", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
"""Endings of files that Spark scans in place."""
_TEXT_OPTIONS: dict[str, Any] = {
    "header": True,
    "inferSchema": False,
    "nullValue": "",
    "emptyValue": "",
    "multiLine": True,
    "mode": "FAILFAST",
    "unescapedQuoteHandling": "RAISE_ERROR",
    "enforceSchema": False,
}
"""All columns as text and in one dialect: guesses would follow from all rows."""
_PATTERN = re.compile(r"[*?\[\]{}\\]")
"""What Hadoop reads as a pattern in a path."""


class SparkEngine:
    """Runs programs in a session of its own."""

    has_asof_join = False

    def __init__(self, master: str) -> None:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            raise ConfigError(
                f"engine={master!r} needs pyspark; install it with pip install 'tulle[spark]'."
            ) from None
        is_local = master.startswith("local")
        if is_local and shutil.which("java") is None:
            raise ConfigError(
                f"engine={master!r} needs Java 17 or later; install it, or use engine='duckdb'."
            )
        self.name = master
        self._was_running = SparkSession.getActiveSession() is not None
        builder = SparkSession.builder.master(master).appName("tulle measure")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        self._folder = tempfile.TemporaryDirectory(prefix="tulle-spark-")
        if is_local:
            # Spark's own choice is the working directory.
            warehouse = str(Path(self._folder.name) / "warehouse")
            builder = builder.config("spark.sql.warehouse.dir", warehouse)
            # Small tables in one process: the default of 200 parts costs seconds a step.
            builder = builder.config("spark.ui.enabled", "false")
            builder = builder.config("spark.sql.shuffle.partitions", "4")
        try:
            with _without_chatter():
                self._session = builder.getOrCreate().newSession()
            # What Spark logs of a failed task or query quotes rows.
            self._session.sparkContext.setLogLevel("OFF")
            logging.getLogger("SQLQueryContextLogger").disabled = True
        except Exception as error:
            self._folder.cleanup()
            raise ConfigError(
                f"Spark does not start at engine={master!r} ({type(error).__name__}); check the "
                "address, JAVA_HOME and that Java is 17 or later."
            ) from None
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)

    def column_types(self, source: TableSource) -> Mapping[str, str]:
        """Columns of a table and Spark's words for their types."""
        with _plain_errors(source_name(source)):
            types = dict(self._read("described", source).dtypes)
        if isinstance(source, FrameTable):
            types |= {name: f"{UNREADABLE}{kind}" for name, kind in source.unreadable.items()}
        return types

    def run(self, program: Program) -> list[Rows]:
        """Rows of each output."""
        with self._prepared(program), _plain_errors("the log"):
            return [_columns(self._session.table(name)) for name in program.outputs]

    def write(self, program: Program, path: Path) -> None:
        """Writes the only output to a folder of Parquet files."""
        (output,) = program.outputs
        if path.exists():
            raise DataError(f"Spark cannot write {path}: it is there already; name a new folder.")
        with self._prepared(program), _plain_errors(f"the log, or write {path}"):
            self._session.table(output).write.parquet(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()
        if not self._was_running:
            self._session.stop()

    @contextlib.contextmanager
    def _prepared(self, program: Program) -> Iterator[None]:
        shared = program.shared_steps
        with contextlib.ExitStack() as stack:
            for name, source in program.tables.items():
                with _plain_errors(source_name(source)):
                    self._read(name, source).createOrReplaceTempView(name)
                stack.callback(self._session.catalog.dropTempView, name)
            for name, small in program.frames.items():
                self._frame(name, small).createOrReplaceTempView(name)
                stack.callback(self._session.catalog.dropTempView, name)
            for step in program.steps:
                with _plain_errors("the log"):
                    frame = self._session.sql(translate(step.sql, "spark"))
                    if step.name in shared:
                        frame = frame.persist()
                        stack.callback(frame.unpersist)
                    frame.createOrReplaceTempView(step.name)
                stack.callback(self._session.catalog.dropTempView, step.name)
            yield

    def _read(self, name: str, source: TableSource) -> Any:
        if isinstance(source, FrameTable):
            return self._frame(name, source.table)
        if isinstance(source, DatabaseTable):
            if source.database is not None:
                raise ConfigError(
                    f"{source.database} is a DuckDB database; Spark does not read it. Use "
                    "engine='duckdb', or write the table to Parquet."
                )
            return self._session.table(source.table)
        return self._files(name, source)

    def _files(self, name: str, source: FileTable) -> Any:
        kind = file_kind(source)
        for path in source.paths:
            if _PATTERN.search(str(path)):
                raise DataError(
                    f"{path}: Spark takes the path for a pattern; rename it without any of "
                    "* ? [ ] { } and backslash."
                )
        if not self.name.startswith("local"):
            return self._remote_files(source, kind)
        check_files(source)
        source = as_scanned(source, _SCANNED, Path(self._folder.name) / f"{name}.parquet")
        paths = [str(path) for path in source.paths]
        if file_kind(source) is FileKind.PARQUET:
            return self._session.read.parquet(*paths)
        text = text_table(source)
        reader = self._session.read.options(**_TEXT_OPTIONS, sep=text.separator)
        reader = reader.options(quote=text.quote, escape=text.quote)
        return reader.csv(paths).toDF(*text.columns)

    def _remote_files(self, source: FileTable, kind: FileKind) -> Any:
        """Files that the workers of a cluster read and this machine may not even see."""
        paths = [str(path) for path in source.paths]
        if kind is FileKind.PARQUET:
            return self._session.read.parquet(*paths)
        if kind not in (FileKind.CSV, FileKind.TSV):
            raise DataError(
                f"{source.paths[0].name}: a Spark cluster reads Parquet and CSV; write "
                f"{kind.value} files as one of them."
            )
        quote, separator = ('"', ",") if kind is FileKind.CSV else ("", "\t")
        reader = self._session.read.options(**_TEXT_OPTIONS, sep=separator)
        return reader.options(quote=quote, escape=quote).csv(paths)

    def _frame(self, name: str, frame: pl.DataFrame) -> Any:
        # Spark knows no nanoseconds.
        table = frame.with_columns(pl.selectors.datetime("ns").dt.cast_time_unit("us"))
        if self.name.startswith("local"):
            path = Path(self._folder.name) / f"{name}.parquet"
            table.write_parquet(path)
            return self._session.read.parquet(str(path))
        return self._session.createDataFrame(table.to_arrow())


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Starts Java without a standard error: its warnings, and whatever it might log of rows."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _columns(frame: Any) -> Rows:
    rows = frame.collect()
    return {name: [row[index] for row in rows] for index, name in enumerate(frame.columns)}


@contextlib.contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    # Spark quotes rows and plans in its messages, so neither text nor cause goes on.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise DataError(
            f"Spark cannot read or add up {what} ({type(error).__name__}); check that it is a "
            "readable table whose columns have the types that are stated."
        ) from None
