"""The file of a ledger: creating it whole, opening it safely, saying what is wrong.

Every operation opens its own connection and closes it, so a ledger can be used
across forks and threads (only do not fork while another thread is in one: SQLite
itself does not survive that). Nothing here opens the file but SQLite: closing another
descriptor of it would drop SQLite's locks (sqlite.org/howtocorrupt.html, 2.2).

Tables are plain columns; events are stable JSON, units and adjacencies the words users
write, clock times ISO 8601 in UTC, and times of data microseconds since 1970 in UTC. A
step that brings an older ledger up to date never changes once shipped: a new version
appends one.
"""

import contextlib
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tulle.atomic_files import sync_folder
from tulle.errors import RunStateError

APPLICATION_ID = 0x74756C6C
"""The letters "tull" in the file header: what tells a ledger from any other SQLite file."""
# The statements are fixed, so what they cannot find or may not write is damage too.
_SIGNS_OF_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
)
# Somebody is at work on the log of the ledger, or has just tidied it away.
_SIGNS_OF_USE = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PROTOCOL,
)
_LONGEST_CLOCK_TICK_NS = 20_000_000
"""Twice the coarsest clock by which kernels date a change of a file (100 ticks a second)."""
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


class UnreadableRowError(Exception):
    """What is wrong with a row of a ledger, in words that follow the name of its file.

    It never leaves a connection of this module: it ends as a RunStateError with that name.
    """


def create_ledger_file(path: Path) -> None:
    """Makes an empty ledger, or nothing: it is built under another name, then linked."""
    if os.path.lexists(path):
        raise RunStateError(
            f"{path.name} exists already; open it as a ledger, or choose another path."
        )
    # SQLite would replay the old log into the new file, with the spends of another ledger.
    if os.path.lexists(_beside(path, "-wal")):
        raise RunStateError(
            f"{path.name}-wal is left of a ledger that is gone; restore that ledger, or choose "
            "another path."
        )
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with _errors_of(path, 0), _closing_connection(draft, mode="rwc") as connection:
            _use_write_ahead_log(connection, path)
            with _transaction(connection, "BEGIN IMMEDIATE"):
                lay_out(connection)
        os.link(draft, path)  # unlike a rename, it refuses an existing target
        sync_folder(path.parent)
    except OSError as error:
        raise RunStateError(
            f"{path.name} cannot be created: {error.strerror}; choose a path in a folder "
            "that exists, can be written and allows hard links."
        ) from error
    finally:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                _beside(draft, suffix).unlink()


def inspect_ledger_file(path: Path, busy_timeout_s: float) -> None:
    """Refuses what is no whole ledger, and brings an older one up to date."""
    with (
        _errors_of(path, busy_timeout_s),
        _closing_connection(path, busy_timeout_s=busy_timeout_s) as connection,
    ):
        # Nothing of a damaged ledger is brought up to date: the damage would be sealed into it.
        version = stored_version(connection, path.name)
        _check_is_whole(connection, path)
        _check_ends_with_a_page(connection, path)
        if version < SCHEMA_VERSION:
            with _transaction(connection, "BEGIN IMMEDIATE"):
                bring_up_to_date(connection, path.name)


@contextlib.contextmanager
def reading(path: Path, busy_timeout_s: float) -> Iterator[sqlite3.Connection]:
    """A connection that sees one state of the ledger."""
    with _ledger_transaction(path, busy_timeout_s, "BEGIN") as connection:
        yield connection


@contextlib.contextmanager
def writing(path: Path, busy_timeout_s: float) -> Iterator[sqlite3.Connection]:
    """A connection that holds the write lock; commits at the end unless an error left it."""
    with _ledger_transaction(path, busy_timeout_s, "BEGIN IMMEDIATE") as connection:
        yield connection


@contextlib.contextmanager
def reading_a_copy(path: Path, busy_timeout_s: float) -> Iterator[sqlite3.Connection]:
    """A copy in memory of one state of the ledger, for who may not write the file or its folder.

    An older ledger is brought up to date in the copy only. A plain read-only connection will not
    do: in the write-ahead mode it makes files beside the ledger, which other users then cannot
    write, and it fails where the folder is not its own.
    """
    with (
        _errors_of(path, busy_timeout_s),
        contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as copy,
    ):
        _copy_one_state(path, copy, busy_timeout_s)
        version = stored_version(copy, path.name)
        _check_is_whole(copy, path)
        if version < SCHEMA_VERSION:
            with _transaction(copy, "BEGIN"):
                bring_up_to_date(copy, path.name)
        # A spend into the copy would seem to be charged and be gone with the process.
        copy.execute("PRAGMA query_only = ON")
        yield copy


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


@contextlib.contextmanager
def _ledger_transaction(
    path: Path, busy_timeout_s: float, begin: str
) -> Iterator[sqlite3.Connection]:
    with (
        _errors_of(path, busy_timeout_s),
        _closing_connection(path, busy_timeout_s=busy_timeout_s) as connection,
        _transaction(connection, begin),
    ):
        # Inside of the transaction: the file may have been replaced since it was opened first.
        if stored_version(connection, path.name) < SCHEMA_VERSION:
            raise RunStateError(f"{path.name} is an older ledger; open it with Ledger.open().")
        yield connection


@contextlib.contextmanager
def _closing_connection(
    path: Path, *, mode: str = "rw", busy_timeout_s: float = 0.0
) -> Iterator[sqlite3.Connection]:
    if mode == "rw":
        _check_is_a_file(path)
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=busy_timeout_s, isolation_level=None
    )
    with contextlib.closing(connection):
        # A commit returns when it is on the disk: noise is drawn next, and a spend that a loss of
        # power takes back would leave that release unpaid.
        connection.execute("PRAGMA synchronous = FULL")
        # Copied into the main file at each commit, so that a crash and a lost -wal lose nothing.
        connection.execute("PRAGMA wal_autocheckpoint = 1")
        yield connection


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _copy_one_state(path: Path, copy: sqlite3.Connection, busy_timeout_s: float) -> None:
    start = time.monotonic()
    while not _copy_unless_written(path, copy):
        if time.monotonic() - start > busy_timeout_s:
            raise RunStateError(_too_busy_to_copy(path, busy_timeout_s))
        time.sleep(0.01)


def _copy_unless_written(path: Path, copy: sqlite3.Connection) -> bool:
    """Copies the ledger, or answers False if somebody was writing it.

    Without pages in the log the file holds all that was committed. It is then read without
    locks (`immutable`), which is right only if nobody writes the file meanwhile: so its time of
    change is taken before the log is looked at, and must be the same after the copy. With pages
    in the log, its readers' locks are there to be used.
    """
    _check_is_a_file(path)
    now_ns, before = time.time_ns(), path.stat()
    has_log = _has_pages(_beside(path, "-wal"))
    # A second change within one tick of the clock would not show in the time of change.
    if not has_log and 0 <= now_ns - before.st_mtime_ns < _LONGEST_CLOCK_TICK_NS:
        return False
    access = "mode=ro" if has_log else "mode=ro&immutable=1"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?{access}", uri=True, timeout=0, isolation_level=None)
        ) as source:
            # Before the copy, which would wait without end for a lock that it does not get.
            source.execute("BEGIN")
            source.execute("PRAGMA schema_version")
            source.backup(copy)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if (has_log and kind in _SIGNS_OF_USE) or not _is_unchanged(path, before):
            return False
        if kind in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise RunStateError(
                f"{path.name} cannot be opened ({error}); give this user the right to read it."
            ) from error
        raise
    if not has_log and not _is_unchanged(path, before):
        return False
    _check_ends_with_a_page(copy, path)
    return True


def _is_unchanged(path: Path, before: os.stat_result) -> bool:
    try:
        after = path.stat()
    except FileNotFoundError:
        return False
    names = ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    return all(getattr(after, name) == getattr(before, name) for name in names)


def _has_pages(log: Path) -> bool:
    try:
        return log.stat().st_size > 0
    except OSError:
        return False


def _use_write_ahead_log(connection: sqlite3.Connection, path: Path) -> None:
    (journal_mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if journal_mode != "wal":
        raise RunStateError(
            f"{path.name} is on a file system that cannot share a ledger between processes "
            f"(journal_mode={journal_mode}); choose a path on a local disk."
        )


def _check_is_a_file(path: Path) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise RunStateError(
            f"{path.name} does not exist; give the path of a ledger, or create one with "
            "Ledger.create() or `tulle budget create`."
        ) from None
    except OSError as error:
        raise RunStateError(
            f"{path.name} cannot be reached: {error.strerror}; check the path and its rights."
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise RunStateError(f"{path.name} is not a file; give the path of a ledger.")
    # SQLite would take less than its smallest page for a fresh database.
    if status.st_size < 512:
        raise RunStateError(_damaged(path, "it is (almost) empty"))


def _check_is_whole(connection: sqlite3.Connection, path: Path) -> None:
    (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise RunStateError(_damaged(path, str(problem)))


def _check_ends_with_a_page(connection: sqlite3.Connection, path: Path) -> None:
    """SQLite would read a cut last page as one that ends in zeros."""
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    if not _has_pages(_beside(path, "-wal")) and path.stat().st_size % page_size != 0:
        raise RunStateError(_damaged(path, "its end is missing"))


@contextlib.contextmanager
def _errors_of(path: Path, busy_timeout_s: float) -> Iterator[None]:
    try:
        yield
    except UnreadableRowError as error:
        raise RunStateError(f"{path.name} {error}") from error
    except UnicodeDecodeError as error:
        raise RunStateError(_damaged(path, "a text in it is not UTF-8")) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None and not isinstance(error, sqlite3.OperationalError):
            raise
        if code is None:  # Python's own complaint about a text that SQLite gave it
            raise RunStateError(_damaged(path, "a text in it is not UTF-8")) from error
        # The low byte is the kind of an error (sqlite.org/rescode.html).
        raise RunStateError(_explanation(path, busy_timeout_s, code & 0xFF, error)) from error


def _explanation(path: Path, busy_timeout_s: float, kind: int, error: sqlite3.Error) -> str:
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"{path.name} stayed locked by another process for busy_timeout_s={busy_timeout_s:g}; "
            "nothing was spent. Try again, or allow more time."
        )
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return (
            f"{path.name} cannot be written: the disk is full or fails ({error}). Release nothing: "
            "earlier spends are kept, this one may be. Free some space and try again."
        )
    if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return (
            f"{path.name} cannot be opened for writing ({error}); nothing was spent. Give this "
            "user the right to write the file and its folder, which must exist; if that does not "
            "help, restore the file from a backup."
        )
    if kind in _SIGNS_OF_DAMAGE:
        return _damaged(path, str(error))
    return (
        f"{path.name} cannot be used: {error}. Nothing was spent. Try again; if it stays so, "
        "restore the file from a backup."
    )


def _too_busy_to_copy(path: Path, busy_timeout_s: float) -> str:
    if _has_pages(_beside(path, "-wal")) and not _beside(path, "-shm").exists():
        return (
            f"{path.name} cannot be read without the right to write its folder: its last spends "
            f"are in {path.name}-wal. Copy both files into a folder of your own, and read the copy."
        )
    return (
        f"{path.name} was in use by other processes for all of busy_timeout_s={busy_timeout_s:g}. "
        "Try again, or allow more time."
    )


def _damaged(path: Path, problem: str) -> str:
    return (
        f"{path.name} is damaged or no ledger: {' '.join(problem.split())}. Restore it from a "
        "backup; starting a new one instead would forget what was spent."
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _run_steps(connection: sqlite3.Connection, *, first: int) -> None:
    for step in _STEPS[first:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
