"""The same program as a script for an engine that we don't run.

Each job is one SELECT with its steps as common table expressions. The salt is a parameter named
`salt`: without a secret in its place the script does not run.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import re
from collections.abc import Mapping, Sequence

import polars as pl

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, DatabaseTable, TableSource
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.engines.contributions import KEY_NUMBER, key_columns
from tulle.measure.engines.engine import Program, Step
from tulle.measure.engines.exported_totals import check_result_names, result_name
from tulle.measure.engines.frequency import frequency_program
from tulle.measure.engines.keyed_order import MIN_SALT_BYTES, SALT
from tulle.measure.engines.log_tables import CarriedColumn, LogTables, LogTypes
from tulle.measure.engines.sql_text import column_list, identifier, text_literal
from tulle.measure.engines.totals import totals_program
from tulle.measure.engines.translation import check_dialect, translate
from tulle.measure.engines.used_columns import tables_for
from tulle.measure.slice_jobs import FrequencyJob, SliceJob, Subject
from tulle.privacy.units import Unit

_HEAD = """\
-- Exact, bounded totals. Not private: add noise to them before anybody sees them.
-- Parameter salt: at least 32 hexadecimal digits, secret, random, new for every run.
-- The session's time zone must be UTC.
"""


def emit_sql(
    log: AdLog,
    attribution: Attribution | None,
    jobs: Sequence[SliceJob | FrequencyJob],
    *,
    unit: Unit,
    dialect: str,
    times_are_seconds: bool = False,
) -> str:
    """What `slice_totals` and `frequencies` compute, as a script of one SELECT for each job.

    Args:
      log: Tables by name (`DatabaseTable`); others are called impressions and conversions.
      attribution: Needed if any job counts conversions.
      jobs: What is counted.
      unit: Whose rows are bounded together.
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


def _program(
    log: AdLog,
    types: LogTypes,
    attribution: Attribution | None,
    job: SliceJob | FrequencyJob,
    unit: Unit,
) -> Program:
    is_attributed = isinstance(job, SliceJob) and job.subject is Subject.CONVERSIONS
    attributions = [attribution] if is_attributed and attribution is not None else []
    tables = tables_for(log, types, [job], attributions=attributions, unit=unit)
    salt = bytes(MIN_SALT_BYTES)
    if isinstance(job, FrequencyJob):
        return frequency_program(tables, [job], unit=unit, salt=salt)
    return totals_program(
        tables,
        attribution,
        [job],
        unit=unit,
        salt=salt,
        has_asof_join=False,
        keeps_steps=False,
    )


def _query(program: Program, output: str, job: SliceJob | FrequencyJob) -> str:
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


def _named_result(job: SliceJob | FrequencyJob, output: str) -> str:
    names = ("frequency",) if isinstance(job, FrequencyJob) else job.amount_names
    amounts = [f"t.x{n} AS {identifier(name)}" for n, name in enumerate(names)]
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
    jobs: Sequence[SliceJob | FrequencyJob],
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
    tables: LogTables, carried: Sequence[CarriedColumn], time_column: str, time: str
) -> Mapping[str, str]:
    columns = tables.log.columns
    keys = [name for name in (columns.user, columns.advertiser) if name is not None]
    types = dict.fromkeys(keys, "VARCHAR")
    for column in carried:
        types[column.column] = time if column.is_time else "VARCHAR"
    return types | {time_column: time}


def _one_line(text: str) -> str:
    return " ".join(text.split())
