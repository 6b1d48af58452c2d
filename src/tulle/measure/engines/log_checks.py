"""Everything that can be wrong with a log, found before anything is spent.

Messages name columns and limits, never rows: they end up in logs.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tulle.data.row_arrays import DOUBTFUL_TIME, MOST_DOUBTFUL_TIME
from tulle.data.schema import Kind
from tulle.data.tables.kinds import NO_FLAG
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import DAY_SECONDS, MAX_SECONDS, AdLog, Side
from tulle.measure.attribution.rules import MAX_LOOKBACK_SECONDS, Attribution, ChannelWeights
from tulle.measure.engines.contributions import check_keys
from tulle.measure.engines.engine import (
    Engine,
    Family,
    Program,
    Rows,
    Step,
    family_of,
    require_column,
    source_name,
)
from tulle.measure.engines.log_tables import (
    CONVERSIONS,
    IMPRESSIONS,
    MICROS,
    NUMBERS,
    LogTables,
    LogTypes,
    flag_text,
    is_finite,
    log_sources,
    log_types,
    number_or_null,
)
from tulle.measure.engines.sql_text import identifier
from tulle.measure.slice_jobs import SliceJob
from tulle.privacy.fields import did_you_mean

_MEND = "correct it, or change its kind in [columns] kinds"
"""Way out of a value that is none of its kind."""
_Check = tuple[str, str]
"""SQL of a condition that no row may meet, and what is said of a row that does."""
_DAY_FAMILIES = (Family.TIME, *NUMBERS, Family.TEXT)
"""Families of columns that days can be told from."""


def check_log(
    engine: Engine,
    log: AdLog,
    *,
    jobs: Sequence[SliceJob] = (),
    attributions: Sequence[Attribution] = (),
) -> tuple[int, int]:
    """Raises an error that says what is wrong with the log for these jobs, if anything is.

    Args:
      engine: Reads both tables once.
      log: The tables.
      jobs: Their columns must be there, and their values and keys right.
      attributions: Their columns must be there; lookbacks say how far apart tables may be.

    Returns:
      The first and the last second of the log; 0 where rows have no time.

    Privacy:
      Sensitive: whether it raises, and what it returns, follows from raw rows. It is for the
      eyes of those who hold the log.
    """
    types = log_types(engine, log)
    _check_columns(log, types, jobs, attributions)
    tables = LogTables(log=log, types=types)
    sides = [Side.IMPRESSION] if log.conversions is None else list(Side)
    spans = {}
    for side in sides:
        checks = [*_row_checks(tables, side, jobs), *_slice_checks(tables, side, jobs)]
        spans[side] = _checked(engine, tables, side, checks)
    if len(spans) == 2:
        _check_overlap(spans[Side.IMPRESSION], spans[Side.CONVERSION], attributions)
    first, last = min(span[0] for span in spans.values()), max(span[1] for span in spans.values())
    return first // MICROS, last // MICROS


def _check_columns(
    log: AdLog,
    types: LogTypes,
    jobs: Sequence[SliceJob],
    attributions: Sequence[Attribution],
) -> None:
    for side, role, column in _roles(log, attributions):
        if side is Side.CONVERSION and types.conversions is None:
            continue
        family = require_column(types.of(side), column, what=f"{side.value}s ({role})")
        if role in ("value", "priority") and family not in (*NUMBERS, Family.TEXT):
            raise DataError(
                f"{side.value}s: {role} column {column!r} has {family.value}, not numbers."
            )
    _check_kinds(log, types, jobs)
    for job in jobs:
        check_keys(job)
        for slice_column in job.slices:
            what = f"{slice_column.side.value}s (slice {slice_column.name!r})"
            family = require_column(types.of(slice_column.side), slice_column.column, what=what)
            if slice_column.is_day and family not in _DAY_FAMILIES:
                raise DataError(f"{what}: days need a time, but there is {family.value}.")
        for amount in job.amounts:
            if amount.column is not None:
                what = f"conversions (amount {amount.name!r})"
                family = require_column(types.of(Side.CONVERSION), amount.column, what=what)
                if family not in (*NUMBERS, Family.TEXT):
                    raise DataError(
                        f"{what}: column {amount.column!r} has {family.value}, not numbers."
                    )
        if job.only_kinds and log.columns.kind is None:
            raise ConfigError(
                f"job {job.name!r}: only_kinds needs the log's kind column; set kind=…."
            )


def _check_kinds(log: AdLog, types: LogTypes, jobs: Sequence[SliceJob]) -> None:
    """Refuses kinds of columns that are not there, or that a slice cannot have."""
    known = [*types.impressions, *(types.conversions or ())]
    for name in log.columns.kinds:
        if name not in known:
            raise DataError(
                f"kinds names column {name!r}, which no table has{did_you_mean(name, known)}; "
                "correct it or leave it out."
            )
    for column in (column for job in jobs for column in job.slices if not column.is_day):
        kind = log.columns.kind_of(column.column)
        if kind in (Kind.TIMESTAMP, Kind.INTEGER):
            raise ConfigError(
                f"slice {column.name!r}: column {column.column!r} is declared {kind.value}, which "
                "is for times; a slice is categorical or boolean."
            )


def _roles(log: AdLog, attributions: Sequence[Attribution]) -> Iterable[tuple[Side, str, str]]:
    columns = log.columns
    for side in Side:
        for role, column in (("user", columns.user), ("time", columns.time(side))):
            if column is not None:
                yield side, role, column
    for side, roles in (
        (Side.IMPRESSION, ("advertiser", "publisher", "impression_id", "kind", "priority")),
        (Side.CONVERSION, ("advertiser", "conversion_id", "value")),
    ):
        for role in roles:
            if getattr(columns, role) is not None:
                yield side, role, getattr(columns, role)
    for attribution in attributions:
        if isinstance(attribution.rule, ChannelWeights):
            yield Side.IMPRESSION, "channel", attribution.rule.column


def _row_checks(tables: LogTables, side: Side, jobs: Sequence[SliceJob]) -> Iterator[_Check]:
    """Users, times, ids and numbers: each row needs those that it is asked for."""
    columns = tables.log.columns
    types = tables.types.of(side)
    what = f"{side.value}s ({source_name(log_sources(tables.log)[_table(side)])})"
    time = columns.time(side)
    roles = [("user", columns.user), ("advertiser", columns.advertiser)]
    if side is Side.IMPRESSION:
        roles += [("publisher", columns.publisher)]
    for role, column in (*roles, ("time", time), *_ids(tables, side)):
        if column is not None:
            family = require_column(types, column, what=what)
            named = f"{what}: {role} column {column!r}"
            yield from _missing_checks(named, column, family, is_time=role == "time")
    if time is not None:
        yield from _time_checks(tables, side, time, what=f"{what}: time column {time!r}")
    if side is Side.CONVERSION:
        used = {columns.value, *(amount.column for job in jobs for amount in job.amounts)}
        for column in sorted(name for name in used if name is not None):
            named = f"{what}: value column {column!r}"
            yield from _number_checks(named, column, types, least="0", rest="must be >= 0")
    elif columns.priority is not None:
        named = f"{what}: priority column {columns.priority!r}"
        rest = "must be finite"
        yield from _number_checks(named, columns.priority, types, least="-1e300", rest=rest)


def _time_checks(tables: LogTables, side: Side, time: str, *, what: str) -> Iterator[_Check]:
    micros = f"({tables.micros(time, side)})"
    counted, smaller = "seconds", "Milliseconds? Divide them by 1000 in all rows"
    if tables.log.columns.kind_of(time) is Kind.INTEGER:
        counted, smaller = "days", "Seconds? Declare them as kind timestamp"
    if family_of(tables.types.of(side)[time]) is Family.TEXT:
        yield (
            f"{identifier(time)} IS NOT NULL AND {micros} IS NULL",
            f"{what} has text that is no time; it needs {counted} since 1970 (not milliseconds), "
            "or dates and timestamps such as 2026-01-14 23:30:00+00:00.",
        )
    yield (
        _seconds_range(tables, time, side, micros),
        f"{what} has times outside of the years 1970 to 5138 when read as {counted}. {smaller}, or "
        "store timestamps.",
    )
    yield from _doubt_checks(tables, side, time, what)


def _doubt_checks(tables: LogTables, side: Side, time: str, what: str) -> Iterator[_Check]:
    """Numbers that may count days, where nothing says what they count."""
    family = family_of(tables.types.of(side)[time])
    if family is not Family.TIME and tables.log.columns.kind_of(time) is None:
        yield (
            f"ABS({number_or_null(identifier(time), family)}) <= {MOST_DOUBTFUL_TIME}",
            f'{what} {DOUBTFUL_TIME}; say which by kinds = {{{time} = "integer"}} for days, '
            '"timestamp" for seconds ([columns] kinds, or --column-kind).',
        )


def _slice_checks(tables: LogTables, side: Side, jobs: Sequence[SliceJob]) -> Iterator[_Check]:
    """Days must be read as times without a doubt, and booleans as their words, or be empty."""
    slices = [column for job in jobs for column in job.slices if column.side is side]
    for column in {(each.column, each.is_day): each for each in slices}.values():
        what, quoted = f"{side.value}s (slice {column.name!r})", identifier(column.column)
        named = f"{what}: column {column.column!r}"
        if column.is_day:
            yield from _doubt_checks(tables, side, column.column, named)
            if family_of(tables.types.of(side)[column.column]) is Family.TEXT:
                yield (
                    f"{quoted} IS NOT NULL AND ({tables.micros(column.column, side)}) IS NULL",
                    f"{what}: days need a time, but there is text that is none; use seconds since "
                    "1970, or dates such as 2026-01-14.",
                )
        elif tables.log.columns.kind_of(column.column) is Kind.BOOLEAN:
            yield (
                f"{quoted} IS NOT NULL AND ({flag_text(quoted)}) IS NULL",
                f"{named} {NO_FLAG} in some row; {_MEND}.",
            )


def _number_checks(
    what: str, column: str, types: Mapping[str, str], *, least: str, rest: str
) -> Iterator[_Check]:
    quoted = identifier(column)
    family = require_column(types, column, what=what)
    number = number_or_null(quoted, family)
    is_right = f"{number} >= {least} AND {number} <= 1e300 AND {is_finite(number)}"
    if family is Family.TEXT:
        yield (
            f"{quoted} IS NOT NULL AND {number} IS NULL",
            f"{what} has text that is not numbers; write e.g. 12.5.",
        )
    yield (
        f"{number} IS NOT NULL AND NOT ({is_right})",
        f"{what} has negative, infinite or NaN values; they {rest}. Drop or correct those rows "
        "first.",
    )


def _missing_checks(what: str, column: str, family: Family, *, is_time: bool) -> Iterator[_Check]:
    quoted = identifier(column)
    yield f"{quoted} IS NULL", f"{what} has nulls; drop those rows first, each row needs one."
    if family is Family.FRACTION:
        number = f"CAST({quoted} AS DOUBLE)"
        is_right, problem = is_finite(number), "has infinite values or NaN; drop those rows first"
        if not is_time:
            is_whole = f"{number} >= -9e15 AND {number} <= 9e15 AND {number} = FLOOR({number})"
            is_right = f"{is_whole} AND {is_right}"
            problem = "has fractions or NaN; cast it to whole numbers first"
        yield f"{quoted} IS NOT NULL AND NOT ({is_right})", f"{what} {problem}."


def _seconds_range(tables: LogTables, time: str, side: Side, micros: str) -> str:
    family = require_column(tables.types.of(side), time, what=side.value)
    if family in (Family.TIME, Family.TEXT):
        return f"NOT ({micros} >= 0 AND {micros} <= {MAX_SECONDS * MICROS})"
    number = f"CAST({identifier(time)} AS DOUBLE)"
    is_days = tables.log.columns.kind_of(time) is Kind.INTEGER
    most = MAX_SECONDS // DAY_SECONDS if is_days else MAX_SECONDS
    return f"NOT ({number} >= 0 AND {number} <= {most})"


def _checked(
    engine: Engine, tables: LogTables, side: Side, checks: list[_Check]
) -> tuple[int, int]:
    table = _table(side)
    source = log_sources(tables.log)[table]
    counts = ["COUNT(*) AS num_rows"]
    counts += [
        f"CAST(SUM(CASE WHEN {bad} THEN 1 ELSE 0 END) AS BIGINT) AS bad{index}"
        for index, (bad, _) in enumerate(checks)
    ]
    scan = f"SELECT {', '.join(counts)} FROM {table}"
    (rows,) = _run(engine, table, tables, [Step("scan", scan)])
    if int(rows["num_rows"][0]) == 0:
        raise DataError(f"{side.value}s ({source_name(source)}) have no rows; check the file.")
    for index, (_, message) in enumerate(checks):
        if int(rows[f"bad{index}"][0] or 0) > 0:
            raise DataError(message)
    for role, column in _ids(tables, side):
        quoted = identifier(column)
        doubles = f"SELECT 1 AS one FROM {table} GROUP BY {quoted} HAVING COUNT(*) > 1"
        some = "SELECT COUNT(*) AS num_rows FROM (SELECT one FROM doubles LIMIT 1) AS listed"
        (found,) = _run(engine, table, tables, [Step("doubles", doubles), Step("found", some)])
        if int(found["num_rows"][0]):
            raise DataError(
                f"{side.value}s ({source_name(source)}): {role} column {column!r} has the same id "
                "more than once; keep one row of each, or leave the id out."
            )
    time = tables.log.columns.time(side)
    if time is None:
        return 0, 0
    micros = tables.micros(time, side)
    span = f"SELECT MIN({micros}) AS first, MAX({micros}) AS last FROM {table}"
    (times,) = _run(engine, table, tables, [Step("span", span)])
    return int(times["first"][0]), int(times["last"][0])


def _check_overlap(
    impressions: tuple[int, int], conversions: tuple[int, int], attributions: Sequence[Attribution]
) -> None:
    (first_shown, last_shown), (first_bought, last_bought) = impressions, conversions
    is_moment = first_shown == last_shown
    if last_bought < first_shown or (last_bought == first_shown and not is_moment):
        raise DataError(
            "all conversions lie before the first impression or at its time; are both time columns "
            "in the same unit, and the files of the same period?"
        )
    lookback = max(
        (attribution.lookback_seconds for attribution in attributions), default=MAX_LOOKBACK_SECONDS
    )
    if first_bought > last_shown + lookback * MICROS:
        raise DataError(
            f"all conversions lie more than lookback_seconds={lookback} after the last impression; "
            "are both time columns in the same unit, and the files of the same period?"
        )


def _ids(tables: LogTables, side: Side) -> list[tuple[str, str]]:
    role = f"{side.value}_id"
    column = getattr(tables.log.columns, role)
    return [] if column is None else [(role, column)]


def _table(side: Side) -> str:
    return IMPRESSIONS if side is Side.IMPRESSION else CONVERSIONS


def _run(engine: Engine, table: str, tables: LogTables, steps: list[Step]) -> list[Rows]:
    sources = {table: log_sources(tables.log)[table]}
    return engine.run(Program(tables=sources, steps=tuple(steps), outputs=(steps[-1].name,)))
