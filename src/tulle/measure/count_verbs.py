"""Counts of one table with noise: rows, and how many people saw ads and how often."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Moment
from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, LogColumns, table_source
from tulle.measure.engines.engine import Engine
from tulle.measure.queries.query import MeasureConfig, Quantity, Query
from tulle.measure.query_table import KeyTable, QueryTable
from tulle.measure.verbs import FilePath, MeasureResult, Watch, release
from tulle.privacy.units import Unit


def count(
    data: object,
    *,
    epsilon: float,
    unit: Unit | str,
    by: Sequence[str] = (),
    keys: object = None,
    user: str | None = None,
    time: str | None = None,
    kinds: Mapping[str, str] | None = None,
    max_per_slice: float | None = None,
    max_slices_per_unit: int | None = None,
    max_per_unit: float | None = None,
    delta: float = 0.0,
    noise: str = "laplace",
    confidence: float = 0.95,
    output: FilePath | None = None,
    form: str = "parquet",
    ledger: Ledger | FilePath | None = None,
    purpose: str | None = None,
    at: Moment | None = None,
    until: Moment | None = None,
    again: bool = False,
    seed: int | None = None,
    engine: Engine | str = "duckdb",
    watch: Watch | None = None,
) -> MeasureResult:
    """Counts rows of one table with noise, in all or by slices, and says what is promised.

    Args:
      data: A file, several, or a table of polars, pandas, Arrow or DuckDB.
      epsilon: What the count may cost one unit.
      unit: Who is protected: "impression" or "row" for one row, or e.g. "user per week".
      by: Columns whose values make slices; "day" is the day of `time`.
      keys: The slices that are wanted, which must not be read off the data: values by column
        (they are crossed), a file or a table with one row a slice, or "private" to find those
        that occur, which costs a part of epsilon and needs a delta.
      user, time: Columns that say whose a row is and when it was, where that matters.
      kinds: Kinds of columns that do not show by their values: "timestamp" (seconds) or
        "integer" (days) for a time that is a small number, "boolean" for a slice of yes and no.
      max_per_slice: Most rows of a unit that one slice counts.
      max_slices_per_unit: Most slices that a unit counts in, chosen at random.
      max_per_unit: Most rows of a unit in all; what is above is scaled down.
      delta, noise: "laplace", or with a delta "gaussian"; a delta also for "private" keys.
      confidence: Probability with which each interval holds its number.
      output, form, ledger, purpose, at, until, again, seed, engine, watch: As for `release`.

    Privacy:
      Unit: the one that is named, add-remove, whole rows. Sensitivity: the bounds, which hold
      before noise is added. Event: that of the plan, charged before the first draw. Relies on:
      given keys do not follow from the data.
    """
    protected = Unit.parse(unit) if isinstance(unit, str) else unit
    columns = _count_columns(protected, user, time, needs_time="day" in by or at is not None)
    columns = dataclasses.replace(columns, kinds=kinds or {})
    query = _count_query(by, keys, (max_per_slice, max_slices_per_unit, max_per_unit), columns)
    config = MeasureConfig(
        name="count",
        log=AdLog(impressions=table_source(data), conversions=None, columns=columns),
        attribution=None,
        unit=protected,
        epsilon=epsilon,
        delta=delta,
        noise=noise,
        confidence=confidence,
        queries=(query,),
    )
    return release(
        config,
        output=output,
        form=form,
        ledger=ledger,
        purpose=purpose,
        at=at,
        until=until,
        again=again,
        seed=seed,
        engine=engine,
        watch=watch,
    )


def count_reach(
    data: object,
    *,
    epsilon: float,
    unit: Unit | str = "user",
    by: Sequence[str] = (),
    keys: object = None,
    user: str = "user",
    time: str = "timestamp",
    kind_column: str | None = None,
    only_kinds: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    max_slices_per_unit: int | None = None,
    max_frequency: int = 10,
    delta: float = 0.0,
    output: FilePath | None = None,
    form: str = "parquet",
    ledger: Ledger | FilePath | None = None,
    purpose: str | None = None,
    at: Moment | None = None,
    until: Moment | None = None,
    again: bool = False,
    seed: int | None = None,
    engine: Engine | str = "duckdb",
    watch: Watch | None = None,
) -> MeasureResult:
    """Counts how many people saw ads and how often, over all files, with noise.

    Args:
      data: A file, several, or a table of polars, pandas or Arrow: one row an impression.
      epsilon: What the release may cost one unit.
      unit: Who is protected: "user", or with the slice day e.g. "user per day".
      by: Columns whose values make slices; "day" is the day of `time`.
      keys: The slices that are wanted, as for `count`. None finds those that occur privately,
        for a part of epsilon and a delta.
      user, time: Columns that say who saw an impression and when.
      kind_column, only_kinds: The column with the kind of an impression, and those that count.
      kinds: Kinds of columns that do not show by their values, as for `count`.
      max_slices_per_unit: Most slices that a unit counts in; needed with slices.
      max_frequency: More impressions count as this many.
      delta: Needed where slices are found privately.
      output, form, ledger, purpose, at, until, again, seed, engine, watch: As for `release`.

    Privacy:
      Unit: the one that is named, add-remove, whole rows. Event: that of the plan, charged
      before the first draw. Relies on: given keys do not follow from the data.
    """
    columns = LogColumns(user=user, impression_time=time, kind=kind_column, kinds=kinds or {})
    if only_kinds and kind_column is None:
        raise ConfigError("only_kinds needs kind_column, which says the kind of an impression.")
    table = QueryTable(
        name="reach",
        measure=Quantity.REACH,
        slices=tuple(by),
        keys="private" if by and keys is None else _listed_keys(keys),
        kinds=tuple(only_kinds),
        max_frequency=max_frequency,
        max_slices_per_unit=max_slices_per_unit,
    )
    config = MeasureConfig(
        name="reach",
        log=AdLog(impressions=table_source(data), conversions=None, columns=columns),
        attribution=None,
        unit=Unit.parse(unit) if isinstance(unit, str) else unit,
        epsilon=epsilon,
        delta=delta,
        queries=(table.query(columns=columns, folder=Path(), keys=_key_table(keys)),),
    )
    return release(
        config,
        output=output,
        form=form,
        ledger=ledger,
        purpose=purpose,
        at=at,
        until=until,
        again=again,
        seed=seed,
        engine=engine,
        watch=watch,
    )


def _listed_keys(keys: object) -> KeyTable | str | None:
    """Keys as a settings file has them; a table in memory stands in for those of no file."""
    if isinstance(keys, os.PathLike):
        return str(Path(keys))
    if isinstance(keys, Mapping):
        return {
            name: tuple(values) if isinstance(values, list) else values
            for name, values in keys.items()
        }
    return keys if keys is None or isinstance(keys, str) else "private"


def _key_table(keys: object) -> object:
    """Keys that are a table in memory; None for others."""
    is_listed = keys is None or isinstance(keys, str | os.PathLike | Mapping)
    return None if is_listed else keys


def _count_columns(
    unit: Unit, user: str | None, time: str | None, *, needs_time: bool
) -> LogColumns:
    if time is None and (needs_time or unit.windows is not None):
        raise ConfigError(
            "time is needed for days, for a unit with a window and for at: the column with the "
            "time of a row, e.g. time='timestamp'."
        )
    conversion_time = LogColumns.conversion_time if time is None else time
    return LogColumns(user=user, impression_time=time, conversion_time=conversion_time)


def _count_query(
    by: Sequence[str],
    keys: object,
    bounds: tuple[float | None, int | None, float | None],
    columns: LogColumns,
) -> Query:
    max_per_slice, max_slices_per_unit, max_per_unit = bounds
    if max_per_slice is not None and not by and max_slices_per_unit is None:
        max_slices_per_unit = 1  # there is one slice, of all rows
    table = QueryTable(
        name="count",
        measure=Quantity.IMPRESSIONS,
        slices=tuple(by),
        keys=_listed_keys(keys),
        max_per_slice=max_per_slice,
        max_slices_per_unit=max_slices_per_unit,
        max_per_unit=max_per_unit,
    )
    return table.query(columns=columns, folder=Path(), keys=_key_table(keys))
