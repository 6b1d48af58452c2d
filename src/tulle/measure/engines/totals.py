"""Exact totals per slice, bounded by unit: the only thing that releases are made from."""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

from collections.abc import Sequence

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, Side
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.engines.bounding import Bounding
from tulle.measure.engines.contributions import (
    Contributions,
    check_job,
    slice_columns,
    slice_texts,
)
from tulle.measure.engines.credit import all_credit_steps
from tulle.measure.engines.engine import Engine, Program, Rows, Step
from tulle.measure.engines.keyed_order import SALT, salt_frame
from tulle.measure.engines.log_tables import LogTables, log_sources, log_types
from tulle.measure.engines.matching import Matching
from tulle.measure.engines.sql_text import column_list
from tulle.measure.engines.unit_columns import check_unit, unit_columns
from tulle.measure.engines.used_columns import tables_for
from tulle.measure.engines.wanted_keys import keys_frame, result_slices
from tulle.measure.slice_jobs import SliceJob, SliceTotals, Subject
from tulle.privacy.units import Owner, Unit

MAX_TOTAL_STEPS = 1 << 62


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
      unit: Whose rows are bounded together.
      salt: At least 16 secret random bytes, new for every run. Sensitive: never log it.

    Privacy:
      Releases nothing: totals are exact. Without one unit's rows they differ by at most
      `bounds.max_steps_per_unit(steps)` in L1, and in `max_slices_per_unit` slices by at most
      `max_steps_per_slice` each. Units of one row: as the rule says. Relies on: `check_log`.
    """
    if not jobs:
        return []
    tables = tables_for(
        log,
        log_types(engine, log),
        jobs,
        attributions=[] if attribution is None else [attribution],
        unit=unit,
    )
    _check_overflow(engine, log, jobs)
    program = totals_program(
        tables, attribution, jobs, unit=unit, salt=salt, has_asof_join=engine.has_asof_join
    )
    results = engine.run(program)
    return [_totals_of(job, rows) for job, rows in zip(jobs, results, strict=True)]


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
    """The steps of `slice_totals`; the last of each job is an output."""
    check_unit(unit, tables.log, [job.subject for job in jobs])
    frames = {SALT: salt_frame(salt)}
    steps: list[Step] = []
    if any(job.subject is Subject.CONVERSIONS for job in jobs):
        matching = matching_for(tables, attribution, unit=unit)
        steps += all_credit_steps(
            matching,
            [matching.attribution.rule],
            has_asof_join=has_asof_join,
            keeps_steps=keeps_steps,
        )
    if all(step.name != "imp" for step in steps):
        steps.append(tables.step(Side.IMPRESSION, name="imp"))
    outputs = []
    for index, job in enumerate(jobs):
        check_job(job, unit)
        prefix = f"job{index}"
        steps += job_steps(prefix, job, tables, unit)
        outputs.append(steps[-1].name)
        if job.keys is not None and job.slices:
            frames[f"{prefix}_keys"] = keys_frame(job)
    return Program(
        tables=log_sources(tables.log), frames=frames, steps=tuple(steps), outputs=tuple(outputs)
    )


def matching_for(tables: LogTables, attribution: Attribution | None, *, unit: Unit) -> Matching:
    """Who matches under this unit; refuses limits that do not bound it."""
    if tables.log.conversions is None or attribution is None:
        raise ConfigError("counting conversions needs their table and an attribution.")
    is_impression_unit = unit.owner is Owner.IMPRESSION
    if is_impression_unit and attribution.max_conversions_per_user is None:
        raise ConfigError(
            f"unit={unit}: one impression may stand before any number of conversions; "
            "set max_conversions_per_user."
        )
    if not is_impression_unit and attribution.max_conversions_per_user is not None:
        raise ConfigError(
            f"max_conversions_per_user={attribution.max_conversions_per_user} bounds nothing "
            f"for unit={unit}; leave it out and set bounds, which come after attribution."
        )
    return Matching(tables=tables, attribution=attribution, window_seconds=unit.window_seconds)


def job_steps(prefix: str, job: SliceJob, tables: LogTables, unit: Unit) -> list[Step]:
    """From `credited` or `imp` to the totals of one job."""
    steps = _bounded_values(prefix, job, tables, unit)
    amounts = [f"x{index}" for index in range(len(job.amount_names))]
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


def bounded_steps(prefix: str, job: SliceJob, tables: LogTables, unit: Unit) -> list[Step]:
    """Up to the last bound: one row for each unit and slice, or each row if that is a unit."""
    steps = _bounded_values(prefix, job, tables, unit)
    if job.keys is not None or not job.slices:
        return steps
    others = [*unit_columns(unit), *(["num"] if job.bounds is None else [])]
    others += [f"x{index}" for index in range(len(job.amount_names))]
    texts = column_list([*slice_texts(job, table="b"), *(f"b.{name}" for name in others)])
    return [*steps, Step(f"{prefix}_texts", f"SELECT {texts} FROM {steps[-1].name} b")]


def _bounded_values(prefix: str, job: SliceJob, tables: LogTables, unit: Unit) -> list[Step]:
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


def _totals_of(job: SliceJob, rows: Rows) -> SliceTotals:
    slices, places = result_slices(job, rows)
    num_slices = slices.height if job.slices else 1
    raw_steps = np.zeros((num_slices, len(job.amount_names)), np.int64)
    raw_unit_counts = np.zeros(num_slices, np.int64)
    for index in range(len(job.amount_names)):
        raw_steps[places, index] = np.asarray(rows[f"x{index}"], np.int64)
    raw_unit_counts[places] = np.asarray(rows["num_units"], np.int64)
    return SliceTotals(slices=slices, raw_steps=raw_steps, raw_unit_counts=raw_unit_counts)


def _check_overflow(engine: Engine, log: AdLog, jobs: Sequence[SliceJob]) -> None:
    sources = log_sources(log)
    counts = " + ".join(f"(SELECT COUNT(*) FROM {name})" for name in sources)
    steps = (Step("num_rows", f"SELECT {counts} AS num_rows"),)
    (rows,) = engine.run(Program(tables=sources, steps=steps, outputs=("num_rows",)))
    num_rows = int(rows["num_rows"][0])
    largest = max(job.steps for job in jobs)
    if num_rows * (largest + 1) > MAX_TOTAL_STEPS:
        raise DataError(
            f"steps={largest} are too fine for a log of this size: totals could pass 2^62. "
            "Use fewer steps, or measure in parts."
        )
