"""What every row brings to a job: the unit, the slice, and whole steps of each amount.

Steps are made row by row, so that all sums that follow are exact and do not depend on the order
in which an engine adds. Slices that nobody wants are dropped here, before anything is bounded;
wanted ones travel to the engine as a table, and come back by their number.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from tulle.errors import ConfigError
from tulle.measure.ad_log import Side
from tulle.measure.engines.engine import Rows, Step
from tulle.measure.engines.log_tables import (
    LogTables,
    has_unit,
    is_finite,
    unit_columns,
    unit_select,
    value_text,
)
from tulle.measure.engines.sql_text import column_list, equal_columns, float_literal, text_literal
from tulle.measure.slice_jobs import (
    NO_IMPRESSION,
    Amount,
    IntArray,
    SliceColumn,
    SliceJob,
    Subject,
)
from tulle.privacy.units import Unit

KEY_NUMBER = "k"
"""Numbers the wanted slices, in place of their texts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contributions:
    """Steps that make the rows of one job."""

    prefix: str
    """What the names of the steps begin with."""
    job: SliceJob
    tables: LogTables
    unit: Unit

    def steps(self) -> list[Step]:
        """Steps; the last is `rows_name`: unit, slice, num (rows that are alike), x0, x1, …."""
        if self.job.subject is Subject.IMPRESSIONS:
            found = self._impression_rows()
        else:
            found = self._conversion_rows()
        return [
            Step(f"{self.prefix}_found", found),
            *_wanted_steps(
                self.prefix,
                self.job,
                carried=(*unit_columns(self.unit), "num", *self.amount_columns),
            ),
        ]

    @property
    def amount_columns(self) -> tuple[str, ...]:
        """x0, x1, … for the amounts and the rest."""
        return tuple(f"x{index}" for index in range(len(self.job.amount_names)))

    def _impression_rows(self) -> str:
        selected = [
            *unit_select(self.unit, table="i", time="t"),
            *self._slices({Side.IMPRESSION: "i"}),
            "1 AS num",
            *self._amounts("CAST(1 AS DOUBLE)", ""),
        ]
        kinds = _kind_condition(self.job, table="i")
        return (
            f"SELECT {', '.join(selected)} FROM imp i WHERE {has_unit(self.unit, table='i')}{kinds}"
        )

    def _conversion_rows(self) -> str:
        attributed = self._conversion_select(is_attributed=True)
        if not self.job.counts_unattributed:
            return attributed
        return f"{attributed} UNION ALL {self._conversion_select(is_attributed=False)}"

    def _conversion_select(self, *, is_attributed: bool) -> str:
        keys = self.tables.match_keys
        has_details = self._needs_conversions
        credit = "c.r0" if is_attributed else "CAST(1 AS DOUBLE)"
        impression = "c" if is_attributed else None
        # Without attributes of conversions, those of one moment are alike and counted.
        conversion, number = ("v", "1") if has_details else ("c", "c.num")
        time = "ct" if is_attributed else "t"
        if is_attributed:
            source = "credited c"
            same = f"{equal_columns('v', 'c', keys)} AND v.t = c.ct"
            source += f" JOIN conv v ON {same}" if has_details else ""
            condition = "c.r0 > 0"
        else:
            source = "conv c" if has_details else "moments c"
            conversion = "c"
            same = f"{equal_columns('k', 'c', keys)} AND k.ct = c.t"
            condition = f"NOT EXISTS (SELECT 1 FROM credited k WHERE {same})"
        sides = {Side.IMPRESSION: impression, Side.CONVERSION: conversion}
        selected = [
            *unit_select(self.unit, table="c", time=time),
            *self._slices(sides),
            f"{number} AS num",
            *self._amounts(credit, conversion),
        ]
        belongs = has_unit(self.unit, table="c")
        return f"SELECT {', '.join(selected)} FROM {source} WHERE {condition} AND {belongs}"

    def _slices(self, sides: Mapping[Side, str | None]) -> list[str]:
        # Keys are texts, and so is what stands for no impression.
        is_text = self.job.keys is not None or self.job.counts_unattributed
        return slice_select(self.job.slices, self.tables, sides, is_text=is_text)

    @property
    def _needs_conversions(self) -> bool:
        return any(column.side is Side.CONVERSION for column in self.job.slices) or any(
            amount.column is not None for amount in self.job.amounts
        )

    def _amounts(self, credit: str, conversion: str) -> list[str]:
        # Rows that are units of their own round down: a conversion's credits must not add up
        # to more than one. Others are rounded, since bounds on units follow.
        is_rounded = bool(unit_columns(self.unit))
        steps = self.job.steps
        whole = [
            _whole_steps(self._amount(amount, credit, conversion), steps, is_rounded=is_rounded)
            for amount in self.job.amounts
        ]
        if self.job.has_rest:
            # The difference of whole steps, not a rounded difference: only so do a row's amounts
            # add up to its credit, which is what the sensitivity counts.
            total = _whole_steps(credit, steps, is_rounded=is_rounded)
            whole.append(f"GREATEST(0, {' - '.join([total, *whole])})")
        return [f"{sql} AS {name}" for sql, name in zip(whole, self.amount_columns, strict=True)]

    def _amount(self, amount: Amount, credit: str, conversion: str) -> str:
        share = "" if amount.share == 1 else f" * {float_literal(amount.share)}"
        if amount.column is None:
            return f"{credit}{share}"
        name = next(
            carried.name
            for carried in self.tables.conversion_columns
            if carried.column == amount.column and not carried.is_time
        )
        clip = float_literal(amount.clip)
        value = f"CAST({conversion}.{name} AS DOUBLE)"
        zero = "CAST(0 AS DOUBLE)"
        # NaN is above all numbers and would count as the clip.
        clipped = (
            f"CASE WHEN {is_finite(value)} THEN LEAST(GREATEST({value}, {zero}), {clip}) "
            f"ELSE {zero} END"
        )
        return f"{credit}{share} * (({clipped}) / {clip})"


def check_job(job: SliceJob) -> None:
    """Refuses amounts that would not add up within a contribution, or that the subject lacks."""
    what = f"job {job.name!r}"
    if job.steps < 1:
        raise ConfigError(f"{what}: steps={job.steps} must be >= 1.")
    # Shares are sums of floats, and 1e-9 of a contribution is less than any step.
    if sum(amount.share for amount in job.amounts) > 1 + 1e-9 or not job.amount_names:
        raise ConfigError(f"{what}: shares of its amounts must add up to at most 1.")
    if job.subject is Subject.IMPRESSIONS:
        needs = [amount.name for amount in job.amounts if amount.column is not None]
        needs += [column.name for column in job.slices if column.side is Side.CONVERSION]
        if needs:
            raise ConfigError(f"{what} counts impressions; {needs[0]!r} is of conversions.")


def check_keys(job: SliceJob) -> None:
    """Refuses keys that are not exactly one distinct text for each slice column."""
    names = [column.name for column in job.slices]
    if len({name.casefold() for name in names}) < len(names):
        raise ConfigError(
            f"job {job.name!r} names a slice twice in {names}, where case makes no difference; "
            "rename one."
        )
    if job.keys is None:
        return
    if list(job.keys.columns) != names:
        raise ConfigError(
            f"job {job.name!r}: its keys have columns {job.keys.columns}, its slices are {names}; "
            "they must be the same, in the same order."
        )
    if not names:
        return
    if any(kind != pl.String for kind in job.keys.dtypes) or any(
        column.null_count() for column in job.keys
    ):
        raise ConfigError(f"job {job.name!r}: keys must be text without nulls; cast them.")
    # A key that is there twice would give its slice two draws of noise for one price.
    if job.keys.height == 0 or job.keys.is_duplicated().any():
        raise ConfigError(f"job {job.name!r}: keys must be distinct, and at least one.")


def keys_frame(job: SliceJob) -> pl.DataFrame:
    """Keys with their number, for the engine, under names of our own."""
    check_keys(job)
    if job.keys is None:
        raise ConfigError(f"job {job.name!r} has no keys.")
    texts = job.keys.rename(dict(zip(job.keys.columns, key_columns(job), strict=True)))
    return texts.with_columns(pl.Series(KEY_NUMBER, np.arange(job.keys.height)))


def result_slices(job: SliceJob, rows: Rows) -> tuple[pl.DataFrame, IntArray]:
    """The slices of a result, and the place of each row among them.

    With keys exactly these, else those that occur, sorted; without slices one place.
    """
    names = [column.name for column in job.slices]
    if not names:
        return pl.DataFrame(), np.zeros(len(next(iter(rows.values()))), np.int64)
    if job.keys is not None:
        return job.keys, np.asarray(rows[KEY_NUMBER], np.int64)
    own = key_columns(job)
    texts = pl.DataFrame(
        {
            name: pl.Series(name, list(rows[f"s{index}"]), pl.String)
            for index, name in enumerate(own)
        }
    )
    distinct = texts.unique().sort(own)
    numbered = distinct.with_row_index(KEY_NUMBER)
    places = texts.join(numbered, on=own, how="left", maintain_order="left")
    slices = distinct.rename(dict(zip(own, names, strict=True)))
    return slices, places[KEY_NUMBER].to_numpy().astype(np.int64)


def slice_columns(job: SliceJob) -> tuple[str, ...]:
    """Names of the columns that tell a job's slices apart."""
    if not job.slices:
        return ()
    if job.keys is not None:
        return (KEY_NUMBER,)
    return tuple(f"s{index}" for index in range(len(job.slices)))


def key_columns(job: SliceJob) -> list[str]:
    """Names of the texts of wanted slices. Our own: engines take Site and site for one."""
    return [f"key{index}" for index in range(len(job.slices))]


def slice_select(
    slices: Sequence[SliceColumn],
    tables: LogTables,
    sides: Mapping[Side, str | None],
    *,
    is_text: bool,
) -> list[str]:
    """The value of each slice column; rows without an impression have a text of their own.

    Args:
      slices: Their columns.
      tables: What is in the log.
      sides: The name of each side's table; None for rows without an impression.
      is_text: Whether texts are made here; else `value_text` makes them of the few that are left.
    """
    return [
        f"{_slice_value(column, tables, sides[column.side], is_text=is_text)} AS s{index}"
        for index, column in enumerate(slices)
    ]


def slice_texts(job: SliceJob, *, table: str) -> list[str]:
    """The columns of `slice_columns`, from a table of values, as the texts of a result."""
    names = slice_columns(job)
    if job.keys is not None:
        return [f"{table}.{name} AS {name}" for name in names]
    return [f"{value_text(f'{table}.{name}')} AS {name}" for name in names]


def _wanted_steps(prefix: str, job: SliceJob, *, carried: tuple[str, ...]) -> list[Step]:
    """Keeps rows of wanted slices, with the number of each slice in place of its texts."""
    names = column_list((*carried, *(f"s{index}" for index in range(len(job.slices)))))
    if job.keys is None or not job.slices:
        return [Step(f"{prefix}_rows", f"SELECT {names} FROM {prefix}_found")]
    same = " AND ".join(f"f.s{index} = w.{name}" for index, name in enumerate(key_columns(job)))
    return [
        Step(
            f"{prefix}_rows",
            f"SELECT {column_list(carried, 'f')}, w.{KEY_NUMBER} AS {KEY_NUMBER} "
            f"FROM {prefix}_found f JOIN {prefix}_keys w ON {same}",
        )
    ]


def _kind_condition(job: SliceJob, *, table: str) -> str:
    """Keeps impressions of the wanted kinds."""
    if not job.only_kinds:
        return ""
    kinds = ", ".join(text_literal(kind) for kind in job.only_kinds)
    return f" AND CAST({table}.kind AS VARCHAR) IN ({kinds})"


def _slice_value(
    column: SliceColumn, tables: LogTables, table: str | None, *, is_text: bool
) -> str:
    if table is None:
        return text_literal(NO_IMPRESSION)
    expression = f"{table}.{tables.name_of(column)}"
    return (tables.slice_text if is_text else tables.slice_value)(column, expression)


def _whole_steps(amount: str, steps: int, *, is_rounded: bool) -> str:
    half = " + CAST('0.5' AS DOUBLE)" if is_rounded else ""
    return f"CAST(FLOOR({amount} * {float_literal(float(steps))}{half}) AS BIGINT)"
