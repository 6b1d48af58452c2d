"""The two tables of a measurement, and which of their columns say what.

Impressions are rows of (user, time, and what describes the ad); conversions are rows of
(user, time, and what they are worth). Names of columns are public; every value is protected.
"""

import dataclasses
import enum
from pathlib import Path
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.fields import check_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileTable:
    """Parquet or CSV files that together are one table."""

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
    """A polars, pandas or Arrow table in memory. Sensitive: it holds raw rows."""

    frame: Any = dataclasses.field(repr=False)


TableSource = FileTable | DatabaseTable | FrameTable


class Side(enum.Enum):
    """Which of the two tables a column is from."""

    IMPRESSION = "impression"
    CONVERSION = "conversion"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Names of the columns that have a meaning of their own. Public.

    Those of slices are named by the queries.
    """

    user: str = "user"
    impression_time: str = "timestamp"
    """Whole seconds since 1970 (UTC), or a date or timestamp."""
    conversion_time: str = "timestamp"
    advertiser: str | None = None
    """In both tables. A conversion is credited to impressions of its own advertiser alone."""
    publisher: str | None = None
    """In the impressions."""
    impression_id: str | None = None
    """Must be distinct; None if rows have no id."""
    conversion_id: str | None = None
    kind: str | None = None
    """Of an impression, e.g. "click" or "view"."""
    priority: str | None = None
    """Of an impression, a number: the greater the more important."""
    value: str | None = None
    """Of a conversion: what it is worth, >= 0."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                check_text(field.name, getattr(self, field.name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdLog:
    """Impressions and conversions of the same users."""

    impressions: TableSource
    conversions: TableSource | None
    """None where only impressions are measured (reach and frequency)."""
    columns: LogColumns = LogColumns()
