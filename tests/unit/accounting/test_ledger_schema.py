import sqlite3
from pathlib import Path

import pytest

from tulle.accounting import ledger_schema
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.errors import BudgetExceededError, RunStateError
from tulle.privacy.events import EpsilonDelta, Laplace
from tulle.privacy.units import Adjacency, Unit

# A ledger as the first version wrote it. Never edit: such files exist.
VERSION_1 = """
PRAGMA application_id = 1953852524;
PRAGMA user_version = 1;
CREATE TABLE budgets (
    name TEXT NOT NULL PRIMARY KEY,
    unit TEXT NOT NULL,
    adjacency TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
    purpose TEXT,
    created_at TEXT NOT NULL
);
CREATE TABLE spends (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event TEXT NOT NULL,
    purpose TEXT NOT NULL,
    first_micros INTEGER,
    last_micros INTEGER,
    status TEXT NOT NULL CHECK (status IN ('open', 'released', 'failed')),
    recorded_at TEXT NOT NULL,
    CHECK ((first_micros IS NULL) = (last_micros IS NULL))
);
CREATE INDEX spends_by_time ON spends (last_micros);
INSERT INTO budgets VALUES
    ('ads', 'user', 'add-remove', 1.0, 0.0, NULL, '2026-01-01T00:00:00.000000+00:00');
INSERT INTO spends VALUES
    (1, '{"kind":"EpsilonDelta","delta":0.0,"epsilon":0.5}', 'counts', NULL, NULL, 'released',
     '2026-01-02T00:00:00.000000+00:00'),
    (2, '{"kind":"Laplace","noise_multiplier":4.0,"replace_factor":2.0}', 'counts', NULL, NULL,
     'open', '2026-01-03T00:00:00.000000+00:00');
"""


def write_database(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = WAL;" + script)
    connection.close()
    return path


def run_sql(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def test_a_ledger_of_version_1_opens_with_all_it_holds(tmp_path: Path) -> None:
    path = write_database(tmp_path / "old.db", VERSION_1)
    ledger = Ledger.open(path)
    assert run_sql(path, "PRAGMA user_version") == [(ledger_schema.SCHEMA_VERSION,)]
    assert ledger.budget("ads").epsilon == 1.0
    assert [spend.request.event for spend in ledger.spends("ads")] == [
        EpsilonDelta(epsilon=0.5),
        Laplace(noise_multiplier=4.0),
    ]
    assert ledger.state("ads").left_epsilon == 0.25
    with ledger.spend(EpsilonDelta(epsilon=0.25), purpose="counts", note="new"):
        pass
    with pytest.raises(BudgetExceededError):
        ledger.spend(EpsilonDelta(epsilon=0.01), purpose="counts")


def test_an_old_ledger_and_a_new_one_have_the_same_tables(tmp_path: Path) -> None:
    old = write_database(tmp_path / "old.db", VERSION_1)
    Ledger.open(old)
    Ledger.create(tmp_path / "new.db")
    columns = "SELECT name, type FROM pragma_table_info('spends')"
    objects = "SELECT type, name FROM sqlite_master ORDER BY name"
    for query in (columns, objects):
        assert run_sql(old, query) == run_sql(tmp_path / "new.db", query)


def test_a_migration_that_fails_leaves_the_old_ledger_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_database(tmp_path / "old.db", VERSION_1)
    before = run_sql(path, "SELECT * FROM sqlite_master")
    broken = (*ledger_schema._TO_VERSION_2, "CREATE TABLE budgets (twice INTEGER)")
    monkeypatch.setattr(ledger_schema, "_STEPS", (ledger_schema._TO_VERSION_1, broken))
    with pytest.raises(RunStateError, match=r"old\.db"):
        Ledger.open(path)
    assert run_sql(path, "SELECT * FROM sqlite_master") == before
    assert run_sql(path, "PRAGMA user_version") == [(1,)]
    monkeypatch.undo()
    assert Ledger.open(path).state("ads").num_spends == 2


def test_an_old_ledger_must_be_opened_before_it_is_used(tmp_path: Path) -> None:
    path = write_database(tmp_path / "old.db", VERSION_1)
    with pytest.raises(RunStateError, match=r"Ledger\.open"):
        Ledger(path=path).budgets()


def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    run_sql(ledger.path, "PRAGMA user_version = 99")
    for use in (lambda: Ledger.open(ledger.path), ledger.budgets):
        with pytest.raises(RunStateError, match=r"ledger\.db is .* version 99.*upgrade tulle"):
            use()
    assert run_sql(ledger.path, "PRAGMA user_version") == [(99,)]


@pytest.mark.parametrize(
    "script",
    ["CREATE TABLE t (x);", "PRAGMA application_id = 7; PRAGMA user_version = 1;"],
)
def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path, script: str) -> None:
    path = write_database(tmp_path / "other.db", script)
    before = path.read_bytes()
    with pytest.raises(RunStateError, match=r"other\.db is a SQLite file but not a tulle ledger"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_an_unknown_event_in_a_ledger_is_named_never_skipped(tmp_path: Path) -> None:
    event = '{"kind":"Telepathy","epsilon":0.1}'
    script = VERSION_1.replace('{"kind":"EpsilonDelta","delta":0.0,"epsilon":0.5}', event)
    ledger = Ledger.open(write_database(tmp_path / "ledger.db", script))
    for use in (
        lambda: ledger.state("ads"),
        lambda: ledger.spends("ads"),
        lambda: ledger.spend(EpsilonDelta(epsilon=0.1), purpose="counts"),
    ):
        with pytest.raises(RunStateError, match=r"ledger\.db holds a spend.*'Telepathy'"):
            use()
    assert run_sql(ledger.path, "SELECT count(*) FROM spends") == [(2,)]


def test_a_budget_that_cannot_be_read_is_named_never_skipped(tmp_path: Path) -> None:
    script = VERSION_1.replace("'add-remove'", "'telepathic'")
    ledger = Ledger.open(write_database(tmp_path / "ledger.db", script))
    with pytest.raises(RunStateError, match=r"ledger\.db holds a budget.*'telepathic'"):
        ledger.spend(EpsilonDelta(epsilon=0.1), purpose="counts")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE budgets SET epsilon = 100",
        "DELETE FROM budgets",
        "DELETE FROM spends",
        "UPDATE spends SET event = '{}'",
        "UPDATE spends SET purpose = 'other'",
        "UPDATE spends SET first_micros = 0, last_micros = 0",
    ],
)
def test_the_books_cannot_be_rewritten_by_accident(tmp_path: Path, statement: str) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.create_budget(
        Budget(name="ads", unit=Unit.user(), adjacency=Adjacency.REPLACE, epsilon=1.0, delta=0.0)
    )
    ledger.spend(EpsilonDelta(epsilon=0.5), purpose="counts")
    with pytest.raises(sqlite3.IntegrityError, match="cannot be"):
        run_sql(ledger.path, statement)
