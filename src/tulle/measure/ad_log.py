"""The two tables of a measurement, and which of their columns say what.

Impressions are rows of (user, time, and what describes the ad); conversions are rows of
(user, time, and what they are worth). Names of columns are public; every value is protected. What
tells one log from another is a hash of its files, so that a ledger knows a measurement again.
"""

import dataclasses
import enum
import functools
import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tulle.data.schema import Kind
from tulle.data.source_files import SourceFile, content_sha256, inspect_sources
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_choice, check_text

if TYPE_CHECKING:
    import polars as pl

DAY_SECONDS = 86_400
MAX_SECONDS = 100_000_000_000
"""Times above are milliseconds: as seconds they would lie after the year 5000."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileTable:
    """Files that together are one table: Parquet, Arrow, CSV, TSV or JSON lines."""

    paths: tuple[Path, ...]

    def __post_init__(self) -> None:
        if not self.paths:
            raise ConfigError("a table needs at least one file; name e.g. impressions.parquet.")
        object.__setattr__(self, "paths", tuple(Path(path) for path in self.paths))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatabaseTable:
    """A table of a DuckDB database file, or of the catalogue of a Spark session."""

    table: str
    database: Path | None = None
    """The database file; None for a table that the engine knows by name."""
    version: str | None = None
    """Which state of the table it is, e.g. a date. A ledger tells measurements of a table
    without a file apart by it."""

    def __post_init__(self) -> None:
        check_text("table", self.table)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FrameTable:
    """A polars, pandas, Arrow or DuckDB table in memory. Sensitive: it holds raw rows."""

    frame: Any = dataclasses.field(repr=False)

    @functools.cached_property
    def table(self) -> "pl.DataFrame":
        """The rows as every engine sees them: texts are text, and what is missing is null.

        Raises:
          DataError: It is no table, or a column holds values of several types.
        """
        import polars as pl

        from tulle.data.tables.memory import as_polars

        if not isinstance(self.frame, pl.DataFrame):
            return as_polars(self.frame)
        plain = [name for name in self.frame.columns if name not in self.unreadable]
        return as_polars(self.frame, columns=plain)

    @functools.cached_property
    def unreadable(self) -> dict[str, str]:
        """Columns of lists and objects with their types: a fault only where one is asked for."""
        import polars as pl

        if not isinstance(self.frame, pl.DataFrame):
            return {}
        types = self.frame.schema.items()
        return {name: str(kind) for name, kind in types if kind.is_nested() or kind == pl.Object}


TableSource = FileTable | DatabaseTable | FrameTable


def table_source(data: object) -> TableSource:
    """Names the source of a table: a path, several paths, or a table in memory."""
    if isinstance(data, TableSource):
        return data
    if isinstance(data, str | os.PathLike):
        return FileTable(paths=(Path(data),))
    if isinstance(data, list | tuple):
        return FileTable(paths=tuple(Path(path) for path in data))
    return FrameTable(frame=data)


class Side(enum.Enum):
    """Which of the two tables a column is from."""

    IMPRESSION = "impression"
    CONVERSION = "conversion"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Names of the columns that have a meaning of their own. Public.

    Those of slices are named by the queries.
    """

    user: str | None = "user"
    """Column with the user; None where rows are counted one by one, and nobody asks whose they
    are."""
    impression_time: str | None = "timestamp"
    """Seconds since 1970 (UTC), or a date or timestamp. None where nobody asks for it."""
    conversion_time: str = "timestamp"
    advertiser: str | None = None
    """The advertiser of a row of either table. A conversion is then credited to impressions of its
    own advertiser alone."""
    publisher: str | None = None
    """The publisher of an impression, for the unit `user x publisher`."""
    impression_id: str | None = None
    """Column of ids, which must be distinct; None if rows have no id."""
    conversion_id: str | None = None
    kind: str | None = None
    """The kind of an impression, e.g. "click" or "view"."""
    priority: str | None = None
    """The importance of an impression, a number: the greater the more important."""
    value: str | None = None
    """The value of a conversion, >= 0."""

    kinds: Mapping[str, Kind | str] = dataclasses.field(default_factory=dict, repr=False)
    """Kinds of columns whose values do not say it: a time that is a small number counts seconds
    ("timestamp") or days ("integer"); a slice of yes and no, or 1 and 0, is "boolean"."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name != "kinds":
                check_text(field.name, value)
        object.__setattr__(self, "kinds", MappingProxyType(self._checked_kinds()))

    def kind_of(self, column: str) -> Kind | None:
        """The kind that a column is declared to have; None if nothing is said."""
        kind = self.kinds.get(column)
        return kind if kind is None else Kind(kind)

    def _checked_kinds(self) -> dict[str, Kind]:
        times = (self.impression_time, self.conversion_time)
        kinds = {}
        for name, kind in sorted(self.kinds.items()):
            given = kind.value if isinstance(kind, Kind) else kind
            kinds[name] = check_choice(f"kind of {name!r}", given, Kind)
            is_time_kind = kinds[name] in (Kind.TIMESTAMP, Kind.INTEGER)
            if kinds[name] is Kind.REAL or (name in times and not is_time_kind):
                raise ConfigError(
                    f"kinds: column {name!r} is {kinds[name].value}; a time is timestamp "
                    "(seconds) or integer (days), a slice categorical or boolean."
                )
        return kinds

    def time(self, side: Side) -> str | None:
        """The column with the time of a row of one table."""
        return self.impression_time if side is Side.IMPRESSION else self.conversion_time

    def needed_time(self, side: Side) -> str:
        """The column with the time of a row, where a row must have one.

        Raises:
          ConfigError: No column is named.
        """
        column = self.time(side)
        if column is None:
            raise ConfigError(f"{side.value}_time is needed: the column with the time of a row.")
        return column

    def owners(self) -> tuple[str, ...]:
        """The columns that a conversion and its impressions have in common.

        Raises:
          ConfigError: No column says whose a row is.
        """
        if self.user is None:
            raise ConfigError("user is needed: the column that says whose a row is.")
        return (self.user,) if self.advertiser is None else (self.user, self.advertiser)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdLog:
    """Impressions and conversions of the same users."""

    impressions: TableSource
    conversions: TableSource | None
    """Table of conversions; None where only impressions are measured (reach and frequency)."""
    columns: LogColumns = LogColumns()


def log_digest(log: AdLog) -> bytes:
    """A hash of both tables and of the meaning of their columns. As sensitive as raw data.

    Raises:
      DataError: A file cannot be read.
      ConfigError: Nothing says which state of a table it is.
    """
    digest = hashlib.sha256(repr(log.columns).encode())
    if log.columns.kinds:  # which are not in the text above
        digest.update(repr(sorted(log.columns.kinds.items(), key=str)).encode())
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
    buffer = io.BytesIO()
    source.table.write_ipc(buffer)
    return hashlib.sha256(buffer.getbuffer()).hexdigest()


def _refuse_open_changes(database: Path) -> None:
    """Changes in the write-ahead log are part of the tables and not of the file."""
    if database.with_name(f"{database.name}.wal").exists():
        raise DataError(
            f"{database.name} has changes that are not in the file yet (.wal); close it, or run "
            "CHECKPOINT in it."
        )
