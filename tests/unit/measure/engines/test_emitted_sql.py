"""Scripts for other engines parse there, ask for the salt, and compute the same."""

import re

import polars as pl
import pytest
import sqlglot
from sqlglot import exp

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, DatabaseTable, LogColumns
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.rules import (
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
from tulle.measure.engines.emitted_sql import emit_sql
from tulle.measure.engines.totals import slice_totals
from tulle.measure.engines.translation import DIALECTS, translate
from tulle.measure.slice_jobs import Bounds, SliceJob, Subject
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    SALT,
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


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "trino", "spark"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_scripts_parse_in_their_dialect(dialect: str, rule: object, caplog) -> None:
    script = emit_sql(LOG, attribution_by(rule), JOBS, unit=Unit.user(days=7), dialect=dialect)
    statements = [tree for tree in sqlglot.parse(script, read=dialect) if tree is not None]
    assert len(statements) == len(JOBS)
    for tree in statements:
        tables = {table.name for table in tree.find_all(exp.Table)}
        assert tables - {cte.alias for cte in tree.find_all(exp.CTE)} <= {"impressions", "sales"}
        assert not list(tree.find_all(exp.Command))
    # sqlglot logs what it could not translate.
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("dialect", "parameter"),
    [("bigquery", "@salt"), ("snowflake", ":salt"), ("trino", ":salt"), ("spark", ":salt")],
)
def test_the_salt_is_a_parameter_without_a_value(dialect: str, parameter: str) -> None:
    script = emit_sql(LOG, attribution_by(Linear()), JOBS[:1], unit=Unit.user(), dialect=dialect)
    assert len(re.findall(rf"{parameter}\b", script)) == 1
    assert "0" * 32 not in script


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
