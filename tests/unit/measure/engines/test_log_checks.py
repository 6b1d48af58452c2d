"""Every kind of bad input is found before anything is spent, and no message shows a row."""

import dataclasses
import datetime
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tulle.errors import ConfigError, DataError, TulleError
from tulle.measure.ad_log import AdLog, FileTable, FrameTable, LogColumns, Side
from tulle.measure.attribution.rules import Attribution, ChannelWeights, LastTouch
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.log_checks import check_log
from tulle.measure.slice_jobs import Amount, SliceColumn
from unit.measure.engines.small_logs import CAMPAIGN, TYPE, job_of

IMPRESSIONS: dict[str, list[Any]] = {
    "user": [1, 2, 987654321],
    "timestamp": [1000, 900, 1100],
    "campaign": ["a", "b", "secret"],
    "kind": ["view", "click", "view"],
    "priority": [1.0, 2.0, 3.0],
    "impression_id": [1, 2, 3],
}
CONVERSIONS: dict[str, list[Any]] = {
    "user": [1, 2],
    "timestamp": [1050, 10],
    "value": [3.0, None],
    "type": ["x", "y"],
    "conversion_id": ["p", "q"],
}
COLUMNS = LogColumns(
    kind="kind",
    priority="priority",
    value="value",
    impression_id="impression_id",
    conversion_id="conversion_id",
    kinds={"timestamp": "timestamp"},
)
ATTRIBUTION = Attribution(rule=LastTouch(), lookback_seconds=100)


def log_with(
    impressions: dict[str, Any] | None = None,
    conversions: dict[str, Any] | None = None,
    columns: LogColumns = COLUMNS,
) -> AdLog:
    left = pl.DataFrame(IMPRESSIONS | (impressions or {}))
    right = pl.DataFrame(CONVERSIONS | (conversions or {}))
    return AdLog(
        impressions=FrameTable(frame=left), conversions=FrameTable(frame=right), columns=columns
    )


def test_a_log_in_order_passes_with_its_times(engine: DuckDBEngine) -> None:
    span = check_log(engine, log_with(), jobs=[job_of(CAMPAIGN, TYPE)], attributions=[ATTRIBUTION])
    assert span == (10, 1100)


@pytest.mark.parametrize(
    "times",
    [
        [datetime.date(2026, 1, 14)] * 3,
        [datetime.datetime(2026, 1, 14, 5)] * 3,
        [datetime.datetime(2026, 1, 14, 5, tzinfo=datetime.UTC)] * 3,
        [1768366800.0] * 3,
        [1768366800] * 3,
    ],
    ids=["date", "timestamp", "with zone", "whole floats", "seconds"],
)
def test_times_of_every_kind_pass(engine: DuckDBEngine, times: list[Any]) -> None:
    later = [datetime.datetime(2026, 1, 14, 6), datetime.datetime(2026, 1, 15)]
    first, last = check_log(engine, log_with({"timestamp": times}, {"timestamp": later}))
    assert first == 1768348800 + (
        0
        if isinstance(times[0], datetime.date) and not isinstance(times[0], datetime.datetime)
        else 18000
    )
    assert last == 1768435200


@pytest.mark.parametrize(
    ("impressions", "conversions", "message"),
    [
        ({"user": [1, None, 987654321]}, {}, "user column 'user' has nulls"),
        ({"user": [1.0, math.inf, 2.0]}, {}, "fractions or NaN"),
        ({"user": [1.0, math.nan, 2.0]}, {}, "has nulls"),
        ({}, {"user": [1.5, 2.0]}, "fractions or NaN"),
        ({"timestamp": [1, None, 2]}, {}, "time column 'timestamp' has nulls"),
        ({"timestamp": [1.5, math.inf, 3.0]}, {}, "infinite values or NaN"),
        ({"timestamp": [-1, 2, 3]}, {}, "outside"),
        ({"timestamp": [1768366800, 1768366800000, 1768366801]}, {}, "Milliseconds"),
        ({"timestamp": ["then", "now", "later"]}, {}, "has text"),
        ({}, {"timestamp": [1768366800000, 1768366801000]}, "Milliseconds"),
        ({"timestamp": [1768366800] * 3}, {}, "before the first impression"),
        ({}, {"timestamp": [1768366800, 1768366801]}, "lookback_seconds=100 after"),
        ({}, {"value": [1.0, -987654321.0]}, "negative, infinite or NaN"),
        ({}, {"value": [math.inf, 1.0]}, "negative, infinite or NaN"),
        ({}, {"value": ["1", "secret"]}, "not numbers"),
        ({}, {"value": ["1", "nan"]}, "negative, infinite or NaN"),
        ({}, {"value": ["inf", "1"]}, "negative, infinite or NaN"),
        ({}, {"value": [True, False]}, "not numbers"),
        ({"timestamp": ["5", "secret", "7"]}, {}, "has text that is no time"),
        ({"timestamp": ["5", "1,5", "7"]}, {}, "has text that is no time"),
        ({"timestamp": ["5", "2026-01-14 25:00", "7"]}, {}, "has text that is no time"),
        ({"timestamp": ["5", "2026-01-14 noon", "7"]}, {}, "has text that is no time"),
        ({"timestamp": ["1768366800000"] * 3}, {}, "not milliseconds"),
        ({"timestamp": [60, 60, 61]}, {"timestamp": [60, 60]}, "or at its time"),
        ({"priority": ["1", "secret", "2"]}, {}, "not numbers"),
        ({"priority": [1.0, math.inf, 0.0]}, {}, "priority column"),
        ({"impression_id": [1, 2, 1]}, {}, "same id"),
        ({"impression_id": [1, 2, None]}, {}, "impression_id column 'impression_id' has nulls"),
        ({}, {"conversion_id": ["p", "p"]}, "same id"),
    ],
)
def test_bad_rows_are_found(engine, impressions, conversions, message) -> None:
    with pytest.raises(DataError, match=message) as caught:
        check_log(engine, log_with(impressions, conversions), attributions=[ATTRIBUTION])
    assert "987654321" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("side", ["impressions", "conversions"])
def test_a_table_without_rows_is_refused(engine: DuckDBEngine, side: str) -> None:
    log = log_with()
    source = getattr(log, side)
    empty = dataclasses.replace(log, **{side: FrameTable(frame=source.frame.clear())})
    with pytest.raises(DataError, match=f"{side} .* no rows"):
        check_log(engine, empty)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": "usr"}, "no column 'usr' .did you mean 'user'."),
        ({"impression_time": "time"}, "no column 'time'"),
        ({"kinds": {"timestmp": "timestamp"}}, "did you mean 'timestamp'"),
        ({"conversion_time": "time"}, "conversions .time.: there is no column 'time'"),
        ({"advertiser": "advertiser"}, "no column 'advertiser'"),
        ({"kind": "kin"}, "did you mean 'kind'"),
        ({"value": "type"}, "not numbers"),
    ],
)
def test_missing_columns_are_named(engine, columns, message) -> None:
    log = log_with(columns=dataclasses.replace(COLUMNS, **columns))
    with pytest.raises(DataError, match=message):
        check_log(engine, log)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            job_of(SliceColumn(name="c", side=Side.IMPRESSION, column="campain")),
            "did you mean 'campaign'",
        ),
        (job_of(SliceColumn(name="c", side=Side.CONVERSION, column="campaign")), "no column"),
        (
            job_of(SliceColumn(name="d", side=Side.IMPRESSION, column="kind", is_day=True)),
            "days need a time",
        ),
        (job_of(amounts=(Amount(name="v", column="worth"),)), "no column 'worth'"),
        (job_of(amounts=(Amount(name="v", column="type"),)), "not numbers"),
        (job_of(CAMPAIGN, keys=pl.DataFrame({"publisher": ["a"]})), "same order"),
        (job_of(CAMPAIGN, keys=pl.DataFrame({"campaign": [1]})), "must be text"),
        (job_of(CAMPAIGN, CAMPAIGN), "names a slice twice"),
    ],
)
def test_unknown_slices_are_refused(engine, job, message) -> None:
    with pytest.raises(TulleError, match=message):
        check_log(engine, log_with(), jobs=[job])


def test_times_and_numbers_as_text_pass(engine: DuckDBEngine) -> None:
    times = ["5", "1970-01-02", "1970-01-01 02:00:00+02:00"]
    log = log_with({"timestamp": times}, {"timestamp": ["6", "7"], "value": ["1e2", None]})
    assert check_log(engine, log) == (0, 86_400)


UNDECLARED = dataclasses.replace(COLUMNS, kinds={})


@pytest.mark.parametrize(
    "times",
    [
        [20_467, 20_468, 20_469],
        [20_467.0, 20_468.0, 20_469.0],
        ["2026-01-14", "20467", "2026-01-15"],
        ["1768366800", "100000", "1768366801"],
    ],
    ids=str,
)
@pytest.mark.parametrize("side", ["impressions", "conversions"])
def test_small_numbers_that_may_be_days_are_refused(
    engine: DuckDBEngine, side: str, times: list[Any]
) -> None:
    later = [datetime.datetime(2026, 1, 14, 6)] * 3
    tables = {
        name: {"timestamp": (times if name == side else later)[:size]}
        for name, size in (("impressions", 3), ("conversions", 2))
    }
    log = log_with(tables["impressions"], tables["conversions"], columns=UNDECLARED)
    message = "'timestamp' has a number that may count days as well as seconds; say which"
    with pytest.raises(DataError, match=message):
        check_log(engine, log)


def test_larger_numbers_are_seconds_and_dates_are_no_numbers(engine: DuckDBEngine) -> None:
    log = log_with(
        {"timestamp": ["100001", "1970-01-02", "1970-01-03"]},
        {"timestamp": [datetime.date(1970, 1, 5)] * 2},
        columns=UNDECLARED,
    )
    assert check_log(engine, log) == (86_400, 4 * 86_400)


@pytest.mark.parametrize("kind", [pl.Int32, pl.Float64, pl.String], ids=str)
def test_days_are_days_where_the_kinds_say_so(engine: DuckDBEngine, kind: Any) -> None:
    days = pl.Series([20_467, 20_468, 20_469]).cast(kind).to_list()
    columns = dataclasses.replace(COLUMNS, kinds={"timestamp": "integer"})
    log = log_with({"timestamp": days}, {"timestamp": days[1:]}, columns=columns)
    assert check_log(engine, log) == (20_467 * 86_400, 20_469 * 86_400)
    with pytest.raises(DataError, match="read as days"):
        check_log(engine, log_with({"timestamp": [1_768_366_800] * 3}, columns=columns))


@pytest.mark.parametrize("kind", [pl.List(pl.Int64), pl.Object], ids=str)
def test_a_column_that_holds_no_values_is_named_with_its_type(
    engine: DuckDBEngine, kind: Any
) -> None:
    values = pl.Series([[1], [2], [3]]) if kind != pl.Object else pl.Series([{1}, {2}, {3}])
    assert values.dtype == kind
    log = log_with({"campaign": values})
    check_log(engine, log)
    with pytest.raises(DataError, match=r"column 'campaign' has the type (List|Object)"):
        check_log(engine, log, jobs=[job_of(CAMPAIGN)])


def test_days_of_dates_need_no_kind(engine: DuckDBEngine) -> None:
    columns = dataclasses.replace(COLUMNS, kinds={"timestamp": "integer"})
    dates = [datetime.date(2026, 1, 14)] * 3
    with pytest.raises(DataError, match="dates or timestamps; it needs numbers of days"):
        check_log(engine, log_with({"timestamp": dates}, columns=columns))


@pytest.mark.parametrize("kind", [pl.Float64, pl.String], ids=str)
def test_fractions_of_seconds_are_read(engine: DuckDBEngine, kind: Any) -> None:
    times = pl.Series([1_768_383_000.5, 1_768_383_000.25, 1_768_383_001.0]).cast(kind).to_list()
    log = log_with({"timestamp": times}, {"timestamp": times[1:]}, columns=UNDECLARED)
    assert check_log(engine, log) == (1_768_383_000, 1_768_383_001)


@pytest.mark.parametrize("kinds", [{"campaign": "real"}, {"timestamp": "boolean"}, {"kind": "b"}])
def test_kinds_that_a_log_has_no_use_for_are_refused(kinds: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="kind"):
        LogColumns(kinds=kinds)


def test_a_slice_that_is_declared_boolean_holds_truth_values(engine: DuckDBEngine) -> None:
    columns = dataclasses.replace(COLUMNS, kinds={**COLUMNS.kinds, "campaign": "boolean"})
    job = job_of(CAMPAIGN)
    fine = log_with({"campaign": ["yes", "TRUE", None]}, columns=columns)
    check_log(engine, fine, jobs=[job])
    wrong = log_with({"campaign": ["yes", "secret", None]}, columns=columns)
    with pytest.raises(DataError, match="'campaign' holds no truth value: true, false") as caught:
        check_log(engine, wrong, jobs=[job])
    assert "secret" not in str(caught.value)
    times = dataclasses.replace(COLUMNS, kinds={**COLUMNS.kinds, "campaign": "integer"})
    with pytest.raises(ConfigError, match="which is for times"):
        check_log(engine, log_with(columns=times), jobs=[job])


def test_a_column_that_both_tables_have_is_checked_in_each(engine: DuckDBEngine) -> None:
    columns = dataclasses.replace(COLUMNS, kinds={**COLUMNS.kinds, "campaign": "boolean"})
    sold = SliceColumn(name="sold", side=Side.CONVERSION, column="campaign")
    jobs = [job_of(CAMPAIGN), job_of(sold)]
    right, wrong = ["yes", "no"], ["yes", "secret"]
    check_log(
        engine, log_with({"campaign": [*right, "no"]}, {"campaign": right}, columns), jobs=jobs
    )
    for shown, bought in ((wrong, right), (right, wrong)):
        log = log_with({"campaign": [*shown, "no"]}, {"campaign": bought}, columns)
        with pytest.raises(DataError, match="'campaign' holds no truth value"):
            check_log(engine, log, jobs=jobs)


@pytest.mark.parametrize("column", ["user", "timestamp", "priority", "value"])
def test_statistics_of_parquet_do_not_hide_nan(
    engine: DuckDBEngine, column: str, tmp_path: Path
) -> None:
    side = "conversions" if column == "value" else "impressions"
    rows = {"conversions": CONVERSIONS, "impressions": IMPRESSIONS}
    for name, columns in rows.items():
        frame = pl.DataFrame(columns)
        if name == side:
            number = pl.col(column).cast(pl.Float64).fill_null(1.0)
            frame = pl.concat([frame.with_columns(number)] * 100)
            is_bad = pl.int_range(pl.len()) % 7 == 1
            frame = frame.with_columns(
                pl.when(is_bad).then(math.nan).otherwise(number).alias(column)
            )
        frame.write_parquet(tmp_path / f"{name}.parquet")
    log = AdLog(
        impressions=FileTable(paths=(tmp_path / "impressions.parquet",)),
        conversions=FileTable(paths=(tmp_path / "conversions.parquet",)),
        columns=dataclasses.replace(COLUMNS, impression_id=None, conversion_id=None),
    )
    with pytest.raises(DataError, match=f"column '{column}' .*NaN"):
        check_log(engine, log)


def test_rows_of_a_file_without_a_header_are_not_shown(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text("secret@example.com,shoes\nother@example.com,hats\n")
    log = AdLog(impressions=FileTable(paths=(tmp_path / "log.csv",)), conversions=None)
    with pytest.raises(DataError, match="must be a header") as caught:
        check_log(engine, log)
    assert "secret" not in str(caught.value)


def test_slices_whose_names_differ_in_case_are_refused(engine: DuckDBEngine) -> None:
    other = dataclasses.replace(CAMPAIGN, name="Campaign")
    with pytest.raises(ConfigError, match="case makes no difference"):
        check_log(engine, log_with(), jobs=[job_of(CAMPAIGN, other)])


def test_an_unknown_channel_is_refused(engine: DuckDBEngine) -> None:
    rule = ChannelWeights(column="channel", weights={"a": 1.0})
    attribution = Attribution(rule=rule, lookback_seconds=100)
    with pytest.raises(DataError, match="no column 'channel'"):
        check_log(engine, log_with(), attributions=[attribution])


def test_kinds_need_a_kind_column(engine: DuckDBEngine) -> None:
    log = log_with(columns=dataclasses.replace(COLUMNS, kind=None))
    with pytest.raises(ConfigError, match="kind column"):
        check_log(engine, log, jobs=[job_of(only_kinds=("click",))])


def test_impressions_alone_are_a_log(engine: DuckDBEngine) -> None:
    log = dataclasses.replace(log_with(), conversions=None)
    assert check_log(engine, log)[0] == 900
