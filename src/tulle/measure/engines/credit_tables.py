"""Exact credit by several rules at once, for those who hold the log. Not private.

Rules share the work: impressions are matched and ordered once.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import polars as pl

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, Side
from tulle.measure.attribution.rules import Attribution, LastTouch
from tulle.measure.engines.contributions import slice_select
from tulle.measure.engines.credit import all_credit_steps
from tulle.measure.engines.engine import Engine, Program, Step, require_column
from tulle.measure.engines.log_tables import (
    MICROS,
    CarriedColumn,
    LogTables,
    carried_columns,
    log_sources,
    log_types,
    role_columns,
    value_text,
)
from tulle.measure.engines.matching import Matching
from tulle.measure.engines.sql_text import column_list, equal_columns, identifier
from tulle.measure.slice_jobs import SliceColumn


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExactCredit:
    """Exact credit by one or several rules. Not private: for those who may see the log itself."""

    is_private: ClassVar[bool] = False

    path: Path | None
    """The file with one row for each impression with a share; None if none was asked for."""
    row_key: tuple[str, ...]
    """Columns of the rows that say what a row is about."""
    missing_ids: tuple[str, ...]
    """Ids that the log does not have: without them a row is known by its time."""
    rows: pl.DataFrame | None = dataclasses.field(default=None, repr=False)
    """The rows, where they stay in memory. Sensitive."""
    totals: pl.DataFrame | None = dataclasses.field(default=None, repr=False)
    """Credit by slice, one column for each rule; None if no slices were named. Sensitive."""

    def to_polars(self) -> pl.DataFrame:
        """The totals where slices were named, else the rows."""
        if self.totals is not None:
            return self.totals
        if self.rows is not None:
            return self.rows
        raise ConfigError(f"the rows of credit are in {self.path}; read them from there.")


def exact_credit(
    engine: Engine,
    log: AdLog,
    attributions: Sequence[Attribution],
    *,
    by: Sequence[str] = (),
    path: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ExactCredit:
    """Shares credit by several rules at once, as rows, totals or both.

    Args:
      engine: Where it runs.
      log: The tables, which `check_log` found right.
      attributions: Rules with the same lookbacks and limits.
      by: Columns of impressions to add up by.
      path: Where rows are written; None keeps them in memory, or leaves them out for totals.
      say: Function that is told what is being done.

    Privacy:
      Not private: exact rows and totals of users. Never let them out.
    """
    columns = log.columns
    types = engine.column_types(log.impressions)
    for name in by:
        require_column(types, name, what="impressions (by)")
        if list(by).count(name) > 1:
            raise ConfigError(f"by names {name!r} twice; name each column once.")
    rows = totals = None
    if path is not None:
        say("writing credits")
    if path is not None or not by:
        rows = credit_rows(engine, log, attributions, path)
    if by:
        say("adding up")
        slices = [SliceColumn(name=name, side=Side.IMPRESSION, column=name) for name in by]
        totals = credit_totals(engine, log, attributions, slices)
    ids = {"conversion": columns.conversion_id, "impression": columns.impression_id}
    known_by = [f"{side}_{'time' if own is None else 'id'}" for side, own in ids.items()]
    return ExactCredit(
        path=path,
        row_key=(*columns.owners(), *known_by),
        missing_ids=tuple(f"{side}_id" for side, own in ids.items() if own is None),
        rows=rows,
        totals=totals,
    )


def credit_rows(
    engine: Engine, log: AdLog, attributions: Sequence[Attribution], path: Path | None = None
) -> pl.DataFrame | None:
    """One row for each impression with a share in a conversion, one column for each rule.

    Args:
      engine: Where it runs.
      log: The tables, which `check_log` found right.
      attributions: Rules with the same lookbacks and limits.
      path: New Parquet file for the rows (on Spark a folder); None returns them.

    Privacy:
      Not private: exact rows of users. Never let it out.
    """
    program = _credits_program(engine, log, attributions)
    if path is not None:
        engine.write(program, path)
        return None
    (rows,) = engine.run(program)
    return pl.DataFrame({name: pl.Series(name, values) for name, values in rows.items()})


def credit_totals(
    engine: Engine,
    log: AdLog,
    attributions: Sequence[Attribution],
    slices: Sequence[SliceColumn],
) -> pl.DataFrame:
    """Exact credit of every rule, added up by slice and sorted; one column for each rule.

    Args:
      engine: Where it runs.
      log: The tables, which `check_log` found right.
      attributions: Rules with the same lookbacks and limits.
      slices: Columns to add up by; none for one total.

    Privacy:
      Not private: exact totals without bounds. Use `slice_totals` and a release instead.
    """
    shared = _shared_matching(attributions)
    carried = carried_columns(Side.IMPRESSION, slices)
    tables = dataclasses.replace(
        _tables(engine, log, attributions),
        impression_columns=(*role_columns(log, attributions), *carried),
        conversion_columns=carried_columns(Side.CONVERSION, slices),
    )
    matching = Matching(tables=tables, attribution=shared)
    rules = [attribution.rule for attribution in attributions]
    steps = all_credit_steps(matching, rules, has_asof_join=engine.has_asof_join)
    steps += _total_steps(tables, slices, len(rules))
    program = Program(tables=log_sources(log), steps=tuple(steps), outputs=(steps[-1].name,))
    (rows,) = engine.run(program)
    names = [column.name for column in slices]
    frame = {
        name: pl.Series(name, list(rows[f"s{index}"]), pl.String)
        for index, name in enumerate(names)
    } | {
        name: pl.Series(name, rows[f"r{index}"], pl.Float64)
        for index, name in enumerate(rule_names(attributions))
    }
    totals = pl.DataFrame(frame)
    return totals.sort(names) if names else totals


def rule_names(attributions: Sequence[Attribution]) -> list[str]:
    """A column name for each rule; the second of a name is e.g. "time-decay 2"."""
    names: list[str] = []
    for attribution in attributions:
        name = attribution.rule.name
        number = sum(other.split(" ")[0] == name for other in names) + 1
        names.append(name if number == 1 else f"{name} {number}")
    return names


def _credits_program(engine: Engine, log: AdLog, attributions: Sequence[Attribution]) -> Program:
    shared = _shared_matching(attributions)
    tables = _tables(engine, log, attributions)
    matching = Matching(tables=tables, attribution=shared)
    rules = [attribution.rule for attribution in attributions]
    steps = all_credit_steps(matching, rules, has_asof_join=engine.has_asof_join)
    columns = log.columns
    owners = zip(tables.match_keys, columns.owners(), strict=True)
    selected = [f"c.{own} AS {identifier(name)}" for own, name in owners]
    source = "credited c"
    if columns.conversion_id is not None:
        same = equal_columns("v", "c", tables.match_keys)
        source += f" JOIN conv v ON {same} AND v.t = c.ct"
        selected.append("v.conversion_id AS conversion_id")
    else:
        selected.append("c.num AS num_conversions")
    selected.append("MAKE_TIMESTAMP(c.ct) AS conversion_time")
    if columns.impression_id is not None:
        selected.append("c.id AS impression_id")
    selected.append("MAKE_TIMESTAMP(c.it) AS impression_time")
    selected.append(f"CAST(c.ct - c.it AS DOUBLE) / {MICROS} AS age_seconds")
    selected += [
        f"c.r{index} AS {identifier(name)}" for index, name in enumerate(rule_names(attributions))
    ]
    steps.append(Step("credit_rows", f"SELECT {column_list(selected)} FROM {source}"))
    return Program(tables=log_sources(log), steps=tuple(steps), outputs=("credit_rows",))


def _total_steps(tables: LogTables, slices: Sequence[SliceColumn], num_rules: int) -> list[Step]:
    has_details = any(column.side is Side.CONVERSION for column in slices)
    same = equal_columns("v", "c", tables.match_keys)
    join = f" JOIN conv v ON {same} AND v.t = c.ct" if has_details else ""
    number = "1" if has_details else "c.num"
    sides = {Side.IMPRESSION: "c", Side.CONVERSION: "v"}
    values = slice_select(slices, tables, sides, is_text=False)
    shares = [f"c.r{index} * {number} AS r{index}" for index in range(num_rules)]
    rows = f"SELECT {column_list([*values, *shares])} FROM credited c{join}"
    names = [f"v.s{index}" for index in range(len(slices))]
    texts = [f"{value_text(f'v.s{index}')} AS s{index}" for index in range(len(slices))]
    sums = [f"COALESCE(SUM(r{index}), 0) AS r{index}" for index in range(num_rules)]
    group = f" GROUP BY {column_list(names)}" if names else ""
    totals = f"SELECT {column_list([*texts, *sums])} FROM credit_rows v{group}"
    return [Step("credit_rows", rows), Step("credit_sums", totals)]


def _shared_matching(attributions: Sequence[Attribution]) -> Attribution:
    if not attributions:
        raise ConfigError("name at least one attribution.")
    bare = [dataclasses.replace(attribution, rule=LastTouch()) for attribution in attributions]
    if any(other != bare[0] for other in bare):
        raise ConfigError(
            "attributions that are computed at once must have the same lookbacks and limits; "
            "only their rules may differ."
        )
    if bare[0].max_conversions_per_user is not None:
        raise ConfigError("max_conversions_per_user is for releases; leave it out here.")
    return bare[0]


def _tables(engine: Engine, log: AdLog, attributions: Sequence[Attribution]) -> LogTables:
    if log.conversions is None:
        raise ConfigError("attribution needs the table of conversions; name it.")
    log.columns.needed_time(Side.IMPRESSION)
    columns = log.columns
    own_id = (
        ()
        if columns.conversion_id is None
        else (CarriedColumn("conversion_id", columns.conversion_id),)
    )
    return LogTables(
        log=log,
        types=log_types(engine, log),
        impression_columns=tuple(role_columns(log, attributions)),
        conversion_columns=own_id,
    )
