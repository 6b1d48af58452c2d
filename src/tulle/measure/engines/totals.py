"""Exact totals and frequencies per slice, bounded by unit: what every release is made from.

Frequencies are how many units saw 1, 2, … impressions: what a unit has in a slice is bounded as
totals are, and then each unit stands in one cell of each slice that it kept.

Bounds are the last thing before totals. Every step of theirs works on whole numbers >= 0 that
follow from the unit's own rows and the salt alone:

1. `units`: rows of a unit and slice are added up.
2. `capped`: what is above the bound of a slice is scaled down to it.
3. `chosen`: of a unit with too many slices, those that come first by keyed md5 are kept.
4. `scaled`: what is above the bound of a unit is scaled down to it.

Scaling is F(x) = floor(x * cap / total), capped at cap, at the running sums of the parts: a part
gets the difference of F at its two ends. F never falls, so no part is negative; the differences
telescope, so they add up to F(total) = cap. In 4 a part gets no more than it had, so the bound of
a slice still holds, and slices are only ever taken away after 3. Hence for every unit: at most
`max_slices_per_unit` slices, in each at most `max_steps_per_slice`, in all at most
`max_steps_per_unit`.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)
import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, Side
from tulle.measure.attribution.rules import Attribution
from tulle.measure.attribution.sensitivity import check_unit
from tulle.measure.engines.contributions import (
    Contributions,
    check_job,
    keys_frame,
    result_slices,
    slice_columns,
    slice_texts,
)
from tulle.measure.engines.credit import all_credit_steps
from tulle.measure.engines.engine import Engine, Program, Step
from tulle.measure.engines.log_tables import (
    LogTables,
    log_sources,
    log_types,
    tables_for,
    unit_columns,
    value_text,
)
from tulle.measure.engines.matching import Matching
from tulle.measure.engines.sql_text import SALT, column_list, equal_columns, keyed_draw, salt_frame
from tulle.measure.slice_jobs import Bounds, IntArray, SliceJob, SliceTotals, Subject
from tulle.privacy.units import Unit

MAX_TOTAL_STEPS = 1 << 62
"""Sums of steps must stay below it, so that none overflows 64 bits."""


def slice_totals(
    engine: Engine,
    log: AdLog,
    attribution: Attribution | None,
    jobs: Sequence[SliceJob],
    *,
    unit: Unit,
    salt: bytes,
) -> list[SliceTotals]:
    """Totals of every job, with matching and credit done once for all of them.

    Args:
      engine: Where it runs.
      log: The tables, which `check_log` found right.
      attribution: Needed if any job counts conversions.
      jobs: What is counted.
      unit: Unit whose rows are bounded together.
      salt: Key of at least 16 secret random bytes, new for every run. Sensitive: never log it.

    Privacy:
      Releases nothing: totals are exact. Without one unit's rows they differ by at most
      `bounds.max_steps_per_unit(steps)` in L1, and in `max_slices_per_unit` slices by at most
      `max_steps_per_slice` each; of a histogram, one cell of each of these slices differs by 1.
      Units of one row: as the rule says. Relies on: `check_log`.
    """
    if not jobs:
        return []
    rules = [] if attribution is None else [attribution]
    tables = tables_for(log, log_types(engine, log), jobs, attributions=rules, unit=unit)
    _check_overflow(engine, log, jobs)
    program = totals_program(
        tables, attribution, jobs, unit=unit, salt=salt, has_asof_join=engine.has_asof_join
    )
    results = engine.run(program)
    return [
        placed_totals(
            job,
            *result_slices(job, rows),
            [rows[name] for name in _amount_columns(job)],
            rows["num_units"],
        )
        for job, rows in zip(jobs, results, strict=True)
    ]


def placed_totals(
    job: SliceJob,
    slices: pl.DataFrame,
    places: IntArray,
    amounts: Sequence[npt.ArrayLike],
    num_units: npt.ArrayLike,
) -> SliceTotals:
    """Totals of a job from the rows of its result.

    Args:
      job: The job.
      slices: Slices of the totals.
      places: The slice of each row.
      amounts: Whole steps of each amount, or the frequencies of a histogram, one a row each.
      num_units: Units of each row.
    """
    num_slices = slices.height if job.slices else 1
    raw_steps = np.zeros((num_slices, job.num_columns), np.int64)
    raw_unit_counts = np.zeros(num_slices, np.int64)
    if job.is_histogram:
        raw_steps[places, np.asarray(amounts[0], np.int64) - 1] = np.asarray(num_units, np.int64)
        raw_unit_counts = raw_steps.sum(axis=1)
    else:
        for index, steps in enumerate(amounts):
            raw_steps[places, index] = np.asarray(steps, np.int64)
        raw_unit_counts[places] = np.asarray(num_units, np.int64)
    return SliceTotals(slices=slices, raw_steps=raw_steps, raw_unit_counts=raw_unit_counts)


def totals_program(
    tables: LogTables,
    attribution: Attribution | None,
    jobs: Sequence[SliceJob],
    *,
    unit: Unit,
    salt: bytes,
    has_asof_join: bool,
    keeps_steps: bool = True,
) -> Program:
    """The steps of `slice_totals`; the last of each job is an output.

    Args:
      tables: The log.
      attribution: Needed if any job counts conversions.
      jobs: What is added up.
      unit: Unit whose rows are bounded together.
      salt: Key of at least 16 secret random bytes. Sensitive: never log it.
      has_asof_join: Whether the engine joins each row with the latest before it in one pass.
      keeps_steps: Whether the engine runs a step once that is read several times.
    """
    frames = {SALT: salt_frame(salt)}
    steps: list[Step] = []
    outputs = []
    for job in jobs:
        check_job(job)
        if job.is_histogram and unit.owner.is_one_row:
            raise ConfigError(f"unit={unit} is one row and has no frequency; use Unit.user().")
        check_unit(job, unit=unit, attribution=attribution, columns=tables.log.columns)
    if attribution is not None and any(job.subject is Subject.CONVERSIONS for job in jobs):
        matching = Matching(tables=tables, attribution=attribution, windows=unit.windows)
        steps += all_credit_steps(
            matching, [attribution.rule], has_asof_join=has_asof_join, keeps_steps=keeps_steps
        )
    if all(step.name != "imp" for step in steps):
        steps.append(tables.step(Side.IMPRESSION, name="imp"))
    for index, job in enumerate(jobs):
        prefix = f"job{index}"
        steps += _total_steps(prefix, job, tables, unit)
        outputs.append(steps[-1].name)
        if job.keys is not None and job.slices:
            frames[f"{prefix}_keys"] = keys_frame(job)
    return Program(
        tables=log_sources(tables.log), frames=frames, steps=tuple(steps), outputs=tuple(outputs)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounding:
    """Steps that bound the rows of one job."""

    prefix: str
    units: tuple[str, ...]
    slices: tuple[str, ...]
    amounts: tuple[str, ...]
    bounds: Bounds
    steps_per_contribution: int

    def steps(self) -> list[Step]:
        """The last one has a row for each unit and slice with anything left."""
        # The cap of the whole unit is last: it alone bounds the L1 distance, and no later step may
        # add to what it left.
        bounds, steps = self.bounds, self.steps_per_contribution
        made = [self._added_up(), self._capped(bounds.max_steps_per_slice(steps))]
        if bounds.max_slices_per_unit is not None and self.slices:
            made += self._chosen(made[-1].name, bounds.max_slices_per_unit)
        if bounds.max_per_unit is not None:
            made += self._scaled(made[-1].name, bounds.max_steps_per_unit(steps))
        return made

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self.units, *self.slices, *self.amounts)

    @property
    def _order(self) -> str:
        texts = [value_text(f"b.{name}") for name in self.slices]
        # Keyed by unit and slice: every engine chooses alike, and rows of others change nothing.
        draw = keyed_draw([*(f"b.{name}" for name in self.units), *texts])
        return column_list((draw, *(f"b.{name}" for name in self.slices)))

    def _added_up(self) -> Step:
        keys = column_list((*self.units, *self.slices))
        sums = ", ".join(f"CAST(SUM({name} * num) AS BIGINT) AS {name}" for name in self.amounts)
        some = " + ".join(f"SUM({name} * num)" for name in self.amounts)
        return Step(
            f"{self.prefix}_units",
            f"SELECT {keys}, {sums} FROM {self.prefix}_rows GROUP BY {keys} HAVING {some} > 0",
        )

    def _capped(self, cap: int) -> Step:
        total = " + ".join(self.amounts)
        parts = [
            f"{_part(self.amounts, index, before='0', total=total, cap=cap)} AS {name}"
            for index, name in enumerate(self.amounts)
        ]
        if len(self.amounts) == 1:
            parts = [f"LEAST({total}, {cap}) AS {self.amounts[0]}"]
        keys = column_list((*self.units, *self.slices))
        sql = f"SELECT {keys}, {', '.join(parts)} FROM {self.prefix}_units"
        return Step(f"{self.prefix}_capped", sql)

    def _chosen(self, source: str, max_slices: int) -> list[Step]:
        units = column_list(self.units)
        columns = column_list(self._columns)
        crowded = f"SELECT {units} FROM {source} GROUP BY {units} HAVING COUNT(*) > {max_slices}"
        ranked = (
            f"SELECT {column_list(self._columns, 'b')}, ROW_NUMBER() OVER (PARTITION BY "
            f"{column_list(self.units, 'b')} ORDER BY {self._order}) AS place "
            f"FROM {source} b JOIN {self.prefix}_crowded o ON {equal_columns('o', 'b', self.units)}"
        )
        few = self._others(source, f"{self.prefix}_crowded")
        chosen = (
            f"{few} UNION ALL SELECT {columns} FROM ({ranked}) AS r WHERE place <= {max_slices}"
        )
        return [Step(f"{self.prefix}_crowded", crowded), Step(f"{self.prefix}_chosen", chosen)]

    def _scaled(self, source: str, cap: int) -> list[Step]:
        units = column_list(self.units)
        total = " + ".join(self.amounts)
        above = (
            f"SELECT {units}, SUM({total}) AS unit_total FROM {source} "
            f"GROUP BY {units} HAVING SUM({total}) > {cap}"
        )
        slice_total = " + ".join(f"b.{name}" for name in self.amounts)
        running = (
            f"SELECT {column_list(self._columns, 'b')}, o.unit_total, SUM({slice_total}) OVER "
            f"(PARTITION BY {column_list(self.units, 'b')} ORDER BY {self._order} "
            f"ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - ({slice_total}) AS before "
            f"FROM {source} b JOIN {self.prefix}_above o ON {equal_columns('o', 'b', self.units)}"
        )
        parts = []
        for index, name in enumerate(self.amounts):
            part = _part(self.amounts, index, before="before", total="unit_total", cap=cap)
            parts.append(f"LEAST({name}, {part}) AS {name}")
        keys = column_list((*self.units, *self.slices))
        scaled = f"SELECT {keys}, {', '.join(parts)} FROM ({running}) AS running"
        within = self._others(source, f"{self.prefix}_above")
        return [
            Step(f"{self.prefix}_above", above),
            Step(f"{self.prefix}_scaled", f"{within} UNION ALL {scaled}"),
        ]

    def _others(self, source: str, listed: str) -> str:
        same = equal_columns("o", "b", self.units)
        return (
            f"SELECT {column_list(self._columns, 'b')} FROM {source} b "
            f"WHERE NOT EXISTS (SELECT 1 FROM {listed} o WHERE {same})"
        )


def _total_steps(prefix: str, job: SliceJob, tables: LogTables, unit: Unit) -> list[Step]:
    """Steps from `credited` or `imp` to the totals, or the cells, of one job."""
    steps = _bounded_steps(prefix, job, tables, unit)
    if job.is_histogram:
        cells = column_list([*slice_texts(job, table="b"), "b.x0 AS x0", "COUNT(*) AS num_units"])
        group = column_list((*slice_columns(job), "x0"), "b")
        sql = f"SELECT {cells} FROM {steps[-1].name} b GROUP BY {group}"
        return [*steps, Step(f"{prefix}_cells", sql)]
    amounts = _amount_columns(job)
    some = " + ".join(amounts)
    number = "num" if job.bounds is None else "1"
    sums = [f"CAST(COALESCE(SUM({name} * {number}), 0) AS BIGINT) AS {name}" for name in amounts]
    units = f"CAST(COALESCE(SUM({number}), 0) AS BIGINT) AS num_units"
    group = f" GROUP BY {column_list(slice_columns(job), 'b')}" if job.slices else ""
    totals = (
        f"SELECT {column_list([*slice_texts(job, table='b'), *sums, units])} "
        f"FROM {steps[-1].name} b WHERE {some} > 0{group}"
    )
    return [*steps, Step(f"{prefix}_totals", totals)]


def _bounded_steps(prefix: str, job: SliceJob, tables: LogTables, unit: Unit) -> list[Step]:
    """Steps up to the last bound: a row for each unit and slice, or each row if that is a unit."""
    rows = Contributions(prefix=prefix, job=job, tables=tables, unit=unit)
    if job.bounds is None:
        return rows.steps()
    bounding = Bounding(
        prefix=prefix,
        units=unit_columns(unit),
        slices=slice_columns(job),
        amounts=rows.amount_columns,
        bounds=job.bounds,
        steps_per_contribution=job.steps,
    )
    return [*rows.steps(), *bounding.steps()]


def _amount_columns(job: SliceJob) -> list[str]:
    return [f"x{index}" for index in range(len(job.amount_names))]


def _check_overflow(engine: Engine, log: AdLog, jobs: Sequence[SliceJob]) -> None:
    sources = log_sources(log)
    counts = " + ".join(f"(SELECT COUNT(*) FROM {name})" for name in sources)
    steps = (Step("num_rows", f"SELECT {counts} AS num_rows"),)
    (rows,) = engine.run(Program(tables=sources, steps=steps, outputs=("num_rows",)))
    num_rows = int(rows["num_rows"][0])
    largest = max(job.steps for job in jobs)
    # A total that wraps around would move by 2^64 for one unit, which no noise hides.
    if num_rows * (largest + 1) > MAX_TOTAL_STEPS:
        raise DataError(
            f"steps={largest} are too fine for a log of this size: totals could pass 2^62. "
            "Use fewer steps, or measure in parts."
        )


def _part(amounts: tuple[str, ...], index: int, *, before: str, total: str, cap: int) -> str:
    start = " + ".join([before, *amounts[:index]])
    # Differences of one rising sequence that ends at the cap: parts never add up to more than it.
    return f"{_share(f'{start} + {amounts[index]}', total, cap)} - {_share(start, total, cap)}"


def _share(running: str, total: str, cap: int) -> str:
    # Products and quotients of floats never fall as `running` grows, so neither does this.
    scaled = f"CAST({running} AS DOUBLE) * CAST({cap} AS DOUBLE) / CAST({total} AS DOUBLE)"
    return (
        f"CAST(CASE WHEN {total} <= {cap} THEN {running} WHEN {running} >= {total} THEN {cap} "
        f"ELSE LEAST({cap}, FLOOR({scaled})) END AS BIGINT)"
    )
