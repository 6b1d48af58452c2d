"""Last touch on a browser: each conversion goes to the last impression before it.

A source is one impression. What a browser may report depends on which source a conversion
is credited to, how long after it the conversion came, and in which order. The result holds
raw rows: everything computed from it is for planning and must stay with the data.
"""

import dataclasses

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import LogColumns, Side
from tulle.measure.small_tables import present_texts_of, read_rows, seconds_of
from tulle.measure.w3c.verbs import slice_texts
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]

_TIME, _SOURCE, _PLACE = "(time)", "(source)", "(place)"
_COLUMNS = LogColumns(advertiser="advertiser", kind="interaction")
"""Columns of the logs that `tulle data synth impressions` writes."""


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


def attribute_last_touch(
    impressions: object, conversions: object, settings: LastTouchSettings
) -> AttributedLog:
    """Credits each conversion to the last impression of its user (and advertiser).

    Of impressions at the same second the later row counts. An impression matches if
    0 <= age <= lookback.

    Args:
      impressions: A path, or a table of polars, pandas, Arrow or DuckDB.
      conversions: The same for conversions.
      settings: Which columns are read, and how far a conversion looks back.

    Privacy:
      Returns raw rows, without any protection.

    Raises:
      DataError: A table cannot be read, or lacks a column or a value.
    """
    columns = settings.columns
    owner = list(columns.owners())
    kind = [columns.kind] if columns.kind else []
    shown = _load(impressions, columns, Side.IMPRESSION, [*owner, *kind], settings.source_columns)
    converted = _load(conversions, columns, Side.CONVERSION, owner, settings.conversion_columns)
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
        kinds=shown[_inner(columns.kind)] if columns.kind else None,
        conversion_sources=sources,
        ages=credited[_TIME].to_numpy() - shown[_TIME].to_numpy()[sources],
        conversions=credited.select(settings.conversion_columns),
        num_unattributed=len(joined) - len(credited),
    )


def distinct_slices(frame: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """All combinations that occur, in their order."""
    return slice_texts(frame, by).unique().sort(by)


def places_in(frame: pl.DataFrame, slices: pl.DataFrame) -> IntArray:
    """The row of `slices` that each row of `frame` belongs to. Each must belong to one."""
    by = tuple(slices.columns)
    numbered = slices.with_row_index(_PLACE)
    joined = slice_texts(frame, by).join(numbered, on=by, how="left", maintain_order="left")
    places: IntArray = joined[_PLACE].cast(pl.Int64).to_numpy()
    return places


def places_within_source(sources: ArrayLike) -> IntArray:
    """0 for the first row of each source, 1 for its second, in the order of the rows."""
    owners = np.asarray(sources)
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(is_first)
    places = np.empty(len(ordered), np.int64)
    places[order] = np.arange(len(ordered)) - firsts[np.cumsum(is_first) - 1]
    return places


def _load(
    data: object, columns: LogColumns, side: Side, needed: list[str], kept: tuple[str, ...]
) -> pl.DataFrame:
    """The kept columns as they are, needed ones as text under inner names, in order of time."""
    time = columns.needed_time(side)
    rows = read_rows(data, [time, *needed, *kept])
    if not len(rows.table):
        raise DataError(f"{side.value}s have no rows; there is nothing to simulate.")
    seconds = seconds_of(rows, time, columns.kind_of(time))
    owners = [present_texts_of(rows, name).alias(_inner(name)) for name in needed]
    loaded = pl.DataFrame([seconds.alias(_TIME), *owners, *(rows.table[name] for name in kept)])
    return loaded.sort(_TIME, maintain_order=True)


def _inner(name: str) -> str:
    """A name that no column to be kept has."""
    return f"(inner {name})"
