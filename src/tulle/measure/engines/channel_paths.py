"""Which channels a unit met, and whether a conversion followed: one path of each unit.

A unit that converted after an impression has the path before one such conversion, chosen by
keyed md5; one that did not has its impressions up to the last, one lookback back. Order and
number of impressions don't matter, so a path is a set of channels.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

from typing import Any

import polars as pl

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, Side
from tulle.measure.attribution.rules import Attribution
from tulle.measure.engines.engine import Engine, Program, Rows, Step
from tulle.measure.engines.log_tables import (
    MICROS,
    CarriedColumn,
    LogTables,
    check_unit,
    has_unit,
    log_sources,
    log_types,
    role_columns,
    unit_columns,
    unit_select,
)
from tulle.measure.engines.matching import Matching
from tulle.measure.engines.sql_text import SALT, column_list, equal_columns, keyed_md5, salt_frame
from tulle.measure.slice_jobs import SliceColumn, Subject
from tulle.privacy.units import Unit

CHANNEL = "path_channel"
"""Name of the channel among the carried columns."""


def channel_sets(
    engine: Engine,
    log: AdLog,
    attribution: Attribution,
    channel: SliceColumn,
    *,
    unit: Unit,
    salt: bytes,
) -> pl.DataFrame:
    """How many units have each set of channels, with and without a conversion after it.

    Args:
      engine: Where it runs.
      log: The tables, which `check_log` found right.
      attribution: Attribution, for its lookback, one for all kinds; the rule does not matter.
      channel: A column of impressions.
      unit: Each has one path at most.
      salt: Key of at least 16 secret random bytes, new for every run. Sensitive: never log it.

    Returns:
      Columns channels (sorted texts), converted, num_units; one row for each that occurs.

    Privacy:
      Releases nothing: counts are exact. Without one unit's rows one count falls by 1.
    """
    if channel.side is not Side.IMPRESSION or channel.is_day:
        raise ConfigError(f"channel {channel.name!r} must be a column of impressions, not a day.")
    if unit.owner.is_one_row or log.conversions is None:
        raise ConfigError(f"paths need conversions and a unit with several rows, not unit={unit}.")
    if attribution.max_touches is not None or attribution.kind_lookback_seconds:
        raise ConfigError(
            "paths have every impression within one lookback, whether a conversion followed or "
            "not; leave max_touches and lookbacks by kind out where weights are learnt."
        )
    check_unit(unit, log, [Subject.CONVERSIONS])
    roles = role_columns(log, [attribution])
    tables = LogTables(
        log=log,
        types=log_types(engine, log),
        impression_columns=(*roles, CarriedColumn(CHANNEL, channel.column)),
    )
    steps = _path_steps(tables, attribution, channel, unit)
    program = Program(
        tables=log_sources(log),
        frames={SALT: salt_frame(salt)},
        steps=tuple(steps),
        outputs=(steps[-1].name,),
    )
    (rows,) = engine.run(program)
    return _sorted_sets(rows)


def _path_steps(
    tables: LogTables, attribution: Attribution, channel: SliceColumn, unit: Unit
) -> list[Step]:
    matching = Matching(tables=tables, attribution=attribution, window_seconds=unit.window_seconds)
    names = unit_columns(unit)
    units = column_list(names)
    text = tables.slice_text(channel, f"i.{CHANNEL}")
    touched = (
        f"SELECT {column_list(unit_select(unit, table='i', time='ct'))}, i.ct, {text} AS channel "
        f"FROM touches i WHERE {has_unit(unit, table='i')}"
    )
    order = keyed_md5((*names, "ct"))
    ranked = (
        f"SELECT {units}, ct, ROW_NUMBER() OVER (PARTITION BY {units} ORDER BY {order}) AS place "
        f"FROM (SELECT DISTINCT {units}, ct FROM touched) AS moments_of_unit"
    )
    won = (
        f"SELECT {column_list(names, 'p')}, p.channel, TRUE AS converted FROM touched p "
        f"JOIN picked o ON {equal_columns('o', 'p', (*names, 'ct'))}"
    )
    exposed = (
        f"SELECT {column_list(unit_select(unit, table='i', time='t'))}, i.t, {text} AS channel "
        f"FROM imp i WHERE {has_unit(unit, table='i')}"
    )
    latest = (
        f"SELECT {column_list(names, 'e')}, MAX(e.t) AS last_t FROM exposed e WHERE NOT EXISTS "
        f"(SELECT 1 FROM picked o WHERE {equal_columns('o', 'e', names)}) "
        f"GROUP BY {column_list(names, 'e')}"
    )
    lost = (
        f"SELECT {column_list(names, 'e')}, e.channel, FALSE AS converted FROM exposed e "
        f"JOIN latest_of_unit o ON {equal_columns('o', 'e', names)} "
        f"WHERE e.t >= o.last_t - {attribution.lookback_seconds * MICROS}"
    )
    sets = (
        f"SELECT {units}, converted, ARRAY_SORT(LIST(DISTINCT channel)) AS channels "
        f"FROM path_channels GROUP BY {units}, converted"
    )
    counts = (
        "SELECT channels, converted, COUNT(*) AS num_units FROM path_sets "
        "GROUP BY channels, converted"
    )
    return [
        *matching.moment_steps(),
        *matching.near_steps(),
        *matching.touch_steps(),
        Step("touched", touched),
        Step("picked", f"SELECT {units}, ct FROM ({ranked}) AS ranked WHERE place = 1"),
        Step("exposed", exposed, is_cheap=True),
        Step("latest_of_unit", latest),
        Step("path_channels", f"{won} UNION ALL {lost}"),
        Step("path_sets", sets),
        Step("path_counts", counts),
    ]


def _sorted_sets(rows: Rows) -> pl.DataFrame:
    channels: list[Any] = [[str(name) for name in names] for names in rows["channels"]]
    frame = pl.DataFrame(
        {
            "channels": pl.Series("channels", channels, pl.List(pl.String)),
            "converted": pl.Series("converted", list(rows["converted"]), pl.Boolean),
            "num_units": pl.Series("num_units", list(rows["num_units"]), pl.Int64),
        }
    )
    order = sorted(range(frame.height), key=lambda row: (channels[row], frame["converted"][row]))
    return frame[order]
