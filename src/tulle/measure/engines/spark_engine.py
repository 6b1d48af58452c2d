"""Spark, on this machine or on a cluster, from the same steps translated to its dialect."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import DatabaseTable, FrameTable, TableSource
from tulle.measure.engines.column_types import source_name
from tulle.measure.engines.engine import Program, Rows
from tulle.measure.engines.translation import translate

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


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
            self._session = builder.getOrCreate().newSession()
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
        with self._prepared(program), _plain_errors("the log"):
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
        paths = [str(path) for path in source.paths]
        if all(path.endswith((".parquet", ".pq")) for path in paths):
            return self._session.read.parquet(*paths)
        return self._session.read.csv(paths, header=True, inferSchema=True)

    def _frame(self, name: str, frame: Any) -> Any:
        table = _as_polars(frame)
        if self.name.startswith("local"):
            path = Path(self._folder.name) / f"{name}.parquet"
            table.write_parquet(path)
            return self._session.read.parquet(str(path))
        return self._session.createDataFrame(table.to_arrow())


def _as_polars(frame: Any) -> pl.DataFrame:
    try:
        table = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)
    except Exception:
        raise DataError("the table in memory is no polars, pandas or Arrow table.") from None
    # Spark knows no nanoseconds.
    return table.with_columns(pl.selectors.datetime("ns").dt.cast_time_unit("us"))


def _columns(frame: Any) -> Rows:
    rows = frame.collect()
    return {name: [row[index] for row in rows] for index, name in enumerate(frame.columns)}


@contextlib.contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    # Spark quotes rows and plans in its messages, so neither text nor cause goes on.
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise DataError(
            f"Spark cannot read or add up {what} ({type(error).__name__}); check that it is a "
            "readable table whose columns have the types that are stated."
        ) from None
