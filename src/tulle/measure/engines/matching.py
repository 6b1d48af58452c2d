"""Which impressions stand before which conversions, and which channels a unit met on its way.

Who matches depends on a conversion only by its user, advertiser and time, so conversions of one
moment are matched once. Impressions of a moment are ordered by time; those of one time by their
id, or else by an md5 of their columns: rows that are alike in all of them may swap unnoticed.

For weights of channels each unit has one path. A unit that converted after an impression has the
path before one such conversion, chosen by keyed md5; one that did not has its impressions up to
the last, one lookback back. Order and number of impressions don't matter: a path is a set.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import dataclasses
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
    has_unit,
    log_sources,
    log_types,
    role_columns,
    unit_columns,
    unit_select,
)
from tulle.measure.engines.sql_text import (
    SALT,
    column_list,
    equal_columns,
    keyed_md5,
    plain_md5,
    salt_frame,
    text_literal,
)
from tulle.measure.engines.window_sql import window_sql
from tulle.measure.slice_jobs import SliceColumn
from tulle.privacy.units import Owner, Unit
from tulle.privacy.windows import TimeWindows

IMPRESSION_ID = "id"
"""The name of the impressions' id among the carried columns."""
CHANNEL = "path_channel"
"""Name of the channel among the carried columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matching:
    """Steps that pair conversions with the impressions before them."""

    tables: LogTables
    attribution: Attribution
    windows: TimeWindows | None = None
    """Pairs must lie in one of these windows, as units with windows need."""

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of impressions that go along."""
        return tuple(column.name for column in self.tables.impression_columns)

    @property
    def moment_keys(self) -> tuple[str, ...]:
        """What tells one moment from another: the match keys and the time."""
        return (*self.tables.match_keys, "ct")

    def moment_steps(self) -> list[Step]:
        """Conversions, and how many there are of each moment."""
        keys = column_list(self.tables.match_keys)
        number = "CAST(COUNT(*) AS INTEGER) AS num"
        moments = f"SELECT {keys}, t, {number} FROM conv GROUP BY {keys}, t"
        return [*self._conversion_steps(), Step("moments", moments)]

    def near_steps(self) -> list[Step]:
        """Impressions, and those of users with a conversion."""
        keys = self.tables.match_keys
        near = (
            f"SELECT {column_list((*keys, 't', *self.carried), 'i')} FROM imp i "
            f"WHERE EXISTS (SELECT 1 FROM moments m WHERE {equal_columns('m', 'i', keys)})"
        )
        imp = self.tables.step(Side.IMPRESSION, name="imp")
        return [imp, Step("near", near, is_cheap=True)]

    def touch_steps(self) -> list[Step]:
        """Pairs of a moment and an impression before it, with the order of ties."""
        keys = self.tables.match_keys
        has_limit = self.attribution.max_touches is not None
        tied = (
            "" if self._has_id else f"LEFT JOIN tied d ON {equal_columns('d', 'i', (*keys, 't'))}"
        )
        touches = Step(
            "every_touch" if has_limit else "touches",
            self.pairs(extra=(f"{self._tie()} AS tie",), joined=tied),
        )
        return [*self._tied_steps(), touches, *self._last_touches()]

    def pairs(self, *, extra: tuple[str, ...] = (), joined: str = "") -> str:
        """A moment m with each impression i before it, at most the lookback ago."""
        keys = self.tables.match_keys
        columns = ("i.t AS it", *extra, *(f"i.{name}" for name in self.carried))
        return (
            f"SELECT {column_list(keys, 'm')}, m.t AS ct, m.num, {column_list(columns)} "
            f"FROM moments m JOIN imp i ON {equal_columns('m', 'i', keys)} AND i.t <= m.t "
            f"AND {self.within_lookback()} {joined}"
        )

    def order_of_ties(self, *, time: str = "t") -> str:
        """What orders impressions i of one time, which is in the column `time`."""
        if self._has_id:
            return "i.id"
        columns = (*self.tables.match_keys, time, *self.carried)
        return plain_md5([f"i.{column}" for column in columns])

    def within_lookback(self) -> str:
        """The condition that impression i is not too old for moment m, and is in its window."""
        attribution = self.attribution
        limit = str(attribution.lookback_seconds * MICROS)
        if attribution.kind_lookback_seconds:
            cases = " ".join(
                f"WHEN {text_literal(kind)} THEN {seconds * MICROS}"
                for kind, seconds in attribution.kind_lookback_seconds.items()
            )
            limit = f"CASE CAST(i.kind AS VARCHAR) {cases} ELSE {limit} END"
        condition = f"m.t - i.t <= {limit}"
        if self.windows is None:
            return condition
        return (
            f"{condition} AND {window_sql(self.windows, 'i.t')} = {window_sql(self.windows, 'm.t')}"
        )

    @property
    def _has_id(self) -> bool:
        return IMPRESSION_ID in self.carried

    def _tie(self) -> str:
        # Few impressions share a time with another, and a hash of all would cost seconds.
        order = self.order_of_ties()
        return order if self._has_id else f"CASE WHEN d.u IS NULL THEN '' ELSE {order} END"

    def _tied_steps(self) -> list[Step]:
        if self._has_id:
            return []
        columns = column_list((*self.tables.match_keys, "t"))
        sql = f"SELECT {columns} FROM near GROUP BY {columns} HAVING COUNT(*) > 1"
        return [Step("tied", sql)]

    def _conversion_steps(self) -> list[Step]:
        limit = self.attribution.max_conversions_per_user
        every = self.tables.step(Side.CONVERSION, name="conv" if limit is None else "every_conv")
        if limit is None:
            return [every]
        names = ("u", *self.tables.match_keys[1:], "t")
        columns = (*names, *(column.name for column in self.tables.conversion_columns))
        order = keyed_md5(columns)
        ranked = (
            f"SELECT *, ROW_NUMBER() OVER (PARTITION BY u ORDER BY {order}) AS place "
            "FROM every_conv"
        )
        kept = f"SELECT {column_list(columns)} FROM ({ranked}) AS ranked WHERE place <= {limit}"
        return [every, Step("conv", kept)]

    def _last_touches(self) -> list[Step]:
        limit = self.attribution.max_touches
        if limit is None:
            return []
        keys = column_list(self.moment_keys)
        ranked = (
            f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY it DESC, tie DESC) "
            "AS place FROM every_touch"
        )
        return [Step("touches", f"SELECT * FROM ({ranked}) AS ranked WHERE place <= {limit}")]


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
    if unit.owner.is_one_row or unit.owner is Owner.USER_PUBLISHER or log.conversions is None:
        raise ConfigError(f"paths need conversions and a unit with several rows, not unit={unit}.")
    if attribution.max_touches is not None or attribution.kind_lookback_seconds:
        raise ConfigError(
            "paths have every impression within one lookback, whether a conversion followed or "
            "not; leave max_touches and lookbacks by kind out where weights are learnt."
        )
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
    matching = Matching(tables=tables, attribution=attribution, windows=unit.windows)
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
