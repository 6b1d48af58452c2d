"""The file of a ledger: creating it whole, opening it safely, saying what is wrong.

Every operation opens its own connection and closes it, so a ledger can be used
across forks and threads (only do not fork while another thread is in one: SQLite
itself does not survive that). Nothing here opens the file but SQLite: closing another
descriptor of it would drop SQLite's locks (sqlite.org/howtocorrupt.html, 2.2).
"""

import contextlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from tulle.accounting.ledger_schema import (
    SCHEMA_VERSION,
    bring_up_to_date,
    lay_out,
    stored_version,
)
from tulle.durable_files import sync_folder
from tulle.errors import RunStateError


def create_ledger_file(path: Path) -> None:
    """Makes an empty ledger, or nothing: it is built under another name, then linked."""
    if os.path.lexists(path):
        raise RunStateError(
            f"{path.name} exists already; open it as a ledger, or choose another path."
        )
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
        version = stored_version(connection, path.name)
        (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise RunStateError(_damaged(path, problem))
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
def _ledger_transaction(
    path: Path, busy_timeout_s: float, begin: str
) -> Iterator[sqlite3.Connection]:
    with (
        _errors_of(path, busy_timeout_s),
        _closing_connection(path, busy_timeout_s=busy_timeout_s) as connection,
        _transaction(connection, begin),
    ):
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


def _check_ends_with_a_page(connection: sqlite3.Connection, path: Path) -> None:
    """SQLite would read a cut last page as one that ends in zeros."""
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    log = _beside(path, "-wal")
    has_pages_in_log = log.exists() and log.stat().st_size > 0
    if not has_pages_in_log and path.stat().st_size % page_size != 0:
        raise RunStateError(_damaged(path, "its end is missing"))


@contextlib.contextmanager
def _errors_of(path: Path, busy_timeout_s: float) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            raise
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
            "user the right to write the file and its folder, which must exist."
        )
    if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, str(error))
    return f"{path.name} cannot be used: {error}. Nothing was spent."


def _damaged(path: Path, problem: str) -> str:
    return (
        f"{path.name} is damaged or no ledger: {' '.join(problem.split())}. Restore it from a "
        "backup; starting a new one instead would forget what was spent."
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
