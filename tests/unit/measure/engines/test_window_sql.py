"""Windows as SQL against windows in Python, at moments around every kind of edge."""

import importlib.util
import shutil
from collections.abc import Iterator

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.measure.attribution.rules import Attribution, LastTouch, Linear, Rule
from tulle.measure.engines.emitted_sql import emit_sql
from tulle.measure.engines.engine import Engine, Program, Step, open_engine
from tulle.measure.engines.sql_text import DIALECTS
from tulle.measure.engines.totals import slice_totals
from tulle.measure.engines.window_sql import window_sql
from tulle.measure.slice_jobs import FINE_STEPS, Bounds, SliceJob, Subject
from tulle.privacy.time_zones import day_offsets
from tulle.privacy.units import Unit
from tulle.privacy.windows import MICROS, TimeWindows
from unit.measure.engines.log_oracle import Totals, oracle_totals, window_key
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    COLUMNS,
    ONE_IMPRESSION,
    SALT,
    Row,
    conversions,
    impressions,
    job_of,
    log_of,
    quoted_log,
)

HOUR = 3600
MOST_MICROS = 10**17
"""Engines refuse times after the year 5138."""
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/St_Johns",
]
WINDOWS = [
    "7 days",
    "12 hours",
    "week",
    "month",
    "30 days from 2020-02-29",
    *(
        f"{text} in {zone}"
        for zone in ZONES[1:]
        for text in ("day", "week from sunday", "month", "10 days from 2026-01-05")
    ),
]
MIDNIGHTS = (1_774_738_800, 1_774_821_600)
"""The Sunday of 23 hours in Berlin: 2026-03-29 from 2026-03-28T23:00Z to 2026-03-29T22:00Z."""
EDGES = [
    MIDNIGHTS[0] - HOUR,
    MIDNIGHTS[0] - 1,
    MIDNIGHTS[0],
    MIDNIGHTS[0] + HOUR - 1,
    MIDNIGHTS[0] + HOUR,
    1_774_746_000,
    MIDNIGHTS[1] - HOUR,
    MIDNIGHTS[1] - 1,
    MIDNIGHTS[1],
    MIDNIGHTS[1] + HOUR - 1,
    MIDNIGHTS[1] + HOUR,
    MIDNIGHTS[1] + 5 * HOUR,
    MIDNIGHTS[1] + 6 * HOUR,
]


def moments_of(windows: TimeWindows) -> list[int]:
    """Edges of windows of many years and of changes of the clock, and what lies beside them."""
    seconds = [0, 1, 86_399, 86_400, 951_782_400, 4_102_444_800, MOST_MICROS // MICROS - 1]
    seconds += [change for change, _ in day_offsets(windows.zone)]
    numbers = [windows.number(second * MICROS) for second in seconds]
    near = [windows.begin(number + step) for number in numbers for step in (-1, 0, 1, 2)]
    beside = (-HOUR * MICROS - 1, -HOUR * MICROS, -1, 0, 1, HOUR * MICROS - 1, HOUR * MICROS)
    every = {moment + step for moment in near for step in beside}
    return sorted(moment for moment in every if 0 <= moment < MOST_MICROS)


def numbers_by(engine: Engine, moments: list[int], sql: str) -> list[int]:
    frame = pl.DataFrame({"t": moments, "place": range(len(moments))})
    step = Step("numbered", f"SELECT place, {sql} AS w FROM moments x")  # noqa: S608
    program = Program(tables={}, frames={"moments": frame}, steps=(step,), outputs=("numbered",))
    (rows,) = engine.run(program)
    found = dict(zip(map(int, rows["place"]), map(int, rows["w"]), strict=True))
    return [found[place] for place in range(len(moments))]


@pytest.mark.parametrize("text", WINDOWS)
def test_duckdb_puts_every_moment_into_the_window_of_the_ledger(engine: Engine, text: str) -> None:
    windows = TimeWindows.parse(text)
    moments = moments_of(windows)
    found = numbers_by(engine, moments, window_sql(windows, "x.t"))
    assert found == [window_key(windows, moment) for moment in moments]
    assert len(set(found)) == len({windows.number(moment) for moment in moments}) > 1


@pytest.fixture(scope="module")
def spark() -> Iterator[Engine]:
    with open_engine("local[1]") as opened:
        yield opened


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="there is no Spark",
)
@pytest.mark.parametrize(
    "text",
    [
        "week",
        "month",
        "day in Europe/Berlin",
        "month in Australia/Lord_Howe",
        "week in Asia/Kolkata",
    ],
)
def test_spark_puts_every_moment_into_the_same_window(spark: Engine, text: str) -> None:
    windows = TimeWindows.parse(text)
    moments = moments_of(windows)
    found = numbers_by(spark, moments, window_sql(windows, "x.t"))
    assert found == [window_key(windows, moment) for moment in moments]


def test_a_boundary_that_is_off_by_one_hour_is_noticed(engine: Engine) -> None:
    """The fault: the offset of winter all year round, as if no clock ever changed."""
    windows = TimeWindows.parse("day in Europe/Berlin")
    moments = moments_of(windows)
    in_winter = window_sql(TimeWindows(86_400), "(x.t + 3600000000)")
    found = numbers_by(engine, moments, in_winter)
    pairs = set(zip(found, (windows.number(moment) for moment in moments), strict=True))
    assert len(pairs) > len({window for window, _ in pairs})


BERLIN_DAY = Unit.parse("user per day in Europe/Berlin")


def around_the_change(rows: list[Row]) -> list[Row]:
    return [row | {"timestamp": EDGES[row["timestamp"] // 21_600]} for row in rows]


def totals_of(
    engine: Engine,
    rows: list[Row],
    sales: list[Row],
    unit: Unit,
    attribution: Attribution,
    job: SliceJob,
) -> tuple[Totals, Totals]:
    """The engine's totals, and those of the oracle, which cuts time in Python."""
    log = log_of(rows, sales)
    (found,) = slice_totals(engine, log, attribution, [job], unit=unit, salt=SALT)
    by_slice = {
        key: (tuple(steps), units)
        for key, steps, units in zip(
            found.slices.iter_rows(),
            found.raw_steps.tolist(),
            found.raw_unit_counts.tolist(),
            strict=True,
        )
    }
    expected = oracle_totals(rows, sales, COLUMNS, attribution, job, unit=unit, salt=SALT)
    return by_slice, expected


@pytest.mark.parametrize("rule", [LastTouch(), Linear()], ids=["asof", "positions"])
@pytest.mark.parametrize(
    "unit", ["user per day in Europe/Berlin", "user per week", "user per month in Asia/Kolkata"]
)
@settings(max_examples=10)
@given(rows=impressions(), sales=conversions(), of_impressions=st.booleans())
def test_totals_around_a_change_of_the_clock_agree_with_the_oracle(
    engine: Engine,
    unit: str,
    rule: Rule,
    rows: list[Row],
    sales: list[Row],
    of_impressions: bool,
) -> None:
    attribution = Attribution(rule=rule, lookback_seconds=30 * HOUR)
    bounds = Bounds(max_per_slice=1.0, max_slices_per_unit=1, max_per_unit=1.0)
    subject = Subject.IMPRESSIONS if of_impressions else Subject.CONVERSIONS
    job = job_of(CAMPAIGN, bounds=bounds, subject=subject, steps=FINE_STEPS)
    moved, sold = around_the_change(rows), around_the_change(sales)
    found, expected = totals_of(engine, moved, sold, Unit.parse(unit), attribution, job)
    assert found == expected


def test_a_row_in_the_hour_of_the_change_is_bounded_with_its_own_day(engine: Engine) -> None:
    """The same log, cut by the right days and by days that end one hour late."""
    # Two in the Sunday that ends at 22:00Z, and two in the Monday after it.
    times = [MIDNIGHTS[1] - 2, MIDNIGHTS[1] - 1, MIDNIGHTS[1], MIDNIGHTS[1] + HOUR - 1]
    rows = [
        ONE_IMPRESSION | {"timestamp": time, "impression_id": n} for n, time in enumerate(times)
    ]
    attribution = Attribution(rule=LastTouch(), lookback_seconds=HOUR)
    bounds = Bounds(max_per_slice=1.0, max_slices_per_unit=1)
    job = job_of(CAMPAIGN, bounds=bounds, subject=Subject.IMPRESSIONS)
    found, expected = totals_of(engine, rows, [], BERLIN_DAY, attribution, job)
    assert found == expected == {("a",): ((2,), 2)}
    late = Unit(BERLIN_DAY.owner, TimeWindows.parse("day in Africa/Lagos"))  # UTC+1 all year
    found, _ = totals_of(engine, rows, [], late, attribution, job)
    assert found == {("a",): ((1,), 1)}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("unit", ["user per week in Europe/Berlin", "user per month"])
def test_scripts_for_other_engines_have_the_steps_of_the_clock(dialect: str, unit: str) -> None:
    attribution = Attribution(rule=Linear(), lookback_seconds=HOUR)
    job = job_of(CAMPAIGN, bounds=Bounds(max_per_slice=1.0, max_slices_per_unit=1))
    script = emit_sql(
        quoted_log(), attribution, [job], unit=Unit.parse(unit), dialect=dialect,
        times_are_seconds=True,
    )  # fmt: skip
    assert (str(1_774_746_000 * MICROS) in script) == ("Berlin" in unit)
    assert ("MONTH" in script.upper()) == ("month" in unit)
