"""Which impressions stand before which conversions.

Who matches depends on a conversion only by its user, advertiser and time, so conversions of one
moment are matched once. Impressions of a moment are ordered by time; those of one time by their
id, or else by an md5 of their columns: rows that are alike in all of them may swap unnoticed.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import dataclasses

from tulle.measure.ad_log import Side
from tulle.measure.attribution.rules import Attribution
from tulle.measure.engines.engine import Step
from tulle.measure.engines.log_tables import MICROS, LogTables
from tulle.measure.engines.sql_text import (
    column_list,
    equal_columns,
    keyed_md5,
    plain_md5,
    text_literal,
)

IMPRESSION_ID = "id"
"""The name of the impressions' id among the carried columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matching:
    """Steps that pair conversions with the impressions before them."""

    tables: LogTables
    attribution: Attribution
    window_seconds: int | None = None
    """Pairs must lie in one window of this length, as units with windows need."""

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
        if self.window_seconds is None:
            return condition
        window = self.window_seconds * MICROS
        return f"{condition} AND i.t - i.t % {window} = m.t - m.t % {window}"

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
