"""The log under names of our own: users, times in microseconds, units, and what the steps need.

Steps after these know nothing of the user's column names, and only columns that a job, a rule or
the unit needs are read. A column is carried as it is; what a slice is compared by is its text,
which `slice_text` makes as late as possible.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from tulle.data.schema import Kind
from tulle.data.tables.kinds import FLAG_TEXTS, ISO_TIME
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, Side, TableSource
from tulle.measure.attribution.rules import Attribution, ChannelWeights, PriorityTouch
from tulle.measure.engines.engine import Engine, Family, Step, family_of, require_column
from tulle.measure.engines.sql_text import float_literal, identifier, text_literal
from tulle.measure.engines.window_sql import date_sql, window_sql
from tulle.measure.slice_jobs import Amount, SliceColumn, SliceJob
from tulle.privacy.units import Owner, Unit
from tulle.privacy.windows import TimeWindows

MICROS = 1_000_000
"""Microseconds of a second, in which steps count time."""
DAY_MICROS = 86_400 * MICROS
"""Microseconds of a day: columns of whole numbers may count days, and are brought to the same
steps."""
NULL_TEXT = "(null)"
"""The slice of rows that have no value in its column."""
NUMBERS = (Family.WHOLE, Family.FRACTION)
"""Families of columns that hold numbers."""
_ABSENT = "CAST(0 AS BIGINT)"
"""What a column holds that the log does without: the same in every row."""
_DIGITS = {MICROS: 12, DAY_MICROS: 7}
"""Most digits before the point of a number in text, by what it counts: seconds or days. They
reach beyond every year, and as microseconds fit 64 bits."""
IMPRESSIONS = "tulle_impressions"
"""What programs call the table of impressions."""
CONVERSIONS = "tulle_conversions"
"""What programs call the table of conversions."""


@dataclasses.dataclass(frozen=True)
class CarriedColumn:
    """A column of a table that later steps need, and the name they know it by."""

    name: str
    column: str
    is_time: bool = False
    """Whether it is a time, which is carried as microseconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogTypes:
    """Types of the columns of both tables. Public."""

    impressions: Mapping[str, str]
    conversions: Mapping[str, str] | None

    def of(self, side: Side) -> Mapping[str, str]:
        """Types of the columns of one table."""
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
        columns, time = self.log.columns, self.log.columns.time(side)
        # What nobody asks for is the same in every row.
        user = _ABSENT if columns.user is None else self._key_sql(columns.user, side)
        parts = [f"{user} AS u"]
        if columns.advertiser is not None:
            parts.append(f"{self._key_sql(columns.advertiser, side)} AS a")
        parts.append(f"{_ABSENT if time is None else self.micros(time, side)} AS t")
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
        return value_text(
            date_sql(expression) if column.is_day else self._plain(column, expression)
        )

    def slice_value(self, column: SliceColumn, expression: str) -> str:
        """What rows are compared by, but a date or whole number as it is, which is narrower.

        `value_text` makes the text of it.
        """
        if column.is_day:
            return date_sql(expression)
        is_plain = self.log.columns.kind_of(column.column) is not Kind.BOOLEAN
        is_whole = self._family(column) is Family.WHOLE
        return expression if is_whole and is_plain else self.slice_text(column, expression)

    def micros(self, column: str, side: Side) -> str:
        """A time as microseconds since 1970."""
        family = require_column(self.types.of(side), column, what=f"{side.value}s (time)")
        quoted = identifier(column)
        # What a number of the column counts.
        size = DAY_MICROS if self.log.columns.kind_of(column) is Kind.INTEGER else MICROS
        if family is Family.TIME and size == MICROS:
            return f"EPOCH_US({quoted})"
        if family is Family.WHOLE:
            return f"CAST({quoted} AS BIGINT) * {size}"
        if family is Family.FRACTION:
            return f"CAST(ROUND(CAST({quoted} AS DOUBLE) * {size}) AS BIGINT)"
        if family is Family.TEXT:
            return _text_micros(quoted, size)
        wanted = "seconds since 1970, dates or timestamps"
        if size == DAY_MICROS:
            wanted = "numbers of days since 1970, as kinds says"
        raise DataError(
            f"{side.value}s: time column {column!r} has {family.value}; it needs {wanted}."
        )

    def _plain(self, column: SliceColumn, expression: str) -> str:
        """A value whose text is that of its kind, whichever type carries it."""
        if self.log.columns.kind_of(column.column) is Kind.BOOLEAN:
            return flag_text(expression)
        return _float_text(expression) if self._family(column) is Family.FRACTION else expression

    def _family(self, column: SliceColumn) -> Family:
        return family_of(self.types.of(column.side).get(column.column, ""))

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


def tables_for(
    log: AdLog,
    types: LogTypes,
    jobs: Sequence[SliceJob],
    *,
    attributions: Sequence[Attribution] = (),
    unit: Unit | None = None,
) -> LogTables:
    """The log with the columns that jobs, rules and the unit need.

    Args:
      log: The tables.
      types: Types of their columns.
      jobs: What is added up.
      attributions: How conversions are credited.
      unit: Who is protected.
    """
    if unit is not None and unit.windows is not None:
        _check_times(log, types, unit.windows)
    slices = [column for job in jobs for column in job.slices]
    amounts = [amount for job in jobs for amount in job.amounts]
    roles = role_columns(log, attributions, needs_kind=any(job.only_kinds for job in jobs))
    if unit is not None and unit.owner is Owner.USER_PUBLISHER and log.columns.publisher:
        roles.append(CarriedColumn("publisher", log.columns.publisher))
    return LogTables(
        log=log,
        types=types,
        impression_columns=(*roles, *carried_columns(Side.IMPRESSION, slices)),
        conversion_columns=carried_columns(Side.CONVERSION, slices, amounts),
    )


def _check_times(log: AdLog, types: LogTypes, windows: TimeWindows) -> None:
    """Refuses columns of dates and numbers of days, where windows are not those of UTC."""
    for side in Side:
        time = log.columns.time(side)
        if time is None or (side is Side.CONVERSION and types.conversions is None):
            continue
        is_date = types.of(side).get(time, "").lower() == "date"
        if is_date or log.columns.kind_of(time) is Kind.INTEGER:
            windows.check_days(f"{side.value}s: time column {time!r}")


def role_columns(
    log: AdLog, attributions: Sequence[Attribution], *, needs_kind: bool = False
) -> list[CarriedColumn]:
    """Columns of impressions that rules and lookbacks look at.

    Args:
      log: The tables.
      attributions: Rules and lookbacks.
      needs_kind: Whether a job asks for kinds of impressions.
    """
    columns = log.columns
    rules = [attribution.rule for attribution in attributions]
    has_priority = any(isinstance(rule, PriorityTouch) for rule in rules)
    has_kind_lookback = any(attribution.kind_lookback_seconds for attribution in attributions)
    if columns.kind is None and (has_kind_lookback or needs_kind):
        raise ConfigError(
            "kind_lookback_seconds and only_kinds need the log's kind column; set kind=…."
        )
    if has_priority and columns.kind is None and columns.priority is None:
        raise ConfigError(
            "rule 'priority' needs the log's kind or priority column; set kind=… or priority=…."
        )
    roles = []
    if columns.impression_id is not None and attributions:
        roles.append(CarriedColumn("id", columns.impression_id))
    if columns.kind is not None and (has_kind_lookback or needs_kind or has_priority):
        roles.append(CarriedColumn("kind", columns.kind))
    if columns.priority is not None and has_priority:
        roles.append(CarriedColumn("priority", columns.priority))
    channels = {rule.column for rule in rules if isinstance(rule, ChannelWeights)}
    if len(channels) > 1:
        raise ConfigError(f"rules weigh several channel columns ({sorted(channels)}); use one.")
    return [*roles, *(CarriedColumn("channel", channel) for channel in channels)]


def carried_columns(
    side: Side, slices: Iterable[SliceColumn], amounts: Iterable[Amount] = ()
) -> tuple[CarriedColumn, ...]:
    """Columns of one table that slices and amounts need, each once, under names of our own.

    Args:
      side: The table.
      slices: Slices, of either table.
      amounts: Amounts, whose columns are of the conversions.
    """
    wanted = [(column.column, column.is_day) for column in slices if column.side is side]
    wanted += [(amount.column, False) for amount in amounts if amount.column is not None]
    return tuple(
        CarriedColumn(f"{side.value[0]}{index}", column, is_time)
        for index, (column, is_time) in enumerate(dict.fromkeys(wanted))
    )


def unit_columns(unit: Unit) -> tuple[str, ...]:
    """Names of the unit's columns in a job's rows; none if each row is a unit."""
    owner = {
        Owner.USER: ("u",),
        Owner.USER_ADVERTISER: ("u", "a"),
        Owner.USER_PUBLISHER: ("u", "publisher"),
    }.get(unit.owner, ())
    return owner if unit.windows is None else (*owner, "w")


def unit_select(unit: Unit, *, table: str, time: str) -> list[str]:
    """The unit's columns from a table whose time column is `time`.

    Args:
      unit: Who is protected.
      table: The table's name in the statement.
      time: Column with the time, for windows.
    """
    if not unit_columns(unit):
        return []
    selected = [f"{table}.{name} AS {name}" for name in unit_columns(unit) if name != "w"]
    if unit.windows is not None:
        selected.append(f"{window_sql(unit.windows, f'{table}.{time}')} AS w")
    return selected


def has_unit(unit: Unit, *, table: str) -> str:
    """The condition that a row belongs to a unit at all: one without could escape every bound."""
    names = [name for name in unit_columns(unit) if name != "w"]
    return " AND ".join(f"{table}.{name} IS NOT NULL" for name in names) or "1 = 1"


def value_text(expression: str) -> str:
    """The text of a slice's value."""
    return f"COALESCE(CAST({expression} AS VARCHAR), {text_literal(NULL_TEXT)})"


def flag_text(expression: str) -> str:
    """The text of a truth value, true or false; null for a text that is none."""
    word = f"LOWER(CAST({expression} AS VARCHAR))"
    true, false = (
        ", ".join(text_literal(text) for text, flag in FLAG_TEXTS.items() if flag is wanted)
        for wanted in (True, False)
    )
    return f"CASE WHEN {word} IN ({true}) THEN 'true' WHEN {word} IN ({false}) THEN 'false' END"


def number_or_null(expression: str, family: Family) -> str:
    """A number as a double; null for a text that is none."""
    if family is Family.TEXT:
        return f"TRY_CAST(CAST({expression} AS VARCHAR) AS DOUBLE)"
    return f"CAST({expression} AS DOUBLE)"


def is_finite(number: str) -> str:
    """The condition that a double is neither null, NaN nor infinite.

    Statistics of Parquet know no NaN: DuckDB takes what they say of `x <= 1` or `ISNAN(x)` for
    true of all rows and never looks. It looks at a difference.
    """
    return f"COALESCE({number} - {number} = 0, FALSE)"


def _float_text(expression: str) -> str:
    """A whole float as its digits: a gap makes floats of integers in many tables."""
    number = f"CAST({expression} AS DOUBLE)"
    is_whole = f"{number} = FLOOR({number}) AND ABS({number}) < {float_literal(2.0**63)}"
    return (
        f"CASE WHEN NOT {is_finite(number)} THEN NULL WHEN {is_whole} "
        f"THEN CAST(CAST({expression} AS BIGINT) AS VARCHAR) "
        f"ELSE CAST({expression} AS VARCHAR) END"
    )


def _text_micros(column: str, size: int) -> str:
    """Microseconds of a number, or of an ISO date or timestamp (UTC where it names no zone).

    Each text by itself: null for all others.

    Args:
      column: The column, quoted.
      size: Microseconds that a number counts, those of a second or of a day.
    """
    text = f"CAST({column} AS VARCHAR)"
    number = f"TRY_CAST({text} AS DOUBLE)"
    # Whole seconds below 10^12 are exact as doubles, and so is each of them as a whole number.
    whole = f"CAST({number} AS BIGINT) * {size}"
    fraction = f"CAST(ROUND({number} * {size}) AS BIGINT)"
    moment = f"EPOCH_US(TRY_CAST({text} AS TIMESTAMPTZ))"
    digits = f"^[+-]?[0-9]{{1,{_DIGITS[size]}}}"
    cases = [(f"{digits}([.]0*)?$", whole), (f"{digits}[.][0-9]+$", fraction)]
    cases += [(ISO_TIME, moment)] if size == MICROS else []
    listed = " ".join(
        f"WHEN REGEXP_MATCHES({text}, {text_literal(pattern)}) THEN {micros}"
        for pattern, micros in cases
    )
    return f"CASE {listed} END"
