"""Slices that are numbers or days are the same slices as their texts, down to who is kept."""

import numpy as np
import polars as pl
import pytest

from tulle.measure.ad_log import AdLog, FrameTable, LogColumns, Side
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.rules import LastTouch, Linear
from tulle.measure.engines.credit_tables import credit_totals
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.frequency import frequencies
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import Bounds, FrequencyJob, SliceColumn, Subject
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
        frequencies(
            engine,
            log,
            [
                FrequencyJob(
                    name="job", slices=slices, max_frequency=3, max_slices_per_unit=4, keys=None
                )
            ],
            unit=Unit.user(),
            salt=SALT,
        )
        for log, slices in ((numbers, (NUMBER, SEEN)), (texts, (NUMBER, SEEN_TEXT)))
    )
    assert result.slices.equals(expected.slices)
    np.testing.assert_array_equal(result.raw_counts, expected.raw_counts)


@pytest.mark.parametrize("counts_unattributed", [False, True])
def test_credit_by_number_and_day_is_that_by_text(
    engine: DuckDBEngine, counts_unattributed: bool
) -> None:
    attributions = [Attribution(rule=LastTouch(), lookback_seconds=86_400)]
    numbers, texts = logs(pl.Int64)
    result, expected = (
        credit_totals(engine, log, attributions, slices, counts_unattributed=counts_unattributed)
        for log, slices in ((numbers, (NUMBER, SEEN)), (texts, (NUMBER, SEEN_TEXT)))
    )
    assert result.equals(expected)
    assert result.height > 10
