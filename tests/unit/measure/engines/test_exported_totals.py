"""Results of an emitted script are read back as what our own engine computes."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.errors import DataError
from tulle.measure.ad_log import AdLog
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.rules import Linear
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.emitted_sql import emit_sql
from tulle.measure.engines.exported_totals import ExportedTotals, result_name
from tulle.measure.engines.frequency import frequencies
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import FINE_STEPS, Bounds, FrequencyJob, SliceJob
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import CAMPAIGN, HALF_VALUE, SALT, TYPE, job_of, quoted_log

BOUNDS = Bounds(max_per_slice=1.5, max_slices_per_unit=2)
LINEAR = Attribution(rule=Linear(), lookback_seconds=86_400)
BY_KEYS = job_of(
    CAMPAIGN, bounds=BOUNDS, steps=FINE_STEPS, keys=pl.DataFrame({"campaign": ["c", "it's", "b"]})
)
JOBS = [
    job_of(CAMPAIGN, TYPE, amounts=HALF_VALUE, has_rest=True, bounds=BOUNDS, steps=FINE_STEPS),
    BY_KEYS,
    job_of(bounds=BOUNDS, steps=FINE_STEPS),
]


def frequency_job(*, with_keys: bool) -> FrequencyJob:
    return FrequencyJob(
        name="How often?",
        slices=(CAMPAIGN,),
        max_frequency=3,
        max_slices_per_unit=1,
        keys=pl.DataFrame({"campaign": ["b", "c"]}) if with_keys else None,
    )


def export(log: AdLog, job: SliceJob | FrequencyJob, folder: Path, form: str) -> None:
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
@pytest.mark.parametrize("number", range(len(JOBS)))
def test_totals_come_back_as_they_are(number: int, form: str, tmp_path: Path) -> None:
    log, job = quoted_log(), JOBS[number]
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
    log, job = quoted_log(), frequency_job(with_keys=with_keys)
    export(log, job, tmp_path, "parquet")
    with DuckDBEngine(num_threads=1) as engine:
        (expected,) = frequencies(engine, log, [job], unit=Unit.user(), salt=SALT)
    found = ExportedTotals(tmp_path).frequencies(job)
    assert found.slices.equals(expected.slices)
    assert expected.raw_counts.any()
    np.testing.assert_array_equal(found.raw_counts, expected.raw_counts)


def one_row(**changes: object) -> pl.DataFrame:
    return pl.DataFrame({"campaign": "b", "conversions": 5, "num_units": 2} | changes)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (one_row().drop("num_units"), "no column 'num_units'"),
        (pl.concat([one_row(), one_row()]), "twice"),
        (one_row(campaign="z"), "not among the keys"),
        (one_row(conversions=-1), "whole numbers >= 0"),
        (one_row(conversions=0.5).cast({"conversions": pl.String}), "whole numbers >= 0"),
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
    job = frequency_job(with_keys=True)
    frame = pl.DataFrame({"campaign": ["b"], "frequency": [4], "num_units": [1]})
    frame.write_parquet(tmp_path / f"{result_name(job)}.parquet")
    with pytest.raises(DataError, match="from 1 to 3"):
        ExportedTotals(tmp_path).frequencies(job)
