"""Last touch on a browser: each conversion goes to the last impression before it.

A source is one impression. What a browser may report depends on which source a conversion
is credited to, how long after it the conversion came, and in which order. The result holds
raw rows: everything computed from it is for planning and must stay with the data.
"""

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import LogColumns
from tulle.measure.reports.log_files import load_columns, scan_table
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]

_TIME, _SOURCE = "(time)", "(source)"
_LEAST_MILLISECONDS = 10**11  # As seconds, a time after the year 5000.
_COLUMNS = LogColumns(advertiser="advertiser", kind="interaction")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastTouchSettings:
    """How a log is read and attributed. Every field is public information."""

    lookback_seconds: int = 30 * 86_400
    columns: LogColumns = _COLUMNS
    source_columns: tuple[str, ...] = ("campaign",)
    """Columns of impressions that slices are made of."""
    conversion_columns: tuple[str, ...] = ()
    """Columns of conversions that are sliced by, added up, or reported."""

    def __post_init__(self) -> None:
        check_count("lookback_seconds", self.lookback_seconds)
        object.__setattr__(self, "source_columns", tuple(self.source_columns))
        object.__setattr__(self, "conversion_columns", tuple(self.conversion_columns))
        if not self.source_columns:
            raise ConfigError("source_columns must name a column of impressions, e.g. campaign.")
        names = [*self.source_columns, *self.conversion_columns]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ConfigError(
                f"{repeated[0]!r} is more than once in source_columns and conversion_columns; "
                "name it once."
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AttributedLog:
    """Sources, and the conversions credited to them in order of time. Sensitive: raw rows."""

    sources: pl.DataFrame = dataclasses.field(repr=False)
    """Columns of each source."""
    kinds: pl.Series | None = dataclasses.field(repr=False)
    """Kind of each source, if the log says it."""
    conversion_sources: IntArray = dataclasses.field(repr=False)
    """The row of `sources` that each conversion is credited to."""
    ages: IntArray = dataclasses.field(repr=False)
    """Seconds from the source to each conversion."""
    conversions: pl.DataFrame = dataclasses.field(repr=False)
    """Columns of each conversion."""
    num_unattributed: int = dataclasses.field(repr=False)
    """Conversions without an impression in the lookback."""

    def column(self, name: str) -> pl.Series:
        """A column for each conversion, looked up at its source if it belongs there."""
        if name in self.sources.columns:
            return self.sources[name].gather(self.conversion_sources)
        if name not in self.conversions.columns:
            raise ConfigError(
                f"column {name!r} was not read; add it to source_columns or conversion_columns."
            )
        return self.conversions[name]


def read_attributed_log(
    impressions: Path, conversions: Path, settings: LastTouchSettings
) -> AttributedLog:
    """Reads two Parquet or CSV files and attributes.

    Privacy:
      Returns raw rows, without any protection.
    """
    return attribute_last_touch(scan_table(impressions), scan_table(conversions), settings)


def attribute_last_touch(
    impressions: pl.LazyFrame, conversions: pl.LazyFrame, settings: LastTouchSettings
) -> AttributedLog:
    """Credits each conversion to the last impression of its user (and advertiser).

    Of impressions at the same second the later row counts. An impression matches if
    0 <= age <= lookback.

    Privacy:
      Returns raw rows, without any protection.
    """
    columns = settings.columns
    owner = [columns.user] + ([columns.advertiser] if columns.advertiser else [])
    kind = [columns.kind] if columns.kind else []
    shown = _load(
        "impressions",
        impressions,
        columns.impression_time,
        [*owner, *kind],
        settings.source_columns,
    )
    converted = _load(
        "conversions", conversions, columns.conversion_time, owner, settings.conversion_columns
    )
    _check_same_types(shown, converted, owner)
    inner_owner = [_inner(name) for name in owner]
    joined = converted.join_asof(
        shown.select(*inner_owner, _TIME, pl.int_range(pl.len()).alias(_SOURCE)),
        on=_TIME,
        by=inner_owner,
        strategy="backward",
        tolerance=settings.lookback_seconds,
        check_sortedness=False,  # Sorted before; polars cannot check it by owner.
    )
    credited = joined.filter(pl.col(_SOURCE).is_not_null())
    sources = credited[_SOURCE].to_numpy()
    return AttributedLog(
        sources=shown.select(settings.source_columns),
        kinds=shown[_inner(columns.kind)].cast(pl.String) if columns.kind else None,
        conversion_sources=sources,
        ages=credited[_TIME].to_numpy() - shown[_TIME].to_numpy()[sources],
        conversions=credited.select(settings.conversion_columns),
        num_unattributed=len(joined) - len(credited),
    )


def _load(
    table: str, frame: pl.LazyFrame, time: str, needed: list[str], kept: tuple[str, ...]
) -> pl.DataFrame:
    """Kept columns as they are, needed ones under inner names, in order of time."""
    loaded = load_columns(table, frame, (time, *needed, *kept))
    for name in (time, *needed):
        if loaded[name].null_count():
            raise DataError(f"column {name!r} of {table} has empty cells; drop these rows.")
    seconds = loaded.select(_seconds(table, time, loaded[time].dtype))[time]
    if int(seconds.to_numpy().max()) >= _LEAST_MILLISECONDS:
        raise DataError(f"column {time!r} of {table} must be in seconds, not in a finer unit.")
    return loaded.select(
        seconds.alias(_TIME), *(pl.col(name).alias(_inner(name)) for name in needed), *kept
    ).sort(_TIME, maintain_order=True)


def _inner(name: str) -> str:
    """A name that no column to be kept has."""
    return f"(inner {name})"


def _check_same_types(shown: pl.DataFrame, converted: pl.DataFrame, names: list[str]) -> None:
    for name in names:
        kind, other = shown[_inner(name)].dtype, converted[_inner(name)].dtype
        if kind != other:
            raise DataError(
                f"column {name!r} is {kind} in the impressions and {other} in the conversions; "
                "write both in one way."
            )


def _seconds(table: str, name: str, kind: pl.DataType) -> pl.Expr:
    if kind.is_integer():
        return pl.col(name).cast(pl.Int64)
    if isinstance(kind, pl.Datetime | pl.Date):
        return pl.col(name).cast(pl.Datetime("us")).dt.epoch("s")
    raise DataError(f"column {name!r} of {table} must be whole seconds, a date or a timestamp.")
