"""What tells one log from another, for a ledger that must know a measurement again."""

import hashlib
import io
from pathlib import Path

import polars as pl

from tulle.data.source_files import SourceFile, content_sha256, inspect_sources
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, TableSource


def log_digest(log: AdLog) -> bytes:
    """A hash of both tables and of the meaning of their columns. As sensitive as raw data.

    Raises:
      DataError: A file cannot be read.
      ConfigError: Nothing says which state of a table it is.
    """
    digest = hashlib.sha256(repr(log.columns).encode())
    sources = (log.impressions, log.conversions)
    parts = [None if source is None else _source_digest(source) for source in sources]
    digest.update(repr(parts).encode())
    return digest.digest()


def log_state(log: AdLog) -> tuple[SourceFile, ...]:
    """What shows that a file of the log changed since; tables without files show nothing."""
    paths: list[Path] = []
    for source in (log.impressions, log.conversions):
        if isinstance(source, FileTable):
            paths += source.paths
        elif isinstance(source, DatabaseTable) and source.database is not None:
            _refuse_open_changes(source.database)
            paths.append(source.database)
    return inspect_sources(paths) if paths else ()


def _source_digest(source: TableSource) -> str:
    if isinstance(source, FileTable):
        return ",".join(sorted(content_sha256(path) for path in source.paths))
    if isinstance(source, DatabaseTable):
        if source.database is not None:
            _refuse_open_changes(source.database)
            return repr((source.table, content_sha256(source.database)))
        if source.version is None:
            raise ConfigError(
                f"table {source.table!r} is no file, so the ledger cannot tell its states apart; "
                "set version in [log], e.g. to the date of the data."
            )
        return repr((source.table, source.version))
    frame = source.frame if isinstance(source.frame, pl.DataFrame) else pl.DataFrame(source.frame)
    buffer = io.BytesIO()
    frame.write_ipc(buffer)
    return hashlib.sha256(buffer.getbuffer()).hexdigest()


def _refuse_open_changes(database: Path) -> None:
    """Changes in the write-ahead log are part of the tables and not of the file."""
    if database.with_name(f"{database.name}.wal").exists():
        raise DataError(
            f"{database.name} has changes that are not in the file yet (.wal); close it, or run "
            "CHECKPOINT in it."
        )
