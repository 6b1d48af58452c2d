"""DuckDB reaches the files of the log and nothing else, and leaves no rows behind."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tulle.errors import DataError
from tulle.measure.ad_log import DatabaseTable, FileTable
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.engine import Program, Step

ROWS = 1_500_000


def rows_of(engine: DuckDBEngine, source: DatabaseTable | FileTable) -> list[tuple[object, ...]]:
    program = Program(
        tables={"given": source},
        steps=(Step("all_rows", "SELECT * FROM given"),),
        outputs=("all_rows",),
    )
    (columns,) = engine.run(program)
    return sorted(zip(*(column.tolist() for column in columns.values()), strict=True))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A table, and views of every kind over a file beside the database."""
    other = tmp_path / "other.csv"
    other.write_text("user,timestamp\n1,2\n")
    with duckdb.connect(str(tmp_path / "log.db")) as connection:
        connection.execute("CREATE TABLE log AS SELECT 1 AS user, 2 AS timestamp")
        connection.execute(f"CREATE VIEW of_file AS FROM read_csv('{other}')")
        connection.execute("CREATE VIEW of_view AS FROM of_file")
        connection.execute(f"CREATE MACRO reads() AS TABLE FROM read_csv('{other}')")
        connection.execute("CREATE VIEW of_macro AS FROM reads()")
        connection.execute("CREATE VIEW of_table AS FROM log")
        connection.execute("CREATE SCHEMA apart")
        connection.execute("CREATE VIEW apart.log AS FROM of_file")
    return tmp_path / "log.db"


@pytest.mark.parametrize(
    "view", ["of_file", "OF_FILE", "of_view", "of_macro", "of_table", "apart.log"]
)
def test_a_view_is_refused_and_the_way_out_leads_to_a_table(database: Path, view: str) -> None:
    source = DatabaseTable(table=view, database=database)
    message = rf"'{view}' of .*log\.db is a view.*CREATE TABLE t AS FROM v"
    with DuckDBEngine(num_threads=1) as engine:
        with pytest.raises(DataError, match=message):
            engine.column_types(source)
        with pytest.raises(DataError, match=message):
            rows_of(engine, source)
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE TABLE made AS FROM {view}")
    with DuckDBEngine(num_threads=1) as engine:
        assert rows_of(engine, DatabaseTable(table="made", database=database)) == [(1, 2)]


def test_a_table_with_the_name_of_a_view_elsewhere_is_read(
    engine: DuckDBEngine, database: Path
) -> None:
    assert rows_of(engine, DatabaseTable(table="log", database=database)) == [(1, 2)]
    assert rows_of(engine, DatabaseTable(table="main.log", database=database)) == [(1, 2)]


def test_defaults_and_columns_that_follow_from_others_are_read(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    with duckdb.connect(str(tmp_path / "log.db")) as connection:
        connection.execute(
            "CREATE TABLE log (user INT, shop INT DEFAULT 7, twice INT AS (2 * user))"
        )
        connection.execute("INSERT INTO log (user) VALUES (4)")
    assert rows_of(engine, DatabaseTable(table="log", database=tmp_path / "log.db")) == [(4, 7, 8)]


def test_changes_that_are_not_in_the_database_file_yet_are_read(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    with duckdb.connect(str(tmp_path / "log.db")) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("CREATE TABLE log AS SELECT 5 AS user")
    assert (tmp_path / "log.db.wal").exists()
    assert rows_of(engine, DatabaseTable(table="log", database=tmp_path / "log.db")) == [(5,)]


@pytest.mark.parametrize("name", ["log.csv", "l[o]g*'?.csv", "a folder/log.csv"])
@pytest.mark.parametrize("form", ["absolute", "relative", "link"])
def test_a_file_of_the_log_is_read_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("user\n3\n")
    (tmp_path / "log.csv2").write_text("user\n3\n")
    if form == "relative":
        path = Path(name)
    if form == "link":
        path = tmp_path / "link.csv"
        path.symlink_to(tmp_path / name)
    source = FileTable(paths=(path,))
    with DuckDBEngine(num_threads=1) as engine:
        assert rows_of(engine, source) == [("3",)]
        step = Step("stolen", "SELECT * FROM read_csv('log.csv2')")
        stealing = Program(tables={"given": source}, steps=(step,), outputs=("stolen",))
        with pytest.raises(DataError, match="PermissionException"):
            engine.run(stealing)


@pytest.mark.parametrize(
    "statement",
    [
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_paths = ['/']",
        "SET autoload_known_extensions = true",
        "SET lock_configuration = false",
        "COPY (SELECT 1) TO 'out.parquet'",
        "ATTACH 'out.db'",
        "FROM 'other.csv'",
    ],
)
def test_nothing_is_loaded_opened_or_set_anew(
    database: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.chdir(database.parent)
    source = DatabaseTable(table="log", database=database)
    with DuckDBEngine(num_threads=1) as engine:
        for _ in range(2):  # before and after it knows a database
            with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException)):
                engine._connection.execute(statement)
            assert rows_of(engine, source) == [(1, 2)]
        query = "SELECT name FROM duckdb_settings() WHERE value = 'true'"
        granted = {row[0] for row in engine._connection.execute(query).fetchall()}
        assert "lock_configuration" in granted
        assert not granted & {
            "autoinstall_known_extensions",
            "autoload_known_extensions",
            "allow_community_extensions",
            "allow_persistent_secrets",
            "enable_external_access",
            "python_enable_replacements",
        }
    assert not list(database.parent.glob("out.*"))


@pytest.mark.parametrize("is_own", [True, False], ids=["own folder", "a given folder"])
def test_rows_beyond_the_memory_spill_to_disk(tmp_path: Path, is_own: bool) -> None:
    path = tmp_path / "log.parquet"
    pl.DataFrame({"user": range(ROWS)}).write_parquet(path)
    # Over 60 MB of texts, all of which must be kept to find those that come again.
    texts = "SELECT CAST(user AS VARCHAR) || REPEAT('-', 40) AS text FROM given"
    counts = "SELECT text, COUNT(*) AS times FROM texts GROUP BY text"
    total = "SELECT COUNT(*) AS texts, MAX(times) AS times FROM counts"
    program = Program(
        tables={"given": FileTable(paths=(path,))},
        steps=(Step("texts", texts), Step("counts", counts), Step("total", total)),
        outputs=("total",),
    )
    (tmp_path / "spill").mkdir()
    folder = None if is_own else tmp_path / "spill"
    with DuckDBEngine(memory_limit="40MB", num_threads=1, spill_folder=folder) as engine:
        (found,) = engine.run(program)
    assert (found["texts"].tolist(), found["times"].tolist()) == ([ROWS], [1])
    assert not list((tmp_path / "spill").iterdir())


HOLDING = textwrap.dedent("""
    import os, sys
    os.getpid = lambda: int(sys.argv[1])
    from tulle.measure.engines.duckdb_engine import DuckDBEngine
    with DuckDBEngine(num_threads=1) as engine:
        print(engine._settings["temp_directory"], flush=True)
        input()
""")


def test_rows_of_killed_processes_are_removed_and_those_of_running_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    def held() -> tuple[subprocess.Popen[str], Path]:
        """An engine of a process whose id means nothing here, as in another container."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDING, str(ended.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            text=True,
        )
        folder = Path(process.stdout.readline().strip())
        (folder / "rows").write_text("secret")
        return process, folder

    (killed, left), (running, kept) = held(), held()
    try:
        killed.kill()
        killed.communicate()
        with DuckDBEngine(num_threads=1):
            assert not left.exists()
            assert (kept / "rows").exists()
    finally:
        running.communicate("\n")
    assert list(tmp_path.iterdir()) == []
