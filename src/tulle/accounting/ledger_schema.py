"""The tables of a ledger, and the steps that bring an older ledger up to date.

A step, once shipped, never changes: a new version appends one. Tables are plain
columns; events are stable JSON, units and adjacencies the words users write,
clock times ISO 8601 in UTC, and times of data microseconds since 1970 in UTC.
"""

import sqlite3

from tulle.errors import RunStateError

APPLICATION_ID = 0x74756C6C
"""The letters "tull" in the file header: what tells a ledger from any other SQLite file."""

_TO_VERSION_1 = (
    """
    CREATE TABLE budgets (
        name TEXT NOT NULL PRIMARY KEY,
        unit TEXT NOT NULL,
        adjacency TEXT NOT NULL,
        epsilon REAL NOT NULL CHECK (epsilon > 0),
        delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
        purpose TEXT,
        created_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE spends (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        event TEXT NOT NULL,
        purpose TEXT NOT NULL,
        first_micros INTEGER,
        last_micros INTEGER,
        status TEXT NOT NULL CHECK (status IN ('open', 'released', 'failed')),
        recorded_at TEXT NOT NULL,
        CHECK ((first_micros IS NULL) = (last_micros IS NULL))
    )
    """,
    "CREATE INDEX spends_by_time ON spends (last_micros)",
)

_TO_VERSION_2 = (
    "ALTER TABLE spends ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE spends ADD COLUMN unit TEXT",
    "ALTER TABLE spends ADD COLUMN finished_at TEXT",
    """
    CREATE TRIGGER budgets_never_change BEFORE UPDATE ON budgets
    BEGIN SELECT RAISE(ABORT, 'a budget cannot be changed'); END
    """,
    """
    CREATE TRIGGER budgets_stay BEFORE DELETE ON budgets
    BEGIN SELECT RAISE(ABORT, 'a budget cannot be deleted'); END
    """,
    """
    CREATE TRIGGER spends_stay BEFORE DELETE ON spends
    BEGIN SELECT RAISE(ABORT, 'a spend cannot be deleted'); END
    """,
    """
    CREATE TRIGGER spends_only_finish
    BEFORE UPDATE OF id, event, purpose, first_micros, last_micros, recorded_at, note, unit
    ON spends
    BEGIN SELECT RAISE(ABORT, 'a spend cannot be changed'); END
    """,
)

_TO_VERSION_3 = (
    "ALTER TABLE spends ADD COLUMN released_as TEXT",
    """
    CREATE TRIGGER released_as_once BEFORE UPDATE OF released_as ON spends
    WHEN OLD.status <> 'open'
    BEGIN SELECT RAISE(ABORT, 'what a spend released cannot be changed'); END
    """,
)

_STEPS = (_TO_VERSION_1, _TO_VERSION_2, _TO_VERSION_3)
SCHEMA_VERSION = len(_STEPS)


def stored_version(connection: sqlite3.Connection, file_name: str) -> int:
    """The version of an existing ledger. Refuses what is none, or from a newer tulle."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID or version < 1:
        raise RunStateError(
            f"{file_name} is a SQLite file but not a tulle ledger; give the path of a ledger, "
            "or of a file that does not exist yet to create one."
        )
    if version > SCHEMA_VERSION:
        raise RunStateError(
            f"{file_name} is a ledger of version {version}, this tulle reads up to version "
            f"{SCHEMA_VERSION}; upgrade tulle."
        )
    return int(version)


def lay_out(connection: sqlite3.Connection) -> None:
    """Makes an empty SQLite file a ledger. Call it inside a transaction."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _run_steps(connection, first=0)


def bring_up_to_date(connection: sqlite3.Connection, file_name: str) -> None:
    """Runs the steps that an older ledger lacks. Call it inside a transaction."""
    _run_steps(connection, first=stored_version(connection, file_name))


def _run_steps(connection: sqlite3.Connection, *, first: int) -> None:
    for step in _STEPS[first:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
