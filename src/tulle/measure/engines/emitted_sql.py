"""A program as a script for an engine that we don't run, and its totals read back.

Each job is one SELECT with its steps as common table expressions. The salt is a parameter named
`salt`: without a secret in its place the script does not run. Each result is a file named after
its job, with the columns that the script gives it. That the script ran as it was printed, over
the right rows and with a secret salt, nobody here can see.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)
import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tulle.data.schema import Kind
from tulle.data.source_files import content_sha256
from tulle.data.tables.rows import whole_numbers_of
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, TableSource
from tulle.measure.attribution.rules import Attribution
from tulle.measure.engines.contributions import KEY_NUMBER, key_columns
from tulle.measure.engines.engine import Program, Step
from tulle.measure.engines.log_tables import CarriedColumn, LogTables, LogTypes, tables_for
from tulle.measure.engines.sql_text import (
    MIN_SALT_BYTES,
    SALT,
    check_dialect,
    column_list,
    identifier,
    text_literal,
    translate,
)
from tulle.measure.engines.totals import placed_totals, totals_program
from tulle.measure.slice_jobs import (
    IntArray,
    SliceJob,
    SliceTotals,
    Subject,
)
from tulle.measure.small_tables import file_stem, read_rows, texts_of
from tulle.privacy.units import Unit

_HEAD = """\
-- Exact, bounded totals. Not private: add noise to them before anybody sees them.
-- Parameter salt: at least 32 hexadecimal digits, secret, random, new for every run.
-- The session's time zone must be UTC.
"""
_FORMS = (".parquet", ".csv")
"""Endings of files that hold exported results."""
_UNITS = "num_units"
"""Column with the number of units of a slice."""
_FREQUENCY = "frequency"
"""Column with the frequency of a histogram."""


def emit_sql(
    log: AdLog,
    attribution: Attribution | None,
    jobs: Sequence[SliceJob],
    *,
    unit: Unit,
    dialect: str,
    times_are_seconds: bool = False,
) -> str:
    """What `slice_totals` computes, as a script of one SELECT for each job.

    Args:
      log: Tables by name (`DatabaseTable`); others are called impressions and conversions.
      attribution: Needed if any job counts conversions.
      jobs: What is counted.
      unit: Unit whose rows are bounded together.
      dialect: "bigquery", "snowflake", "trino", "spark" or "duckdb".
      times_are_seconds: Whether time columns are whole seconds since 1970, not timestamps.

    Privacy:
      What the script returns is exact and must not get out without noise.
    """
    check_dialect(dialect)
    if not jobs:
        raise ConfigError("there is no job to write SQL for; name at least one query.")
    check_result_names(jobs)
    types = _assumed_types(log, attribution, jobs, unit, times_are_seconds=times_are_seconds)
    script = [_HEAD]
    for job in jobs:
        program = _program(log, types, attribution, job, unit)
        sql = translate(_query(program, program.outputs[0], job), dialect, is_pretty=True)
        script.append(
            f"-- {_one_line(job.name)}\n-- Save as {result_name(job)}.parquet or .csv\n{sql};\n"
        )
    return "\n".join(script)


@dataclasses.dataclass(frozen=True)
class ExportedTotals:
    """A folder of results. Sensitive: they are exact."""

    folder: Path

    def sha256(self, jobs: Sequence[SliceJob]) -> list[str]:
        """Digest of the file of each job."""
        return [content_sha256(self._file(job)) for job in jobs]

    def slice_totals(self, job: SliceJob) -> SliceTotals:
        """The totals of a job.

        Raises:
          DataError: The file is not what the script returns, or breaks a bound.
        """
        frame, slices, places = self._placed(job, (*_numbers(job), _UNITS))
        amounts = [self._whole(job, frame, name) for name in _numbers(job)]
        num_units = self._whole(job, frame, _UNITS)
        if job.is_histogram and np.any((amounts[0] < 1) | (amounts[0] > job.num_columns)):
            raise DataError(
                f"{self._file(job).name}: frequency must be from 1 to {job.num_columns}."
            )
        totals = placed_totals(job, slices, places, amounts, num_units)
        if job.bounds is not None:
            limit = totals.raw_unit_counts * job.bounds.max_steps_per_slice(job.steps)
            if np.any(totals.raw_steps.sum(axis=1) > limit):
                raise DataError(
                    f"{self._file(job).name} has more than its units may add; run the script "
                    "that these settings print."
                )
        return totals

    def _file(self, job: SliceJob) -> Path:
        for form in _FORMS:
            path = self.folder / f"{result_name(job)}{form}"
            if path.exists():
                return path
        raise DataError(
            f"{self.folder.name} has no {result_name(job)}.parquet or .csv; save the result of "
            f"{job.name!r} under that name."
        )

    def _placed(
        self, job: SliceJob, numbers: Sequence[str]
    ) -> tuple[pl.DataFrame, pl.DataFrame, IntArray]:
        """The rows, the slices of the result, and the place of each row among them."""
        path = self._file(job)
        names = [column.name for column in job.slices]
        rows = read_rows(path, [*names, *numbers])
        frame = pl.DataFrame(
            [
                *(texts_of(rows, name) for name in names),
                *(whole_numbers_of(rows, name) for name in numbers),
            ]
        )
        distinct = (*names, _FREQUENCY) if job.is_histogram else tuple(names)
        keyed = frame.select(distinct)
        is_repeated = keyed.is_duplicated().any() if distinct else frame.height > 1
        if is_repeated:
            raise DataError(f"{path.name} has a slice twice; export the whole result once.")
        if not names:
            return frame, pl.DataFrame(), np.zeros(frame.height, np.int64)
        texts = keyed.select(names)
        slices = texts.unique().sort(names) if job.keys is None else job.keys
        numbered = slices.with_row_index("row of slice")
        places = texts.join(numbered, on=names, how="left", maintain_order="left")["row of slice"]
        if places.null_count():
            raise DataError(f"{path.name} has slices that are not among the keys.")
        return frame, slices, places.to_numpy().astype(np.int64)

    def _whole(self, job: SliceJob, frame: pl.DataFrame, name: str) -> IntArray:
        if (frame[name] < 0).any():
            raise DataError(f"{self._file(job).name}: {name} must be whole numbers >= 0.")
        return np.asarray(frame[name].to_numpy(), np.int64)


def _numbers(job: SliceJob) -> tuple[str, ...]:
    """Columns of a job's result beside its slices and the number of units."""
    return (_FREQUENCY,) if job.is_histogram else job.amount_names


def result_name(job: SliceJob) -> str:
    """What the file with a job's result is called, without its ending."""
    return file_stem(job.name)


def check_result_names(jobs: Sequence[SliceJob]) -> None:
    """Refuses jobs whose results would be one file, or have one name for two columns."""
    for job in jobs:
        columns = [*(column.name for column in job.slices), *_numbers(job), _UNITS]
        folded = [column.casefold() for column in columns]
        for column in columns:
            if folded.count(column.casefold()) > 1:
                raise ConfigError(
                    f"the result of {job.name!r} would have two columns {column!r}; rename the "
                    "slice."
                )
    names = [result_name(job) for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two results would be called {name!r}; give the queries names that differ in "
                "letters or digits."
            )


def _program(
    log: AdLog,
    types: LogTypes,
    attribution: Attribution | None,
    job: SliceJob,
    unit: Unit,
) -> Program:
    is_attributed = job.subject is Subject.CONVERSIONS
    attributions = [attribution] if is_attributed and attribution is not None else []
    tables = tables_for(log, types, [job], attributions=attributions, unit=unit)
    salt = bytes(MIN_SALT_BYTES)
    return totals_program(
        tables,
        attribution,
        [job],
        unit=unit,
        salt=salt,
        has_asof_join=False,
        keeps_steps=False,
    )


def _query(program: Program, output: str, job: SliceJob) -> str:
    known = [
        *(
            Step(name, f"SELECT * FROM {_table_name(name, source)}")
            for name, source in program.tables.items()
        ),
        Step(SALT, "SELECT $salt AS salt"),
        *(Step(name, _values(frame)) for name, frame in program.frames.items() if name != SALT),
        *program.steps,
    ]
    needed = {output}
    for step in reversed(known):
        if step.name in needed:
            needed |= set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", step.sql))
    parts = [f"{step.name} AS ({step.sql})" for step in known if step.name in needed]
    return f"WITH {', '.join(parts)} {_named_result(job, output)}"


def _named_result(job: SliceJob, output: str) -> str:
    amounts = [f"t.x{n} AS {identifier(name)}" for n, name in enumerate(_numbers(job))]
    if job.keys is None or not job.slices:
        slices = [f"t.s{n} AS {identifier(column.name)}" for n, column in enumerate(job.slices)]
        source = f"{output} t"
    else:
        slices = [
            f"w.{own} AS {identifier(column.name)}"
            for own, column in zip(key_columns(job), job.slices, strict=True)
        ]
        keys = output.rpartition("_")[0] + "_keys"
        source = f"{output} t JOIN {keys} w ON w.{KEY_NUMBER} = t.{KEY_NUMBER}"
    return f"SELECT {column_list([*slices, *amounts, 't.num_units'])} FROM {source}"


def _table_name(name: str, source: TableSource) -> str:
    if isinstance(source, DatabaseTable):
        return ".".join(identifier(part) for part in source.table.split("."))
    return name.removeprefix("tulle_")


def _values(frame: pl.DataFrame) -> str:
    rows = ", ".join(
        f"({', '.join(text_literal(v) if isinstance(v, str) else str(v) for v in row)})"
        for row in frame.iter_rows()
    )
    names = ", ".join(identifier(name) for name in frame.columns)
    return f"SELECT * FROM (VALUES {rows}) AS listed({names})"


def _assumed_types(
    log: AdLog,
    attribution: Attribution | None,
    jobs: Sequence[SliceJob],
    unit: Unit,
    *,
    times_are_seconds: bool,
) -> LogTypes:
    time = "BIGINT" if times_are_seconds else "TIMESTAMP"
    attributions = [] if attribution is None else [attribution]
    bare = tables_for(
        log, LogTypes(impressions={}, conversions={}), jobs, attributions=attributions, unit=unit
    )
    columns = log.columns
    return LogTypes(
        impressions=_types_of(bare, bare.impression_columns, columns.impression_time, time),
        conversions=None
        if log.conversions is None
        else _types_of(bare, bare.conversion_columns, columns.conversion_time, time),
    )


def _types_of(
    tables: LogTables, carried: Sequence[CarriedColumn], time_column: str | None, time: str
) -> Mapping[str, str]:
    columns = tables.log.columns
    keys = [name for name in (columns.user, columns.advertiser) if name is not None]
    types = dict.fromkeys(keys, "VARCHAR")
    times = {column.column for column in carried if column.is_time}
    times |= set() if time_column is None else {time_column}
    types |= {column.column: "VARCHAR" for column in carried}
    days = {name for name in times if columns.kind_of(name) is Kind.INTEGER}
    return types | {name: "BIGINT" if name in days else time for name in times}


def _one_line(text: str) -> str:
    return " ".join(text.split())
