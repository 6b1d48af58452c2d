"""The log under names of our own: users, times in microseconds, and what the steps need.

Steps after these know nothing of the user's column names. A column is carried as it is; what a
slice is compared by is its text, which `slice_text` makes as late as possible.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import dataclasses
from collections.abc import Mapping, Sequence

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, Side, TableSource
from tulle.measure.engines.column_types import Family, family_of, require_column
from tulle.measure.engines.engine import Engine, Step
from tulle.measure.engines.sql_text import identifier, text_literal
from tulle.measure.slice_jobs import SliceColumn

MICROS = 1_000_000
DAY_MICROS = 86_400 * MICROS
NULL_TEXT = "(null)"
"""The slice of rows that have no value in its column."""

NUMBERS = (Family.WHOLE, Family.FRACTION)
_SECONDS_TEXT = "^[0-9]{1,12}$"
_DATE_TEXT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"

IMPRESSIONS = "tulle_impressions"
CONVERSIONS = "tulle_conversions"


@dataclasses.dataclass(frozen=True)
class CarriedColumn:
    """A column of a table that later steps need, and the name they know it by."""

    name: str
    column: str
    is_time: bool = False
    """Carried as microseconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogTypes:
    """Types of the columns of both tables. Public."""

    impressions: Mapping[str, str]
    conversions: Mapping[str, str] | None

    def of(self, side: Side) -> Mapping[str, str]:
        """Those of one table."""
        if side is Side.IMPRESSION:
            return self.impressions
        if self.conversions is None:
            raise ConfigError("the log has no conversions; name their table.")
        return self.conversions


def log_types(engine: Engine, log: AdLog) -> LogTypes:
    """Looks the column types of both tables up."""
    conversions = None if log.conversions is None else engine.column_types(log.conversions)
    return LogTypes(impressions=engine.column_types(log.impressions), conversions=conversions)


def log_sources(log: AdLog) -> dict[str, TableSource]:
    """The log's tables by the names that steps use."""
    sources = {IMPRESSIONS: log.impressions}
    if log.conversions is not None:
        sources[CONVERSIONS] = log.conversions
    return sources


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogTables:
    """Makes the first step of each table and says what is in it."""

    log: AdLog
    types: LogTypes
    impression_columns: tuple[CarriedColumn, ...] = ()
    conversion_columns: tuple[CarriedColumn, ...] = ()

    @property
    def match_keys(self) -> tuple[str, ...]:
        """Columns that a conversion and its impressions have in common."""
        return ("u",) if self.log.columns.advertiser is None else ("u", "a")

    def carried(self, side: Side) -> tuple[CarriedColumn, ...]:
        """Columns that one table's step has beside keys and time."""
        return self.impression_columns if side is Side.IMPRESSION else self.conversion_columns

    def step(self, side: Side, *, name: str) -> Step:
        """Rows of one table under our names: u, a (advertiser), t (microseconds), and carried."""
        columns = self.log.columns
        time = columns.impression_time if side is Side.IMPRESSION else columns.conversion_time
        parts = [f"{self._key_sql(columns.user, side)} AS u"]
        if columns.advertiser is not None:
            parts.append(f"{self._key_sql(columns.advertiser, side)} AS a")
        parts.append(f"{self.micros(time, side)} AS t")
        for carried in self.carried(side):
            is_time = carried.is_time
            value = self.micros(carried.column, side) if is_time else identifier(carried.column)
            parts.append(f"{value} AS {carried.name}")
        table = IMPRESSIONS if side is Side.IMPRESSION else CONVERSIONS
        sql = f"SELECT {', '.join(parts)} FROM {table}"
        return Step(name, sql, is_cheap=True)

    def name_of(self, column: SliceColumn) -> str:
        """The name that steps know a slice's column by."""
        return next(
            carried.name
            for carried in self.carried(column.side)
            if (carried.column, carried.is_time) == (column.column, column.is_day)
        )

    def slice_text(self, column: SliceColumn, expression: str) -> str:
        """What rows are compared by: text, with a text of its own for no value."""
        return value_text(_date(expression) if column.is_day else expression)

    def slice_value(self, column: SliceColumn, expression: str) -> str:
        """The same, but a date or whole number as it is: narrower, and equal where its text is.

        `value_text` makes the text of it.
        """
        if column.is_day:
            return _date(expression)
        types = self.types.of(column.side)
        is_whole = family_of(types.get(column.column, "")) is Family.WHOLE
        return expression if is_whole else self.slice_text(column, expression)

    def micros(self, column: str, side: Side) -> str:
        """A time as microseconds since 1970."""
        family = require_column(self.types.of(side), column, what=f"{side.value}s (time)")
        quoted = identifier(column)
        if family is Family.TIME:
            return f"EPOCH_US({quoted})"
        if family in NUMBERS:
            return f"CAST({quoted} AS BIGINT) * {MICROS}"
        if family is Family.TEXT:
            return _text_micros(quoted)
        raise DataError(
            f"{side.value}s: time column {column!r} has {family.value}; it needs whole seconds "
            "since 1970, dates or timestamps."
        )

    def _key_sql(self, column: str, side: Side) -> str:
        families = {
            other: require_column(self.types.of(other), column, what=f"{other.value}s (key)")
            for other in (Side.IMPRESSION, Side.CONVERSION)
            if other is Side.IMPRESSION or self.types.conversions is not None
        }
        quoted = identifier(column)
        if families[side] is Family.FRACTION:
            quoted = f"CAST({quoted} AS BIGINT)"
        are_numbers = all(family in NUMBERS for family in families.values())
        types = {self.types.of(other)[column].lower() for other in families}
        # 7 and '7' are the same user; dates and texts are compared as text, too.
        return quoted if are_numbers or len(types) == 1 else f"CAST({quoted} AS VARCHAR)"


def value_text(expression: str) -> str:
    """The text of a slice's value."""
    return f"COALESCE(CAST({expression} AS VARCHAR), {text_literal(NULL_TEXT)})"


def number_or_null(expression: str, family: Family) -> str:
    """A number as a double; null for a text that is none."""
    if family is Family.TEXT:
        return f"TRY_CAST(CAST({expression} AS VARCHAR) AS DOUBLE)"
    return f"CAST({expression} AS DOUBLE)"


def is_finite(number: str) -> str:
    """That a double is neither null, NaN nor infinite.

    Statistics of Parquet know no NaN: DuckDB takes what they say of `x <= 1` or `ISNAN(x)` for
    true of all rows and never looks. It looks at a difference.
    """
    return f"COALESCE({number} - {number} = 0, FALSE)"


def carry(columns: Sequence[tuple[str, bool]], *, prefix: str) -> tuple[CarriedColumn, ...]:
    """Names for distinct (column, is_time) pairs, in their order."""
    distinct = list(dict.fromkeys(columns))
    return tuple(
        CarriedColumn(f"{prefix}{index}", column, is_time)
        for index, (column, is_time) in enumerate(distinct)
    )


def _date(micros: str) -> str:
    # Rounds a quotient that is whole, since engines divide whole numbers as floats.
    days = f"(({micros}) - ({micros}) % {DAY_MICROS}) / {DAY_MICROS}"
    return f"CAST('1970-01-01' AS DATE) + CAST(ROUND({days}) AS INTEGER)"


def _text_micros(column: str) -> str:
    """Of whole seconds, or of an ISO date or timestamp (UTC where it names no zone).

    Each text by itself: null for all others. A cast alone would round '1.5' to seconds.
    """
    text = f"CAST({column} AS VARCHAR)"
    seconds = f"TRY_CAST({text} AS BIGINT) * {MICROS}"
    moment = f"EPOCH_US(TRY_CAST({text} AS TIMESTAMPTZ))"
    return (
        f"CASE WHEN REGEXP_MATCHES({text}, {text_literal(_SECONDS_TEXT)}) THEN {seconds} "
        f"WHEN REGEXP_MATCHES({text}, {text_literal(_DATE_TEXT)}) THEN {moment} END"
    )
