"""How many units saw 1, 2, … impressions: exact histograms, bounded like all totals.

A unit's impressions in a slice are added up and capped, and its slices are cut to few; then each
unit stands in one cell of each slice it kept.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

from collections.abc import Sequence

import numpy as np

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, Side
from tulle.measure.engines.contributions import slice_columns
from tulle.measure.engines.engine import Engine, Program, Rows, Step
from tulle.measure.engines.keyed_order import SALT, salt_frame
from tulle.measure.engines.log_tables import LogTables, log_sources, log_types
from tulle.measure.engines.sql_text import column_list
from tulle.measure.engines.totals import bounded_steps
from tulle.measure.engines.unit_columns import check_unit
from tulle.measure.engines.used_columns import tables_for
from tulle.measure.engines.wanted_keys import check_keys, keys_frame, result_slices
from tulle.measure.slice_jobs import (
    Amount,
    Bounds,
    Frequencies,
    FrequencyJob,
    SliceJob,
    Subject,
)
from tulle.privacy.fields import check_count
from tulle.privacy.units import Unit


def frequencies(
    engine: Engine, log: AdLog, jobs: Sequence[FrequencyJob], *, unit: Unit, salt: bytes
) -> list[Frequencies]:
    """Frequency histograms of every job.

    Args:
      engine: Where it runs.
      log: Its impressions are read alone.
      jobs: What is counted.
      unit: Who is reached, and whose rows are bounded together.
      salt: At least 16 secret random bytes, new for every run. Sensitive: never log it.

    Privacy:
      Releases nothing: histograms are exact. Without one unit's rows at most
      `max_slices_per_unit` cells change, each by 1. Relies on: `check_log`.
    """
    if not jobs:
        return []
    tables = tables_for(log, log_types(engine, log), jobs, unit=unit)
    results = engine.run(frequency_program(tables, jobs, unit=unit, salt=salt))
    return [_frequencies_of(job, rows) for job, rows in zip(jobs, results, strict=True)]


def frequency_program(
    tables: LogTables, jobs: Sequence[FrequencyJob], *, unit: Unit, salt: bytes
) -> Program:
    """The steps of `frequencies`; the last of each job is an output."""
    check_unit(unit, tables.log, [Subject.IMPRESSIONS])
    if unit.owner.is_one_row:
        raise ConfigError(f"unit={unit} is one row and has no frequency; use Unit.user().")
    frames = {SALT: salt_frame(salt)}
    steps = [tables.step(Side.IMPRESSION, name="imp")]
    outputs = []
    for index, job in enumerate(jobs):
        prefix = f"job{index}"
        check_keys(job)
        steps += bounded_steps(prefix, _as_slice_job(job), tables, unit)
        cells = column_list((*slice_columns(job), "x0"))
        source = steps[-1].name
        sql = f"SELECT {cells}, COUNT(*) AS num_units FROM {source} GROUP BY {cells}"
        steps.append(Step(f"{prefix}_cells", sql))
        outputs.append(steps[-1].name)
        if job.keys is not None and job.slices:
            frames[f"{prefix}_keys"] = keys_frame(job)
    sources = log_sources(tables.log)
    return Program(tables=sources, frames=frames, steps=tuple(steps), outputs=tuple(outputs))


def _as_slice_job(job: FrequencyJob) -> SliceJob:
    check_count("max_frequency", job.max_frequency)
    if any(column.side is Side.CONVERSION for column in job.slices):
        raise ConfigError(f"job {job.name!r} counts impressions; slice it by their columns.")
    if job.max_slices_per_unit is None and job.slices:
        raise ConfigError(f"job {job.name!r}: set max_slices_per_unit; a unit may be in many.")
    return SliceJob(
        name=job.name,
        subject=Subject.IMPRESSIONS,
        slices=job.slices,
        amounts=(Amount(name="impressions"),),
        bounds=Bounds(
            max_per_slice=job.max_frequency, max_slices_per_unit=job.max_slices_per_unit or 1
        ),
        steps=1,
        keys=job.keys,
        only_kinds=job.only_kinds,
    )


def _frequencies_of(job: FrequencyJob, rows: Rows) -> Frequencies:
    slices, places = result_slices(job, rows)
    num_slices = slices.height if job.slices else 1
    raw_counts = np.zeros((num_slices, job.max_frequency), np.int64)
    columns = np.asarray(rows["x0"], np.int64) - 1
    raw_counts[places, columns] = np.asarray(rows["num_units"], np.int64)
    return Frequencies(slices=slices, raw_counts=raw_counts)
