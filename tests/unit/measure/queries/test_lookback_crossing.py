"""What windows cut off a lookback: the stated shares against conversions that are spread evenly."""

from pathlib import Path

import numpy as np
import pytest

from tulle.measure.queries.lookback_crossing import LookbackCrossing, lookback_crossing
from tulle.privacy.units import Unit
from tulle.privacy.windows import MICROS, TimeWindows
from unit.measure.queries.small_measurements import config_of, settings

DAY = 86_400


def crossing_of(unit: str, lookback_days: float) -> LookbackCrossing:
    protected = Unit.parse(unit)
    assert protected.windows is not None
    return LookbackCrossing(
        unit=protected, windows=protected.windows, lookback_seconds=round(lookback_days * DAY)
    )


@pytest.mark.parametrize(
    "unit", ["user per week", "user per 7 days", "user per day", "user per month"]
)
@pytest.mark.parametrize("lookback_days", [0.5, 1, 7, 30])
def test_the_shares_are_those_of_conversions_that_are_spread_evenly(
    unit: str, lookback_days: float
) -> None:
    crossing = crossing_of(unit, lookback_days)
    # February of 2026, which has the 28 days that are stated for a month.
    seconds = 1_769_904_000 + 28 * DAY * (np.arange(20_000) + 0.5) / 20_000
    begins = [begin_of(crossing.windows, int(second)) for second in seconds]
    since = seconds - np.array(begins)
    lost = np.maximum(0, crossing.lookback_seconds - since) / crossing.lookback_seconds
    assert (lost > 0).mean() == pytest.approx(crossing.most_conversions, abs=2e-3)
    assert lost.mean() == pytest.approx(crossing.lookback_lost, abs=2e-3)


def begin_of(windows: TimeWindows, second: int) -> float:
    return windows.begin(windows.number(second * MICROS)) / MICROS


def test_it_says_the_shares_the_assumption_and_the_ways_out() -> None:
    text = str(crossing_of("user per week in Europe/Berlin", 7))
    assert "up to 100% of conversions may miss impressions" in text
    assert "50% of all lookback time" in text
    assert "spread evenly over time" in text
    assert "per month: up to 25%" in text
    assert "1 day: up to 14%" in text
    assert "'user per week in Europe/Berlin' with adjacency replace" in text


def test_there_is_nothing_to_say_without_windows_or_without_attribution(tmp_path: Path) -> None:
    assert lookback_crossing(config_of(tmp_path, settings("total"))) is None
    by_week = settings("total").replace('unit = "user"', 'unit = "user per week"')
    found = lookback_crossing(config_of(tmp_path, by_week))
    assert found is not None
    assert found.most_conversions == pytest.approx(3 / 7)
    counted = settings("impressions").replace('unit = "user"', 'unit = "user per week"')
    counted = counted.replace('conversions = "conversions.parquet"\n', "")
    assert lookback_crossing(config_of(tmp_path, counted)) is None
