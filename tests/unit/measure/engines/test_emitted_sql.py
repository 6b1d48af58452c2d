"""Scripts for other engines parse there, ask for the salt, and compute the same."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import sqlglot
from sqlglot import exp

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, LogColumns
from tulle.measure.attribution.rules import (
    Attribution,
    ChannelWeights,
    FirstTouch,
    LastN,
    LastTouch,
    Linear,
    PositionBased,
    PriorityTouch,
    TimeDecay,
)
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.emitted_sql import ExportedTotals, emit_sql, result_name
from tulle.measure.engines.sql_text import DIALECTS, translate
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import FINE_STEPS, Bounds, SliceJob, Subject, frequency_job
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    HALF_VALUE,
    SALT,
    TYPE,
    all_settings_job,
    job_of,
    quoted_log,
)

LOG = AdLog(
    impressions=DatabaseTable(table="ads.impressions"),
    conversions=DatabaseTable(table="ads.sales"),
    columns=LogColumns(kind="kind", priority="priority"),
)
RULES = [
    LastTouch(),
    FirstTouch(),
    Linear(),
    PositionBased(),
    TimeDecay(),
    TimeDecay(half_life_seconds=60.0),
    PriorityTouch(),
    LastN(),
    ChannelWeights(column="campaign", weights={"it's": 2.0}),
]
BOUNDS = Bounds(max_per_slice=1.5, max_slices_per_unit=2, max_per_unit=2.0)
JOBS = [
    all_settings_job(BOUNDS),
    job_of(CAMPAIGN, name="keys", bounds=BOUNDS, keys=pl.DataFrame({"campaign": ["it's", "b"]})),
    job_of(
        CAMPAIGN,
        name="clicks",
        bounds=BOUNDS,
        subject=Subject.IMPRESSIONS,
        only_kinds=("click",),
    ),
]


def attribution_by(rule: object) -> Attribution:
    return Attribution(
        rule=rule, lookback_seconds=86_400, kind_lookback_seconds={"view": 60}, max_touches=5
    )


def check_that_scripts_parse(dialect: str, rule: object, jobs: list[SliceJob], caplog) -> None:
    script = emit_sql(LOG, attribution_by(rule), jobs, unit=Unit.user(days=7), dialect=dialect)
    statements = [tree for tree in sqlglot.parse(script, read=dialect) if tree is not None]
    assert len(statements) == len(jobs)
    for tree in statements:
        tables = {table.name for table in tree.find_all(exp.Table)}
        assert tables - {cte.alias for cte in tree.find_all(exp.CTE)} <= {"impressions", "sales"}
        assert not list(tree.find_all(exp.Command))
    # sqlglot logs what it could not translate.
    assert caplog.messages == []


each_dialect = pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "trino", "spark"])


@each_dialect
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_scripts_of_every_rule_parse_in_their_dialect(dialect: str, rule: object, caplog) -> None:
    check_that_scripts_parse(dialect, rule, JOBS[:1], caplog)


@each_dialect
@pytest.mark.parametrize("number", range(1, len(JOBS)))
def test_scripts_of_every_job_parse_in_their_dialect(dialect: str, number: int, caplog) -> None:
    check_that_scripts_parse(dialect, RULES[-1], JOBS[number : number + 1], caplog)


@pytest.mark.long("make test has every rule with the first job, and the other jobs with one rule")
@each_dialect
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_scripts_of_all_rules_and_jobs_parse_in_their_dialect(
    dialect: str, rule: object, caplog
) -> None:
    check_that_scripts_parse(dialect, rule, JOBS, caplog)


@pytest.mark.parametrize(
    ("dialect", "parameter"),
    [("bigquery", "@salt"), ("snowflake", ":salt"), ("trino", ":salt"), ("spark", ":salt")],
)
def test_the_salt_is_a_parameter_without_a_value(dialect: str, parameter: str) -> None:
    script = emit_sql(LOG, attribution_by(Linear()), JOBS[:1], unit=Unit.user(), dialect=dialect)
    assert len(re.findall(rf"{parameter}\b", script)) == 1
    assert "0" * 32 not in script


def test_times_that_are_declared_days_are_numbers_of_days() -> None:
    columns = dataclasses.replace(LOG.columns, kinds={"timestamp": "integer"})
    log = dataclasses.replace(LOG, columns=columns)
    script = emit_sql(log, attribution_by(Linear()), JOBS[:1], unit=Unit.user(), dialect="duckdb")
    assert f"AS BIGINT) * {86_400 * 1_000_000} " in " ".join(script.split())
    assert "EPOCH_US" not in script


@pytest.mark.parametrize("number", range(len(JOBS)))
@pytest.mark.parametrize("rule", [LastTouch(), TimeDecay()], ids=repr)
def test_the_script_computes_what_the_engine_does(number: int, rule: object) -> None:
    log, job = quoted_log(), JOBS[number]
    settings = {"unit": Unit.user(), "salt": SALT}
    with DuckDBEngine(num_threads=1) as engine:
        (result,) = slice_totals(engine, log, attribution_by(rule), [job], **settings)
        script = emit_sql(
            log,
            attribution_by(rule),
            [job],
            unit=Unit.user(),
            dialect="duckdb",
            times_are_seconds=True,
        )
        connection = engine._connection
        connection.register("impressions", log.impressions.frame)
        connection.register("conversions", log.conversions.frame)
        rows = connection.execute(script, {"salt": SALT.hex()}).fetchall()
        names = [column[0] for column in connection.description]
    assert names == [*(c.name for c in job.slices), *job.amount_names, "num_units"]
    assert sorted(row[-1] for row in rows) == sorted(filter(None, result.raw_unit_counts))
    width = len(job.amount_names)
    expected = zip(result.slices.iter_rows(), result.raw_steps.tolist(), strict=True)
    assert {row[: -1 - width]: row[-1 - width : -1] for row in rows} == {
        key: tuple(steps) for key, steps in expected if any(steps)
    }


def test_names_with_quotes_stay_names() -> None:
    columns = LogColumns(user='us"er`')
    log = AdLog(impressions=LOG.impressions, conversions=LOG.conversions, columns=columns)
    for dialect in DIALECTS:
        script = emit_sql(
            log,
            Attribution(rule=Linear(), lookback_seconds=9),
            [job_of(bounds=BOUNDS)],
            unit=Unit.user(),
            dialect=dialect,
        )
        tree = sqlglot.parse_one(script.replace("--", "-- "), read=dialect)
        assert columns.user in {column.name for column in tree.find_all(exp.Column)}


def test_unknown_dialects_and_no_jobs_are_refused() -> None:
    with pytest.raises(ConfigError, match="dialect='oracle'"):
        emit_sql(LOG, None, JOBS, unit=Unit.user(), dialect="oracle")
    with pytest.raises(ConfigError, match="dialect='oracle'"):
        translate("SELECT 1", "oracle")
    with pytest.raises(ConfigError, match="no job"):
        emit_sql(LOG, None, [], unit=Unit.user(), dialect="trino")


def test_the_job_is_named_on_one_line() -> None:
    job: SliceJob = job_of(bounds=BOUNDS, name="sales\nDROP TABLE x")
    script = emit_sql(LOG, attribution_by(Linear()), [job], unit=Unit.user(), dialect="trino")
    assert "-- sales DROP TABLE x\n" in script


def test_jobs_whose_results_would_be_one_file_are_refused() -> None:
    jobs = [job_of(CAMPAIGN, bounds=BOUNDS, name=name) for name in ("by c", "By C!")]
    with pytest.raises(ConfigError, match="two results would be called 'by-c'"):
        emit_sql(LOG, attribution_by(LastTouch()), jobs, unit=Unit.user(), dialect="spark")


BOUNDS_OF_EXPORTED_TOTALS = Bounds(max_per_slice=1.5, max_slices_per_unit=2)
LINEAR = Attribution(rule=Linear(), lookback_seconds=86_400)
BY_KEYS = job_of(
    CAMPAIGN,
    bounds=BOUNDS_OF_EXPORTED_TOTALS,
    steps=FINE_STEPS,
    keys=pl.DataFrame({"campaign": ["c", "it's", "b"]}),
)
JOBS_OF_EXPORTED_TOTALS = [
    job_of(
        CAMPAIGN,
        TYPE,
        amounts=HALF_VALUE,
        has_rest=True,
        bounds=BOUNDS_OF_EXPORTED_TOTALS,
        steps=FINE_STEPS,
    ),
    BY_KEYS,
    job_of(bounds=BOUNDS_OF_EXPORTED_TOTALS, steps=FINE_STEPS),
]


def how_often(*, with_keys: bool) -> SliceJob:
    return frequency_job(
        "How often?",
        (CAMPAIGN,),
        max_frequency=3,
        max_slices_per_unit=1,
        keys=pl.DataFrame({"campaign": ["b", "c"]}) if with_keys else None,
    )


def export(log: AdLog, job: SliceJob, folder: Path, form: str) -> None:
    """Runs the script as another engine would, and saves what it returns."""
    script = emit_sql(
        log, LINEAR, [job], unit=Unit.user(), dialect="duckdb", times_are_seconds=True
    )
    with DuckDBEngine(num_threads=1) as engine:
        connection = engine._connection
        connection.register("impressions", log.impressions.frame)
        connection.register("conversions", log.conversions.frame)
        # A job without a choice to make needs no salt.
        salt = {"salt": SALT.hex()} if "$salt" in script else {}
        rows = connection.execute(script, salt).fetchall()
        names = [column[0] for column in connection.description]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    path = folder / f"{result_name(job)}.{form}"
    frame.write_parquet(path) if form == "parquet" else frame.write_csv(path)


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("number", range(len(JOBS_OF_EXPORTED_TOTALS)))
def test_totals_come_back_as_they_are(number: int, form: str, tmp_path: Path) -> None:
    log, job = quoted_log(), JOBS_OF_EXPORTED_TOTALS[number]
    export(log, job, tmp_path, form)
    with DuckDBEngine(num_threads=1) as engine:
        (expected,) = slice_totals(engine, log, LINEAR, [job], unit=Unit.user(), salt=SALT)
    found = ExportedTotals(tmp_path).slice_totals(job)
    assert found.slices.equals(expected.slices)
    assert expected.raw_steps.any()
    np.testing.assert_array_equal(found.raw_steps, expected.raw_steps)
    np.testing.assert_array_equal(found.raw_unit_counts, expected.raw_unit_counts)


@pytest.mark.parametrize("with_keys", [True, False])
def test_frequencies_come_back_as_they_are(with_keys: bool, tmp_path: Path) -> None:
    log, job = quoted_log(), how_often(with_keys=with_keys)
    export(log, job, tmp_path, "parquet")
    with DuckDBEngine(num_threads=1) as engine:
        (expected,) = slice_totals(engine, log, None, [job], unit=Unit.user(), salt=SALT)
    found = ExportedTotals(tmp_path).slice_totals(job)
    assert found.slices.equals(expected.slices)
    assert expected.raw_steps.any()
    np.testing.assert_array_equal(found.raw_steps, expected.raw_steps)


def one_row(**changes: object) -> pl.DataFrame:
    return pl.DataFrame({"campaign": "b", "conversions": 5, "num_units": 2} | changes)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (one_row().drop("num_units"), "no column 'num_units'"),
        (pl.concat([one_row(), one_row()]), "twice"),
        (one_row(campaign="z"), "not among the keys"),
        (one_row(conversions=-1), "whole numbers >= 0"),
        (one_row(conversions=0.5).cast({"conversions": pl.String}), "holds no whole number"),
        (one_row(conversions=None).cast({"conversions": pl.Int64}), "'conversions' is missing"),
        (one_row(conversions=4 * FINE_STEPS), "more than its units may add"),
    ],
)
def test_results_of_another_script_are_refused(
    frame: pl.DataFrame, message: str, tmp_path: Path
) -> None:
    frame.write_parquet(tmp_path / f"{result_name(BY_KEYS)}.parquet")
    with pytest.raises(DataError, match=message):
        ExportedTotals(tmp_path).slice_totals(BY_KEYS)


def test_a_right_row_is_taken(tmp_path: Path) -> None:
    one_row().write_parquet(tmp_path / f"{result_name(BY_KEYS)}.parquet")
    found = ExportedTotals(tmp_path).slice_totals(BY_KEYS)
    assert found.raw_steps[:, 0].tolist() == [0, 0, 5]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"no {result_name(BY_KEYS)}.parquet"):
        ExportedTotals(tmp_path).slice_totals(BY_KEYS)


def test_a_frequency_out_of_range_is_refused(tmp_path: Path) -> None:
    job = how_often(with_keys=True)
    frame = pl.DataFrame({"campaign": ["b"], "frequency": [4], "num_units": [1]})
    frame.write_parquet(tmp_path / f"{result_name(job)}.parquet")
    with pytest.raises(DataError, match="from 1 to 3"):
        ExportedTotals(tmp_path).slice_totals(job)
