"""Files that are damaged, or that may only be read."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tulle.accounting import ledger_file
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.errors import BudgetExceededError, ConfigError, RunStateError, TulleError
from tulle.privacy.events import Composed, EpsilonDelta, Laplace, Repeated
from tulle.privacy.units import Adjacency, Unit

AT = datetime(2026, 1, 14, tzinfo=UTC)
DAY = timedelta(days=1)
SMALL = EpsilonDelta(epsilon=0.015625)


def make_ledger(path: Path) -> Ledger:
    """Budgets with and without windows and purposes; spends open, released and failed."""
    ledger = Ledger.create(path)
    for name, days, purpose in (("week", 7, "measure"), ("all", None, None), ("own", None, "fit")):
        ledger.create_budget(
            Budget(
                name=name,
                unit=Unit.user(days=days),
                adjacency=Adjacency.REPLACE,
                epsilon=4.0,
                delta=0.0,
                purpose=purpose,
            )
        )
    measured = (SMALL, Laplace(noise_multiplier=40), Composed((Repeated(event=SMALL, count=3),)))
    for day, event in enumerate(measured):
        until = AT + (day + 1) * DAY
        note = f"counts of day é{day}"
        with ledger.spend(
            event, purpose="measure", unit=Unit.user(), note=note, at=AT + day * DAY, until=until
        ):
            pass
    ledger.spend(SMALL, purpose="fit", note="running")
    ledger.spend(SMALL, purpose="fit", note="model").mark_released(released_as="sha256:abc")
    with pytest.raises(ZeroDivisionError), ledger.spend(SMALL, purpose="fit"):
        1 / 0  # noqa: B018
    return ledger


def uses_of(path: Path) -> Iterator[Callable[[], object]]:
    """Every way to read a ledger, then every way to write it."""
    for ledger in (Ledger(path=path), Ledger(path=path, is_read_only=True)):
        yield ledger.budgets
        for name in ("week", "all", "own"):
            yield lambda ledger=ledger, name=name: ledger.state(name, AT)
            yield lambda ledger=ledger, name=name: ledger.spends(name)
        yield lambda ledger=ledger: ledger.spends("week", 2923)
        yield lambda ledger=ledger: ledger.check(
            SMALL, purpose="measure", unit=Unit.user(), at=AT, until=AT + 9 * DAY
        )
        yield lambda ledger=ledger: ledger.reopen(4, note="running")
    yield lambda: Ledger.open(path)
    yield lambda: Ledger.open_to_read(path)
    yield lambda: Ledger(path=path).spend(SMALL, purpose="measure", unit=Unit.user(), at=AT)
    yield lambda: Ledger(path=path).create_budget(
        Budget(name="new", unit=Unit.user(), adjacency=Adjacency.REPLACE, epsilon=1.0, delta=0.0)
    )


def test_a_flipped_bit_ends_in_no_other_error_than_ours(tmp_path: Path) -> None:
    """Empty space is left out: a bit that flips there changes nothing."""
    whole = make_ledger(tmp_path / "whole.db").path.read_bytes()
    used = [position for position, byte in enumerate(whole) if byte]
    path = tmp_path / "ledger.db"
    messages: list[str] = []
    rng = random.Random(7)  # noqa: S311
    for _ in range(150):
        content = bytearray(whole)
        content[rng.choice(used)] ^= 1 << rng.randrange(8)
        for left in tmp_path.glob("ledger.db*"):
            left.unlink()
        path.write_bytes(content)
        make_old(path)
        for use in uses_of(path):
            try:
                use()
            except RunStateError as error:
                messages.append(str(error))
            except TulleError:  # e.g. a budget whose name is another now
                pass
    assert len(messages) > 150
    ways_out = ("backup", "upgrade tulle", "give the path of a ledger")
    assert [m for m in messages if not any(way in m for way in ways_out)] == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE spends SET event = CAST(x'ff' || event AS TEXT)",
        "UPDATE spends SET event = CAST(event AS BLOB)",
        "UPDATE spends SET first_micros = 'soon', last_micros = 'later' WHERE id = 1",
        "UPDATE spends SET first_micros = 1.5, last_micros = 2.5 WHERE id = 1",
        "UPDATE spends SET first_micros = last_micros + 99 * 86400000000 WHERE id = 1",
        "UPDATE spends SET last_micros = NULL WHERE id = 1",
        "UPDATE spends SET status = NULL",
        "UPDATE budgets SET unit = 7",
        "UPDATE budgets SET adjacency = x'00'",
        "UPDATE budgets SET epsilon = 'much'",
        "UPDATE budgets SET name = CAST(x'fe' AS TEXT) WHERE name = 'own'",
    ],
)
def test_a_value_of_a_wrong_type_is_damage_never_counted_as_nothing(
    damage: str, tmp_path: Path
) -> None:
    path = make_ledger(tmp_path / "ledger.db").path
    with_free_tables(path, damage)
    for ledger in (Ledger(path=path), Ledger(path=path, is_read_only=True)):
        with pytest.raises(RunStateError, match=r"^ledger\.db .*[Rr]estore .* backup"):
            ledger.check(SMALL, purpose="measure", unit=Unit.user(), at=AT, until=AT + 9 * DAY)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE spends SET recorded_at = '2026-01-41'",
        "UPDATE spends SET finished_at = 7",
        "UPDATE spends SET status = 'opened'",
        "UPDATE spends SET note = x'00'",
        "UPDATE spends SET unit = 'userr'",
        "UPDATE spends SET released_as = x'00'",
    ],
)
def test_a_line_that_nobody_wrote_is_damage(damage: str, tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.db").path
    with_free_tables(path, damage)
    with pytest.raises(RunStateError, match=r"^ledger\.db .*[Rr]estore .* backup"):
        Ledger(path=path).spends("all")


def with_free_tables(path: Path, damage: str) -> None:
    """Writes what the tables themselves would refuse, as a flipped bit can."""
    connection = sqlite3.connect(path, isolation_level=None)
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')")
    connection.execute("PRAGMA writable_schema = OFF")
    connection.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute(damage)
    connection.close()
    make_old(path)


def make_old(path: Path) -> None:
    """A ledger that was written long ago can be copied at once."""
    os.utime(path, (0, 0))


def test_a_ledger_opened_to_read_answers_as_the_other_and_leaves_no_trace(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    ledger = make_ledger(folder / "ledger.db")
    right = [ledger.state(name, AT) for name in ("week", "all", "own")], ledger.spends("all")
    before = ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns, os.listdir(folder)
    read = Ledger.open_to_read(ledger.path)
    assert ([read.state(name, AT) for name in ("week", "all", "own")], read.spends("all")) == right
    assert read.budgets() == ledger.budgets()
    assert (ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns, os.listdir(folder)) == before


def test_every_connection_of_a_ledger_opened_to_read_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_ledger(tmp_path / "ledger.db").path
    make_old(path)
    targets: list[str] = []
    connect = sqlite3.connect

    def listed_connect(target: str, **settings: object) -> sqlite3.Connection:
        targets.append(target)
        return connect(target, **settings)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", listed_connect)
    Ledger.open_to_read(path).check(SMALL, purpose="measure", unit=Unit.user(), at=AT)
    on_disk = [target for target in targets if target != ":memory:"]
    assert set(on_disk) == {f"{path.as_uri()}?mode=ro&immutable=1"}
    with ledger_file.reading_a_copy(path, 1.0) as copy, pytest.raises(sqlite3.OperationalError):
        copy.execute("UPDATE spends SET note = ''")


def test_a_ledger_opened_to_read_spends_nothing(tmp_path: Path) -> None:
    read = Ledger.open_to_read(make_ledger(tmp_path / "ledger.db").path)
    with pytest.raises(ConfigError, match=r"is_read_only=True.*Ledger\.open\(\)"):
        read.spend(SMALL, purpose="fit")
    with pytest.raises(BudgetExceededError):
        read.check(EpsilonDelta(epsilon=9.0), purpose="fit")


def test_a_spend_made_while_the_ledger_is_copied_makes_the_copy_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied before and after it could be of two states."""
    ledger = make_ledger(tmp_path / "ledger.db")
    make_old(ledger.path)
    is_unchanged = ledger_file._is_unchanged
    answers: list[bool] = []

    def after_a_spend(path: Path, before: os.stat_result) -> bool:
        if not answers:
            ledger.spend(SMALL, purpose="fit", note="meanwhile")
        answers.append(is_unchanged(path, before))
        return answers[-1]

    monkeypatch.setattr(ledger_file, "_is_unchanged", after_a_spend)
    notes = [
        spend.request.note for spend in Ledger(path=ledger.path, is_read_only=True).spends("own")
    ]
    assert answers == [False, True]
    assert notes[-1] == "meanwhile"


@pytest.fixture
def unfinished(tmp_path: Path) -> Iterator[Path]:
    """A ledger whose last spend is in the log only, as a crash or a writer at work leaves it."""
    path = make_ledger(tmp_path / "ledger.db").path
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(
        "INSERT INTO spends (event, purpose, status, recorded_at) SELECT event, purpose, status, "
        "recorded_at FROM spends WHERE id = 4"
    )
    yield path
    connection.close()


def test_a_spend_that_is_in_the_log_only_is_read_beside_a_writer(unfinished: Path) -> None:
    files = sorted(os.listdir(unfinished.parent))
    assert Ledger.open_to_read(unfinished).state("own").num_spends == 4
    assert sorted(os.listdir(unfinished.parent)) == files


def test_a_spend_that_a_crash_left_in_the_log_is_read(unfinished: Path, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{unfinished}{suffix}", crashed)
    before = [(crashed / f"ledger.db{suffix}").read_bytes() for suffix in ("", "-wal")]
    assert Ledger.open_to_read(crashed / "ledger.db").state("own").num_spends == 4
    assert [(crashed / f"ledger.db{suffix}").read_bytes() for suffix in ("", "-wal")] == before


def test_a_ledger_that_others_keep_locked_is_named_after_the_wait(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.db").path
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("PRAGMA wal_autocheckpoint = 0")
    holder.execute("UPDATE spends SET status = 'failed' WHERE id = 4")
    (tmp_path / "ledger.db-shm").touch()
    with pytest.raises(RunStateError, match=r"ledger\.db was in use .*busy_timeout_s=0\.05.*again"):
        Ledger.open_to_read(path, busy_timeout_s=0.05)
    holder.close()


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
    assert run_sql(path, "PRAGMA user_version") == [(ledger_file.SCHEMA_VERSION,)]
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
    broken = (*ledger_file._TO_VERSION_2, "CREATE TABLE budgets (twice INTEGER)")
    monkeypatch.setattr(ledger_file, "_STEPS", (ledger_file._TO_VERSION_1, broken))
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
