"""Slices that are numbers or days are the same slices as their texts, down to who is kept."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.measure.ad_log import AdLog, FrameTable, LogColumns, Side
from tulle.measure.attribution.rules import Attribution, LastTouch, Linear
from tulle.measure.engines.credit_tables import credit_totals
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import Bounds, SliceColumn, Subject, frequency_job
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import SALT, job_of

NUMBER = SliceColumn(name="number", side=Side.IMPRESSION, column="number")
SEEN = SliceColumn(name="seen", side=Side.IMPRESSION, column="timestamp", is_day=True)
SEEN_TEXT = SliceColumn(name="seen", side=Side.IMPRESSION, column="day_text")
BOUNDS = Bounds(max_per_slice=2, max_slices_per_unit=3, max_per_unit=5)
NUMBER_TYPES = [pl.Int8, pl.UInt16, pl.Int64, pl.UInt64, pl.Decimal(18, 0)]


def logs(number_type: pl.DataType) -> tuple[AdLog, AdLog]:
    """One log twice: with a column of numbers, and with their texts in its place."""
    draw = np.random.default_rng(11)
    numbers = [None if number == 9 else int(number) for number in draw.integers(0, 10, 400)]
    impressions = pl.DataFrame(
        {
            "user": draw.integers(0, 20, 400),
            "timestamp": draw.integers(0, 3 * 86_400, 400),
            "number": pl.Series(numbers, dtype=pl.Int64).cast(number_type),
        }
    ).with_columns(
        day_text=pl.from_epoch("timestamp", time_unit="s").dt.date().cast(pl.String),
        number_text=pl.Series([None if number is None else str(number) for number in numbers]),
    )
    conversions = pl.DataFrame(
        {"user": draw.integers(0, 20, 60), "timestamp": draw.integers(0, 4 * 86_400, 60)}
    )
    texts = impressions.with_columns(number=pl.col("number_text"))
    return tuple(
        AdLog(
            impressions=FrameTable(frame=frame),
            conversions=FrameTable(frame=conversions),
            columns=LogColumns(),
        )
        for frame in (impressions, texts)
    )


@pytest.mark.parametrize("subject", Subject)
@pytest.mark.parametrize("number_type", NUMBER_TYPES, ids=str)
def test_totals_by_number_and_day_are_those_by_text(
    engine: DuckDBEngine, number_type: pl.DataType, subject: Subject
) -> None:
    attribution = Attribution(rule=Linear(), lookback_seconds=86_400)
    numbers, texts = logs(number_type)
    (result,), (expected,) = (
        slice_totals(
            engine,
            log,
            attribution,
            [job_of(*slices, bounds=BOUNDS, steps=4, subject=subject)],
            unit=Unit.user(),
            salt=SALT,
        )
        for log, slices in ((numbers, (NUMBER, SEEN)), (texts, (NUMBER, SEEN_TEXT)))
    )
    assert result.slices.equals(expected.slices)
    assert "(null)" in result.slices["number"].to_list()
    np.testing.assert_array_equal(result.raw_steps, expected.raw_steps)
    np.testing.assert_array_equal(result.raw_unit_counts, expected.raw_unit_counts)


def test_frequencies_by_number_and_day_are_those_by_text(engine: DuckDBEngine) -> None:
    numbers, texts = logs(pl.Int64)
    (result,), (expected,) = (
        slice_totals(
            engine,
            log,
            None,
            [frequency_job("job", slices, max_frequency=3, max_slices_per_unit=4, keys=None)],
            unit=Unit.user(),
            salt=SALT,
        )
        for log, slices in ((numbers, (NUMBER, SEEN)), (texts, (NUMBER, SEEN_TEXT)))
    )
    assert result.slices.equals(expected.slices)
    np.testing.assert_array_equal(result.raw_steps, expected.raw_steps)


def counted_by(engine: DuckDBEngine, values: pl.Series, columns: LogColumns) -> dict[str, int]:
    """Rows of each value of a slice."""
    frame = pl.DataFrame({"user": range(len(values)), "timestamp": 200_000, "number": values})
    log = AdLog(impressions=FrameTable(frame=frame), conversions=None, columns=columns)
    job = job_of(NUMBER, subject=Subject.IMPRESSIONS)
    (result,) = slice_totals(engine, log, None, [job], unit=Unit.impression(), salt=SALT)
    texts, counts = result.slices["number"].to_list(), result.raw_steps[:, 0].tolist()
    return dict(zip(texts, counts, strict=True))


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([True, False, None, True]),
        pl.Series(["yes", "No", None, "TRUE"]),
        pl.Series(["1", "0", None, "t"]),
        pl.Series([1, 0, None, 1], dtype=pl.Int8),
        pl.Series([1.0, 0.0, None, 1.0]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_truth_values_of_every_form_are_one_slice(engine: DuckDBEngine, values: pl.Series) -> None:
    columns = LogColumns(kinds={"number": "boolean"})
    assert counted_by(engine, values, columns) == {"true": 2, "false": 1, "(null)": 1}


@pytest.mark.parametrize("kind", [pl.Float64, pl.Float32, pl.Decimal(10, 2)], ids=str)
def test_whole_floats_are_the_slices_of_their_digits(engine: DuckDBEngine, kind: Any) -> None:
    values = pl.Series([5.0, 0.5, -7.0, None, 5.0]).cast(kind)
    found = counted_by(engine, values, LogColumns())
    half = "0.50" if kind == pl.Decimal(10, 2) else "0.5"
    assert found == {"5": 2, half: 1, "-7": 1, "(null)": 1}
    if kind != pl.Decimal(10, 2):
        odd = pl.Series([float("nan"), float("inf")]).cast(kind)
        assert counted_by(engine, odd, LogColumns()) == {"(null)": 2}


def test_credit_by_number_and_day_is_that_by_text(engine: DuckDBEngine) -> None:
    attributions = [Attribution(rule=LastTouch(), lookback_seconds=86_400)]
    numbers, texts = logs(pl.Int64)
    result, expected = (
        credit_totals(engine, log, attributions, slices)
        for log, slices in ((numbers, (NUMBER, SEEN)), (texts, (NUMBER, SEEN_TEXT)))
    )
    assert result.equals(expected)
    assert result.height > 10
