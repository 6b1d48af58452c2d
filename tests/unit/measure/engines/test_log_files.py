"""Files are read as they are: no row, folder or name of a file changes how others are read."""

import gzip
import itertools
import subprocess
import sys
import textwrap
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import (
    AdLog,
    DatabaseTable,
    FileTable,
    FrameTable,
    LogColumns,
    Side,
    TableSource,
)
from tulle.measure.attribution.rules import Attribution, LastTouch
from tulle.measure.engines.credit_tables import credit_rows
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.emitted_sql import check_result_names
from tulle.measure.engines.log_checks import check_log
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import Amount, Bounds, SliceColumn, Subject
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import SALT, job_of
from waiting import HANG_S

CAMPAIGN = SliceColumn(name="campaign", side=Side.IMPRESSION, column="campaign")
DAY = SliceColumn(name="day", side=Side.IMPRESSION, column="timestamp", is_day=True)
BOUNDS = Bounds(max_per_slice=1.0, max_slices_per_unit=1)
HEADER = "user,timestamp,campaign\n"
ATTRIBUTION = Attribution(rule=LastTouch(), lookback_seconds=1000)
SECONDS = LogColumns(kinds={"timestamp": "timestamp"})


def counted(engine: DuckDBEngine, source: TableSource, *slices: SliceColumn) -> dict[str, int]:
    """Users of each slice."""
    log = AdLog(impressions=source, conversions=None, columns=SECONDS)
    job = job_of(*slices, subject=Subject.IMPRESSIONS, bounds=BOUNDS)
    check_log(engine, log, jobs=[job])
    (result,) = slice_totals(engine, log, None, [job], unit=Unit.user(), salt=SALT)
    keys = [" ".join(row) for row in result.slices.iter_rows()] if slices else [""]
    return dict(zip(keys, result.raw_steps[:, 0].tolist(), strict=True))


def csv_file(folder: Path, text: str, name: str = "log.csv") -> FileTable:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return FileTable(paths=(path,))


@pytest.mark.parametrize(
    "value", ["01", "1.10", "True", "+7", "2026-1-4", " 7", "1e3", "NULL", "'a'"]
)
@pytest.mark.parametrize("other", ["x", '"p,q"', "7"])
def test_one_row_does_not_change_what_others_are_read_as(
    engine: DuckDBEngine, tmp_path: Path, value: str, other: str
) -> None:
    rows = HEADER + "".join(f"u{number},1700000000,{value}\n" for number in range(50))
    before = counted(engine, csv_file(tmp_path, rows), CAMPAIGN)
    after = counted(engine, csv_file(tmp_path, f"{rows}new,1700000000,{other}\n"), CAMPAIGN)
    assert before == {value: 50}
    assert after == before | {other.strip('"'): 1}


@pytest.mark.parametrize(("one", "two"), [("7", "07"), ("7.", "7.0"), ("7e3", "70e2")])
@pytest.mark.parametrize("extra", ["", "new,5,a\n"])
def test_ids_are_texts(
    engine: DuckDBEngine, tmp_path: Path, one: str, two: str, extra: str
) -> None:
    rows = f"{HEADER}{one},5,a\n{two},5,a\n{extra}"
    assert counted(engine, csv_file(tmp_path, rows)) == {"": 2 + bool(extra)}


def test_times_are_read_row_by_row(engine: DuckDBEngine, tmp_path: Path) -> None:
    times = ["1768433400", "2026-01-14", "2026-01-14 23:30:00", "2026-01-15T00:30:00+01:00"]
    rows = HEADER + "".join(f"u{number},{time},a\n" for number, time in enumerate(times))
    assert counted(engine, csv_file(tmp_path, rows), DAY) == {"2026-01-14": 4}


def test_rows_with_quotes_and_tabs_and_packed_files_are_read(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    text = 'user,timestamp,campaign\r\na,1,"x ""y"",z"\r\nb,1,\r\n'
    for name in ("log.csv", "log.csv.gz"):
        found = counted(engine, csv_file(tmp_path, text, name), CAMPAIGN)
        assert found == {'x "y",z': 1, "(null)": 1}
    # In a file with tabs a quote is only text, as for every other reader of it.
    text = 'user\ttimestamp\tcampaign\r\na\t1\tx "y\r\nb\t1\t\r\n'
    for name in ("log.tsv", "log.tsv.gz"):
        found = counted(engine, csv_file(tmp_path, text, name), CAMPAIGN)
        assert found == {'x "y': 1, "(null)": 1}


def test_objects_of_pandas_are_of_one_type_or_refused(engine: DuckDBEngine) -> None:
    """Else one row would change what the others are compared by."""
    for values, expected in (
        ([True, None, False], {"true": 1, "(null)": 1, "false": 1}),
        (["x", None, "1"], {"x": 1, "(null)": 1, "1": 1}),
        ([1.5, 1, 2], {"1.5": 1, "1": 1, "2": 1}),
        ([True, 1, 1.5], None),
        ([1, 1.5, "x"], None),
    ):
        frame = pd.DataFrame({"user": range(3), "timestamp": 1})
        frame["campaign"] = pd.Series(values, dtype=object)
        if expected is not None:
            assert counted(engine, FrameTable(frame=frame), CAMPAIGN) == expected
            continue
        with pytest.raises(DataError, match="'campaign' of the pandas table has values of several"):
            counted(engine, FrameTable(frame=frame), CAMPAIGN)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_names_of_folders_are_no_columns(engine: DuckDBEngine, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "user=zz"
    folder.mkdir()
    frame = pl.DataFrame({"user": ["a", "b", "c"], "timestamp": 1})
    getattr(frame, f"write_{kind}")(folder / f"log.{kind}")
    assert counted(engine, FileTable(paths=(folder / f"log.{kind}",))) == {"": 3}


@pytest.mark.parametrize("name", ["log[1]", "log?", "lo*"])
def test_paths_are_no_patterns(engine: DuckDBEngine, tmp_path: Path, name: str) -> None:
    csv_file(tmp_path, HEADER + "a,1,x\nb,1,x\n", "log1.csv")
    source = csv_file(tmp_path, HEADER + "a,1,x\n", f"{name}.csv")
    assert counted(engine, source) == {"": 1}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a.csv": ""}, "must start with a header"),
        ({"a.csv": HEADER}, "no rows"),
        ({"a.csv": HEADER + "u,1\n"}, "a row has other columns than the header"),
        ({"a.csv": HEADER + "u,1,secret,5\n"}, "a row has other columns than the header"),
        ({"a.csv": "user,User,timestamp\n1,2,3\n"}, "a name twice"),
        ({"a.csv": HEADER + "u,1,a\n", "b.csv": "user,timestamp\nu,1\n"}, "another header line"),
        ({"a.csv": HEADER + "u,1,a\n", "b.tsv": "user\ttimestamp\nu\t1\n"}, "one kind of file"),
        (
            {"a.csv": HEADER + "u,1,a\n", "b.csv": HEADER.replace(",", ";") + "u;1;a\n"},
            "b.csv separates its columns otherwise than a.csv",
        ),
        ({"a.parquet": "secret"}, "is Parquet by its name and plain text by its content"),
    ],
)
def test_what_is_wrong_with_files_is_said(engine, tmp_path, texts, message) -> None:
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    source = FileTable(paths=tuple(tmp_path / name for name in texts))
    with pytest.raises(DataError, match=message) as caught:
        check_log(engine, AdLog(impressions=source, conversions=None))
    assert "secret" not in str(caught.value)


def test_a_parquet_file_that_lacks_a_column_is_refused(engine, tmp_path) -> None:
    frame = pl.DataFrame({"user": ["a"], "timestamp": [1], "campaign": ["x"]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.drop("timestamp").write_parquet(tmp_path / "b.parquet")
    source = FileTable(paths=(tmp_path / "a.parquet", tmp_path / "b.parquet"))
    with pytest.raises(DataError, match="one of its files lacks a column"):
        check_log(engine, AdLog(impressions=source, conversions=None))


def test_a_file_named_twice_is_refused(engine, tmp_path) -> None:
    path = csv_file(tmp_path, HEADER + "u,1,a\n").paths[0]
    source = FileTable(paths=(path, path.parent / "." / path.name))
    with pytest.raises(DataError, match="named twice"):
        engine.column_types(source)


def test_a_copy_of_a_file_is_refused(engine, tmp_path) -> None:
    first = csv_file(tmp_path, HEADER + "u,1,a\n").paths[0]
    copy = csv_file(tmp_path, HEADER + "u,1,a\n", name="copy.csv").paths[0]
    with pytest.raises(DataError, match=r"copy\.csv is a copy of log\.csv"):
        engine.column_types(FileTable(paths=(first, copy)))


def test_what_is_wrong_with_a_database_is_said(engine, tmp_path) -> None:
    (tmp_path / "none.db").write_text("secret" * 5000)
    with pytest.raises(DataError, match="no DuckDB database"):
        engine.column_types(DatabaseTable(table="log", database=tmp_path / "none.db"))
    with duckdb.connect(str(tmp_path / "log.db")):
        pass
    with pytest.raises(DataError, match="no such table"):
        engine.column_types(DatabaseTable(table="log", database=tmp_path / "log.db"))


@pytest.mark.parametrize("kind", ["parquet", "pandas", "polars"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_never_counts_as_the_clip(engine, tmp_path, kind, bad) -> None:
    values = pl.DataFrame({"user": range(700), "timestamp": 2, "value": [1.0, bad] * 350})
    values.write_parquet(tmp_path / "c.parquet")
    source = {
        "parquet": FileTable(paths=(tmp_path / "c.parquet",)),
        "pandas": FrameTable(frame=values.to_pandas()),
        "polars": FrameTable(frame=values),
    }[kind]
    impressions = pl.DataFrame({"user": range(700), "timestamp": 1})
    log = AdLog(impressions=FrameTable(frame=impressions), conversions=source, columns=SECONDS)
    amounts = (Amount(name="value", column="value", clip=1.0),)
    job = job_of(amounts=amounts, bounds=BOUNDS)
    (result,) = slice_totals(engine, log, ATTRIBUTION, [job], unit=Unit.user(), salt=SALT)
    assert result.raw_steps.tolist() == [[350]]
    if kind == "parquet" or str(bad) != "nan":  # In memory NaN is a missing value.
        with pytest.raises(DataError, match="infinite or NaN"):
            check_log(engine, log, jobs=[job])


@pytest.mark.parametrize("names", [("site", "publisher"), ("k", "key0"), ("key1", "key0")])
def test_wanted_slices_may_have_any_names(engine: DuckDBEngine, names: tuple[str, str]) -> None:
    frame = pl.DataFrame({"user": [1, 2, 3], "timestamp": 1, "a": ["x", "x", "y"], "b": "z"})
    slices = tuple(
        SliceColumn(name=name, side=Side.IMPRESSION, column=column)
        for name, column in zip(names, "ab", strict=True)
    )
    keys = pl.DataFrame(list(itertools.product("xy", "zw")), schema=list(names), orient="row")
    log = AdLog(impressions=FrameTable(frame=frame), conversions=None)
    for wanted, expected in ((keys, [2, 0, 1, 0]), (None, [2, 1])):
        job = job_of(*slices, subject=Subject.IMPRESSIONS, bounds=BOUNDS, keys=wanted)
        (result,) = slice_totals(engine, log, None, [job], unit=Unit.user(), salt=SALT)
        assert result.slices.columns == list(names)
        assert result.raw_steps[:, 0].tolist() == expected


def test_results_with_two_columns_of_one_name_are_refused() -> None:
    slices = SliceColumn(name="Num_Units", side=Side.IMPRESSION, column="x")
    with pytest.raises(ConfigError, match="two columns 'Num_Units'"):
        check_result_names([job_of(slices, bounds=BOUNDS)])


def test_a_failed_write_says_so(engine: DuckDBEngine, tmp_path: Path) -> None:
    frame = FrameTable(frame=pl.DataFrame({"user": [1], "timestamp": [1]}))
    log = AdLog(impressions=frame, conversions=frame)
    with pytest.raises(DataError, match="cannot write"):
        credit_rows(engine, log, [ATTRIBUTION], tmp_path / "none" / "rows.parquet")


def test_an_interrupt_within_duckdb_is_an_interrupt() -> None:
    script = textwrap.dedent("""
        import os, signal, threading, time
        from tulle.measure.engines.duckdb_engine import DuckDBEngine
        from tulle.measure.engines.engine import Program, Step
        pairs = "FROM RANGE(10000000) a(x), RANGE(100000) b(x)"
        steps = (Step("long", f"SELECT SUM(a.x * b.x) AS s {pairs}"),)
        with DuckDBEngine(num_threads=1) as engine:
            # Python alone would not spend half a second of this thread's processor time.
            clock = time.pthread_getcpuclockid(threading.main_thread().ident)
            end = time.clock_gettime(clock) + 0.5

            def interrupt_the_query():
                while time.clock_gettime(clock) < end:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt_the_query).start()
            try:
                engine.run(Program(tables={}, steps=steps, outputs=("long",)))
            except KeyboardInterrupt as error:
                print("interrupted", error.__suppress_context__)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert done.stdout == "interrupted True\n"
