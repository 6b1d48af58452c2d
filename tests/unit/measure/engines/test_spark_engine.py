"""Spark gives the same as DuckDB, from the same steps."""

import dataclasses
import datetime
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contract.table_inputs import TIMES, in_form
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, FrameTable, LogColumns
from tulle.measure.attribution.rules import (
    Attribution,
    FirstTouch,
    LastTouch,
    Linear,
    PositionBased,
    PriorityTouch,
    TimeDecay,
)
from tulle.measure.engines.credit_tables import credit_totals
from tulle.measure.engines.emitted_sql import emit_sql
from tulle.measure.engines.engine import Engine, open_engine
from tulle.measure.engines.log_checks import check_log
from tulle.measure.engines.matching import channel_sets
from tulle.measure.engines.spark_engine import SparkEngine
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import Bounds, Subject, frequency_job
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import CAMPAIGN, IMPRESSION_DAY, SALT, all_settings_job, job_of

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed"
    ),
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java"),
]

COLUMNS = LogColumns(kind="kind", priority="priority")
BOUNDS = Bounds(max_per_slice=1.5, max_slices_per_unit=3, max_per_unit=3.0)
ATTRIBUTIONS = [
    Attribution(rule=rule, lookback_seconds=200_000)
    for rule in (
        TimeDecay(half_life_seconds=100_000.0),
        LastTouch(),
        FirstTouch(),
        Linear(),
        PositionBased(),
        PriorityTouch(),
    )
]
JOBS = [
    all_settings_job(BOUNDS),
    job_of(
        CAMPAIGN,
        bounds=BOUNDS,
        subject=Subject.IMPRESSIONS,
        keys=pl.DataFrame({"campaign": ["7", "5", "none"]}),
    ),
    job_of(CAMPAIGN, IMPRESSION_DAY, bounds=BOUNDS, subject=Subject.IMPRESSIONS),
]


def random_log(folder: Path) -> AdLog:
    draw = np.random.default_rng(20260114)
    num_impressions, num_conversions = 4000, 600
    impressions = pl.DataFrame(
        {
            "user": draw.integers(0, 300, num_impressions),
            "timestamp": 1_768_366_800 + draw.integers(0, 400_000, num_impressions) // 100 * 100,
            "campaign": draw.integers(0, 12, num_impressions),
            "kind": np.where(draw.random(num_impressions) < 0.3, "click", "view"),
            "priority": draw.integers(0, 3, num_impressions),
        }
    )
    conversions = pl.DataFrame(
        {
            "user": draw.integers(0, 350, num_conversions),
            "timestamp": 1_768_366_800 + draw.integers(0, 500_000, num_conversions),
            "type": np.where(draw.random(num_conversions) < 0.5, "x", "y"),
            "value": draw.lognormal(1.0, 1.5, num_conversions),
        }
    ).with_columns(pl.from_epoch("timestamp", time_unit="s"))
    impressions.write_parquet(folder / "impressions.parquet")
    return AdLog(
        impressions=FileTable(paths=(folder / "impressions.parquet",)),
        conversions=FrameTable(frame=conversions),
        columns=COLUMNS,
    )


@pytest.fixture(scope="module")
def spark() -> Iterator[Engine]:
    with open_engine("local[2]") as engine:
        yield engine


@pytest.fixture
def plans_once(spark) -> Iterator[None]:
    """Plans a query once, and not again after each stage: on small data plans take longest.

    Tests without this plan as Spark does by itself; the rows are the same.
    """
    spark._session.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    spark._session.conf.set("spark.sql.adaptive.enabled", "true")


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Engine]:
    with open_engine("duckdb") as engine:
        yield engine


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> AdLog:
    return random_log(tmp_path_factory.mktemp("log"))


@pytest.mark.long("every rule, bound and unit on Spark; make test compares six rules at once")
def test_totals_are_those_of_duckdb(spark, duckdb, log) -> None:
    unit = Unit.user(days=2)
    results = [
        slice_totals(engine, log, ATTRIBUTIONS[0], JOBS, unit=unit, salt=SALT)
        for engine in (spark, duckdb)
    ]
    for ours, theirs in zip(*results, strict=True):
        assert ours.slices.equals(theirs.slices)
        assert ours.raw_unit_counts.tolist() == theirs.raw_unit_counts.tolist()
        assert np.abs(ours.raw_steps - theirs.raw_steps).max() <= 1
        assert ours.raw_steps.sum() == pytest.approx(theirs.raw_steps.sum(), rel=1e-8)
        assert theirs.raw_steps.sum() > 0


def test_six_models_at_once_are_those_of_duckdb(spark, duckdb, log) -> None:
    ours, theirs = (
        credit_totals(engine, log, ATTRIBUTIONS, [CAMPAIGN]) for engine in (spark, duckdb)
    )
    assert ours["campaign"].equals(theirs["campaign"])
    names = theirs.columns[1:]
    assert len(names) == 6
    difference = ours.select(names).to_numpy() - theirs.select(names).to_numpy()
    assert np.abs(difference).max() < 1e-8
    assert min(theirs.select(names).sum().row(0)) > 100


def test_frequencies_paths_and_facts_are_those_of_duckdb(spark, duckdb, log) -> None:
    job = frequency_job("reach", (CAMPAIGN,), max_frequency=3, max_slices_per_unit=4, keys=None)
    ours, theirs = (
        slice_totals(engine, log, None, [job], unit=Unit.user(), salt=SALT)[0]
        for engine in (spark, duckdb)
    )
    assert ours.raw_steps.tolist() == theirs.raw_steps.tolist()
    paths = [
        channel_sets(engine, log, ATTRIBUTIONS[1], CAMPAIGN, unit=Unit.user(), salt=SALT)
        for engine in (spark, duckdb)
    ]
    assert paths[0].equals(paths[1])
    assert check_log(spark, log, jobs=JOBS) == check_log(duckdb, log, jobs=JOBS)


@pytest.mark.usefixtures("plans_once")
def test_the_emitted_script_runs(spark, duckdb, log, tmp_path) -> None:
    frame = log.conversions.frame.with_columns(pl.col("timestamp").dt.epoch("s"))
    seconds = AdLog(
        impressions=log.impressions, conversions=FrameTable(frame=frame), columns=COLUMNS
    )
    settings = {"unit": Unit.user()}
    (expected,) = slice_totals(duckdb, seconds, ATTRIBUTIONS[0], JOBS[:1], salt=SALT, **settings)
    script = emit_sql(
        seconds,
        ATTRIBUTIONS[0],
        JOBS[:1],
        dialect="spark",
        times_are_seconds=True,
        **settings,
    )
    session = spark._session
    session.read.parquet(str(log.impressions.paths[0])).createOrReplaceTempView("impressions")
    frame.write_parquet(tmp_path / "conversions.parquet")
    session.read.parquet(str(tmp_path / "conversions.parquet")).createOrReplaceTempView(
        "conversions"
    )
    rows = session.sql(script.rstrip().rstrip(";"), args={"salt": SALT.hex()}).collect()
    assert len(rows) == expected.slices.height
    assert sum(row["num_units"] for row in rows) == expected.raw_unit_counts.sum()


@pytest.mark.usefixtures("plans_once")
def test_every_form_and_time_is_read_as_duckdb_reads_it(spark, duckdb, tmp_path) -> None:
    texts = [times for times in TIMES.values() if times.dtype == pl.String]
    times = pl.concat([*texts, pl.Series(["1e9", "5.", "2026-01-14T24:00", None])])
    frame = pl.DataFrame(
        {
            "user": [f"u{number}" for number in range(len(times))],
            "timestamp": times,
            "campaign": ["yes", "No", "1", "t", 'a "b"', None, "0"] * (len(times) // 7),
            "price": [0.5, 2.0, None, -3.0, 1e3, 7.0, 1.0] * (len(times) // 7),
        }
    )
    price = dataclasses.replace(CAMPAIGN, name="price", column="price")
    seen = dataclasses.replace(CAMPAIGN, name="seen", column="timestamp", is_day=True)
    job = job_of(CAMPAIGN, price, seen, subject=Subject.IMPRESSIONS)
    columns = LogColumns(kinds={"timestamp": "timestamp", "campaign": "boolean"})
    for form in ("csv with semicolons", "tsv", "zstd csv", "json lines", "arrow", "pandas"):
        folder = tmp_path / form
        folder.mkdir()
        with in_form(form, frame, folder) as data:
            source = FileTable(paths=(data,)) if isinstance(data, Path) else FrameTable(frame=data)
            log = AdLog(impressions=source, conversions=None, columns=columns)
            ours, theirs = (
                slice_totals(engine, log, None, [job], unit=Unit.impression(), salt=SALT)[0]
                for engine in (spark, duckdb)
            )
        assert ours.slices.equals(theirs.slices), form
        assert ours.raw_steps.tolist() == theirs.raw_steps.tolist(), form
        assert {"true", "false", "(null)"} == set(theirs.slices["campaign"])
        # What is no time has no day; `check_log` refuses such a log.
        assert set(theirs.slices["seen"]) == {"2026-01-14", "2026-01-15", "1970-01-01", "(null)"}


@pytest.mark.usefixtures("plans_once")
def test_text_files_are_read_as_duckdb_reads_them(spark, duckdb, tmp_path, capfd) -> None:
    folder = tmp_path / "user=zz"
    folder.mkdir()
    (folder / "log.csv").write_text(
        'user,timestamp,campaign,price\r\n07,5,01,1.5\r\n7,1970-01-02,"a ""b""\nc",2\r\n'
        '8,1970-01-01 02:00:00+02:00, x,\r\n9,86400,,3\r\nNULL,5,"",nan\r\n'
    )
    seconds = LogColumns(kinds={"timestamp": "timestamp"})
    log = AdLog(
        impressions=FileTable(paths=(folder / "log.csv",)), conversions=None, columns=seconds
    )
    seen = dataclasses.replace(CAMPAIGN, name="seen", column="timestamp", is_day=True)
    job = job_of(
        CAMPAIGN,
        seen,
        subject=Subject.IMPRESSIONS,
        bounds=Bounds(max_per_slice=1.0, max_slices_per_unit=1),
    )
    ours, theirs = (
        slice_totals(engine, log, None, [job], unit=Unit.user(), salt=SALT)[0]
        for engine in (spark, duckdb)
    )
    assert ours.slices.equals(theirs.slices)
    assert theirs.slices.height == 5
    assert ours.raw_steps.tolist() == theirs.raw_steps.tolist()
    assert check_log(spark, log, jobs=[job]) == check_log(duckdb, log, jobs=[job])
    bad = dataclasses.replace(log, columns=dataclasses.replace(seconds, priority="price"))
    for engine in (spark, duckdb):
        with pytest.raises(DataError, match=r"priority column 'price' .* NaN"):
            check_log(engine, bad)
    (folder / "log.csv").write_text("user,timestamp,campaign\nsecret,5\n")
    with pytest.raises(DataError, match="Spark cannot read"):
        check_log(spark, log)
    assert "secret" not in "".join(capfd.readouterr())


@pytest.mark.usefixtures("plans_once")
def test_ids_of_unlike_types_leave_no_trace(spark, tmp_path, capfd) -> None:
    pl.DataFrame({"user": ["secret", "2026-01-01"], "timestamp": [1, 1]}).write_parquet(
        tmp_path / "i.parquet"
    )
    pl.DataFrame({"user": [datetime.date(2026, 1, 1)], "timestamp": [2]}).write_parquet(
        tmp_path / "c.parquet"
    )
    log = AdLog(
        impressions=FileTable(paths=(tmp_path / "i.parquet",)),
        conversions=FileTable(paths=(tmp_path / "c.parquet",)),
    )
    job = job_of(bounds=Bounds(max_per_slice=1.0, max_slices_per_unit=1))
    (found,) = slice_totals(
        spark,
        log,
        Attribution(rule=LastTouch(), lookback_seconds=9),
        [job],
        unit=Unit.user(),
        salt=SALT,
    )
    assert found.raw_steps.tolist() == [[1]]
    assert "secret" not in "".join(capfd.readouterr())


def test_paths_that_spark_takes_for_patterns_are_refused(spark, tmp_path) -> None:
    with pytest.raises(DataError, match="for a pattern"):
        spark.column_types(FileTable(paths=(tmp_path / "log[1].csv",)))


def test_spark_names_what_it_cannot_read(spark, tmp_path) -> None:
    with pytest.raises(DataError, match=r"none\.parquet"):
        spark.column_types(FileTable(paths=(tmp_path / "none.parquet",)))
    with pytest.raises(ConfigError, match="DuckDB database"):
        spark.column_types(DatabaseTable(table="x", database=tmp_path / "log.db"))
    with pytest.raises(DataError, match="'unknown'"):
        spark.column_types(DatabaseTable(table="unknown"))


def test_a_machine_without_java_is_told_so(monkeypatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match="Java 17"):
        SparkEngine("local[2]")
