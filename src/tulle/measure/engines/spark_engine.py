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
from tulle.measure.engines.column_types import source_name
from tulle.measure.engines.engine import Program, Rows
from tulle.measure.engines.log_files import QUOTE, FileKind, check_files, csv_columns, file_kind
from tulle.measure.engines.translation import translate

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


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
            return dict(self._read("described", source).dtypes)

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
        sources = dict(program.tables) | {
            name: FrameTable(frame=frame) for name, frame in program.frames.items()
        }
        shared = program.shared_steps
        with contextlib.ExitStack() as stack:
            for name, source in sources.items():
                with _plain_errors(source_name(source)):
                    self._read(name, source).createOrReplaceTempView(name)
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
            return self._frame(name, source.frame)
        if isinstance(source, DatabaseTable):
            if source.database is not None:
                raise ConfigError(
                    f"{source.database} is a DuckDB database; Spark does not read it. Use "
                    "engine='duckdb', or write the table to Parquet."
                )
            return self._session.table(source.table)
        return self._files(source)

    def _files(self, source: FileTable) -> Any:
        kind = file_kind(source)
        for path in source.paths:
            if _PATTERN.search(str(path)):
                raise DataError(
                    f"{path}: Spark takes the path for a pattern; rename it without any of "
                    "* ? [ ] { } and backslash."
                )
        if self.name.startswith("local"):
            check_files(source)
        paths = [str(path) for path in source.paths]
        if kind is FileKind.PARQUET:
            return self._session.read.parquet(*paths)
        if self.name.startswith("local"):
            csv_columns(source.paths, kind)
        # All as text and in one dialect: guesses would follow from all rows.
        reader = self._session.read.options(
            header=True,
            inferSchema=False,
            sep=kind.separator,
            quote=QUOTE,
            escape=QUOTE,
            nullValue="",
            emptyValue="",
            multiLine=True,
            mode="FAILFAST",
            unescapedQuoteHandling="RAISE_ERROR",
            enforceSchema=False,
        )
        return reader.csv(paths)

    def _frame(self, name: str, frame: Any) -> Any:
        table = _as_polars(frame)
        if self.name.startswith("local"):
            path = Path(self._folder.name) / f"{name}.parquet"
            table.write_parquet(path)
            return self._session.read.parquet(str(path))
        return self._session.createDataFrame(table.to_arrow())


def _as_polars(frame: Any) -> pl.DataFrame:
    try:
        table = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(_with_texts(frame))
    except Exception:
        raise DataError("the table in memory is no polars, pandas or Arrow table.") from None
    # Spark knows no nanoseconds.
    return table.with_columns(pl.selectors.datetime("ns").dt.cast_time_unit("us"))


def _with_texts(frame: Any) -> Any:
    # Objects one by one as text: else the type of a column follows from all its rows.
    if not hasattr(frame, "select_dtypes"):
        return frame
    objects = list(frame.select_dtypes(include=[object]).columns)
    texts = {
        name: pl.Series([None if _is_missing(value) else str(value) for value in frame[name]])
        for name in objects
    }
    table = pl.DataFrame(frame.drop(columns=objects))
    return table.with_columns(**{name: text.cast(pl.String) for name, text in texts.items()})


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


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
