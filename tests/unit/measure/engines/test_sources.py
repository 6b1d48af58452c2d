"""The same log from files, databases and tables in memory has the same totals."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import (
    AdLog,
    DatabaseTable,
    FileTable,
    FrameTable,
    LogColumns,
    TableSource,
)
from tulle.measure.attribution.rules import Attribution, LastTouch
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.engine import open_engine
from tulle.measure.engines.log_checks import check_log
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import Bounds
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import CAMPAIGN, DAY, SALT, job_of

IMPRESSIONS = pl.DataFrame(
    {"user": [1, 1, 2], "timestamp": [0, 90_000, 5], "campaign": ["a", "b", 'it\'s "c"']}
)
CONVERSIONS = pl.DataFrame({"user": [1, 2, 3], "timestamp": [90_001, 6, 7]})
JOB = job_of(CAMPAIGN, DAY, bounds=Bounds(max_per_slice=1.0, max_slices_per_unit=1))
EXPECTED = [("b", "1970-01-02", 1), ('it\'s "c"', "1970-01-01", 1)]


def as_source(kind: str, frame: pl.DataFrame, folder: Path) -> TableSource:
    name = f"{frame.width}"
    if kind == "parquet":
        frame.write_parquet(folder / f"{name}.parquet")
        return FileTable(paths=(folder / f"{name}.parquet",))
    if kind == "two files":
        frame.head(1).write_parquet(folder / f"{name}a.parquet")
        frame.tail(-1).write_parquet(folder / f"{name}b.parquet")
        return FileTable(paths=(folder / f"{name}a.parquet", folder / f"{name}b.parquet"))
    if kind == "csv":
        frame.write_csv(folder / f"{name}.csv")
        return FileTable(paths=(folder / f"{name}.csv",))
    if kind == "pandas":
        return FrameTable(frame=frame.to_pandas())
    if kind == "arrow":
        return FrameTable(frame=frame.to_arrow())
    if kind == "database":
        with duckdb.connect(str(folder / "log.db")) as connection:
            connection.register("given", frame)
            connection.execute(f'CREATE TABLE "log {name}" AS SELECT * FROM given')  # noqa: S608
        return DatabaseTable(table=f"log {name}", database=folder / "log.db")
    return FrameTable(frame=frame)


@pytest.mark.parametrize(
    "kind", ["parquet", "two files", "csv", "polars", "pandas", "arrow", "database"]
)
def test_every_source_gives_the_same_totals(kind: str, tmp_path: Path) -> None:
    log = AdLog(
        impressions=as_source(kind, IMPRESSIONS, tmp_path),
        conversions=as_source(kind, CONVERSIONS, tmp_path),
        columns=LogColumns(kinds={"timestamp": "timestamp"}),
    )
    attribution = Attribution(rule=LastTouch(), lookback_seconds=1000)
    with open_engine(num_threads=1) as engine:
        check_log(engine, log, jobs=[JOB])
        (result,) = slice_totals(engine, log, attribution, [JOB], unit=Unit.user(), salt=SALT)
    steps = result.raw_steps[:, 0].tolist()
    rows = [(*key, n) for key, n in zip(result.slices.iter_rows(), steps, strict=True)]
    assert rows == EXPECTED


def test_users_as_text_and_as_numbers_are_the_same() -> None:
    texts = CONVERSIONS.with_columns(pl.col("user").cast(pl.String))
    log = AdLog(impressions=FrameTable(frame=IMPRESSIONS), conversions=FrameTable(frame=texts))
    attribution = Attribution(rule=LastTouch(), lookback_seconds=1000)
    with open_engine(num_threads=1) as engine:
        (result,) = slice_totals(engine, log, attribution, [JOB], unit=Unit.user(), salt=SALT)
    assert result.raw_steps.sum() == 2


def test_columns_of_a_table_are_listed() -> None:
    with open_engine() as engine:
        columns = engine.column_types(FrameTable(frame=IMPRESSIONS))
    assert columns == {"user": "BIGINT", "timestamp": "BIGINT", "campaign": "VARCHAR"}


@pytest.mark.parametrize("kind", ["missing", "no table", "folder", "wrong ending", "no database"])
def test_unreadable_tables_are_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"no table")
    (tmp_path / "log.txt").write_text("user\n1\n")
    (tmp_path / "folder.csv").mkdir()
    source, said = {
        "missing": (FileTable(paths=(tmp_path / "none.parquet",)), "none.parquet does not exist"),
        "no table": (FileTable(paths=(tmp_path / "log.parquet",)), "log.parquet is Parquet by its"),
        "folder": (FileTable(paths=(tmp_path / "folder.csv",)), "folder.csv is a folder"),
        "wrong ending": (FileTable(paths=(tmp_path / "log.txt",)), "the name log.txt does not say"),
        "no database": (
            DatabaseTable(table="log", database=tmp_path / "none.db"),
            "none.db is not there",
        ),
    }[kind]
    with open_engine() as engine, pytest.raises(DataError, match=said):
        engine.column_types(source)


def test_a_table_that_a_database_does_not_have_is_named(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "log.db")):
        pass
    source = DatabaseTable(table="impressions", database=tmp_path / "log.db")
    with open_engine() as engine, pytest.raises(DataError, match="table 'impressions'"):
        engine.column_types(source)


def test_what_is_no_table_is_refused() -> None:
    with open_engine() as engine, pytest.raises(DataError, match="pass a table of polars, pandas"):
        engine.column_types(FrameTable(frame=7))


@pytest.mark.parametrize(
    "where", ["postgres", "", "spark", "local[", "local[zz]", "local[0]", "localhost"]
)
def test_unknown_engines_are_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="use 'duckdb'"):
        open_engine(where)


def test_settings_of_duckdb_are_not_for_spark() -> None:
    with pytest.raises(ConfigError, match="memory_limit"):
        open_engine("local[2]", memory_limit="1GB")


def test_settings_that_duckdb_does_not_take_are_named() -> None:
    with pytest.raises(ConfigError, match="memory_limit='much'"):
        open_engine(memory_limit="much")


def test_a_failing_step_shows_neither_rows_nor_sql() -> None:
    frame = pl.DataFrame({"user": ["very secret"], "timestamp": [1]})
    log = AdLog(impressions=FrameTable(frame=IMPRESSIONS), conversions=FrameTable(frame=frame))
    job = job_of(CAMPAIGN, bounds=Bounds(max_per_slice=1.0, max_slices_per_unit=1))
    attribution = Attribution(rule=LastTouch(), lookback_seconds=1000)
    with (
        DuckDBEngine(memory_limit="1MB", num_threads=1) as engine,
        pytest.raises(DataError) as caught,
    ):
        slice_totals(engine, log, attribution, [job], unit=Unit.user(), salt=SALT)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
