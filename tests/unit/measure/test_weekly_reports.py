"""Reports of calendar weeks, from the settings to the ledger: one window each."""

import datetime
import json
from pathlib import Path

import polars as pl
import pytest

from tulle import measure
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.cli.main import run_with
from tulle.errors import BudgetExceededError, ConfigError, DataError
from tulle.privacy.units import Adjacency, Unit
from unit.measure.queries.small_measurements import settings, small_log, write_log, write_settings

BERLIN = "user per week in Europe/Berlin"
MONDAY = datetime.datetime(2026, 3, 22, 23, tzinfo=datetime.UTC)
"""Monday 2026-03-23, 00:00 in Berlin, of the week in which the clock is set forward."""
WEEK = {"at": "2026-03-23", "until": "2026-03-29"}


def log_of_a_week(folder: Path, *, begins: datetime.datetime = MONDAY) -> None:
    """The small log, squeezed into the 167 hours of a week, from its first to its last second."""
    first = int(begins.timestamp())
    last = first + 167 * 3600 - 1
    frames = []
    for frame in small_log():
        times = frame["timestamp"]
        spread = (times - times.min()) * (last - first) // (times.max() - times.min()) + first
        frames.append(frame.with_columns(spread.alias("timestamp")))
    write_log(folder, (frames[0], frames[1]))


def ledger_at(
    folder: Path, unit: str, *, adjacency: str = "add-remove", epsilon: float = 2
) -> Ledger:
    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        Budget(
            name="weekly",
            unit=Unit.parse(unit),
            adjacency=Adjacency.parse(adjacency),
            epsilon=epsilon,
            delta=0.0,
        )
    )
    return ledger


def settings_of(folder: Path, unit: str, *queries: str, epsilon: float = 2.0) -> Path:
    text = settings(*queries, epsilon=epsilon).replace('unit = "user"', f'unit = "{unit}"')
    return write_settings(folder, text)


def test_a_report_of_a_calendar_week_is_charged_to_one_window(tmp_path: Path) -> None:
    log_of_a_week(tmp_path)
    ledger = ledger_at(tmp_path, BERLIN)
    path = settings_of(tmp_path, BERLIN, "conversions", "impressions")
    measure.release(path, output=tmp_path / "out", ledger=ledger, **WEEK)
    (state,) = ledger.charged_states("weekly")
    assert state.window_bounds == (MONDAY, MONDAY + datetime.timedelta(hours=167))
    assert state.left_epsilon == 0
    # Days of UTC would end one hour later, and charge the next week too.
    with pytest.raises(BudgetExceededError):
        ledger.check(state_event(ledger), purpose="measure", unit=BERLIN, at="2026-03-29")
    assert (
        len(ledger.check(state_event(ledger), purpose="measure", unit=BERLIN, at="2026-03-30")) == 1
    )


def state_event(ledger: Ledger):  # type: ignore[no-untyped-def]
    return ledger.spends("weekly")[0].request.event


def test_a_log_that_is_not_of_that_week_is_refused(tmp_path: Path) -> None:
    log_of_a_week(tmp_path, begins=MONDAY + datetime.timedelta(seconds=1))
    ledger = ledger_at(tmp_path, BERLIN)
    path = settings_of(tmp_path, BERLIN, "impressions")
    with pytest.raises(ConfigError, match="times outside"):
        measure.release(path, output=tmp_path / "out", ledger=ledger, **WEEK)
    assert ledger.spends("weekly") == ()


def test_the_same_numbers_with_the_unit_of_the_week_and_of_the_user(tmp_path: Path) -> None:
    """In data of one window nothing is cut: a week in Berlin is no week from Thursday."""
    log_of_a_week(tmp_path)
    totals = {}
    for unit in ("user", BERLIN, "user per 7 days"):
        path = settings_of(tmp_path, unit, "total", epsilon=400)
        found = measure.release(path, seed=1).to_polars("total")
        totals[unit] = found["value"].sum()
    assert totals["user"] == totals[BERLIN] != totals["user per 7 days"]


def test_weekly_reach_goes_on_a_budget_that_renews_and_counts_under_add_remove(
    tmp_path: Path,
) -> None:
    log_of_a_week(tmp_path)
    ledger = ledger_at(tmp_path, BERLIN)
    path = settings_of(tmp_path, "user", "conversions", "reach")
    measure.release(path, output=tmp_path / "out", ledger=ledger, **WEEK)
    (state,) = ledger.charged_states("weekly")
    assert state.spent_epsilon == pytest.approx(2)
    other = settings_of(tmp_path, "user", "reach")
    with pytest.raises(ConfigError, match=r"larger than unit .*adjacency replace"):
        measure.release(
            other, output=tmp_path / "two", ledger=ledger, at="2026-03-22", until="2026-03-29"
        )


def test_reach_with_windows_says_how_it_goes(tmp_path: Path) -> None:
    path = settings_of(tmp_path, BERLIN, "reach")
    with pytest.raises(ConfigError, match=f"unit 'user', which a budget of '{BERLIN}' takes"):
        measure.plan(path)
    by_day = 'slices = ["day"]\nkeys = { day = { first = 1970-01-01, last = 1970-01-08 } }\n'
    text = path.read_text().replace(
        'slices = ["campaign"]\nkeys = { campaign = ["a", "b", "c"] }\n', by_day
    )
    # A day of UTC lies in two days of Berlin.
    with pytest.raises(ConfigError, match="reach counts users"):
        measure.plan(write_settings(tmp_path, text, "days.toml"))
    measure.plan(write_settings(tmp_path, text.replace(f" in {BERLIN[17:]}", ""), "utc.toml"))


def test_lookback_impressions_count_on_a_replace_budget_and_both_windows_pay(
    tmp_path: Path,
) -> None:
    """The way out that a plan names: the log begins with the impressions of the week before."""
    log_of_a_week(tmp_path, begins=MONDAY - datetime.timedelta(days=3))
    ledger = ledger_at(tmp_path, BERLIN, adjacency="replace", epsilon=5)
    path = settings_of(tmp_path, "user", "conversions", epsilon=2)
    measure.release(
        path, output=tmp_path / "out", ledger=ledger, at="2026-03-20", until="2026-03-29"
    )
    states = ledger.charged_states("weekly")
    assert [state.spent_epsilon for state in states] == [pytest.approx(4), pytest.approx(4)]


def test_plan_and_run_say_what_the_windows_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_of_a_week(tmp_path)
    path = settings_of(tmp_path, BERLIN, "conversions")
    note = "up to 43% of conversions may miss impressions"
    assert run_with(["measure", "plan", str(path)]) == 0
    assert note in capsys.readouterr().out
    assert run_with(["measure", "plan", str(path), "--json"]) == 0
    crossing = json.loads(capsys.readouterr().out)["lookback_crossing"]
    assert crossing["most_conversions"] == pytest.approx(3 / 7)
    assert run_with(["measure", "run", str(path), "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert note in printed.err
    assert note not in printed.out
    quiet = ["measure", "run", str(path), "--output", str(tmp_path / "quiet"), "--quiet"]
    assert run_with(quiet) == 0
    assert note not in capsys.readouterr().err
    assert pl.read_parquet(tmp_path / "quiet" / "conversions.parquet").height > 0


@pytest.mark.parametrize("kind", ["dates", "numbers of days"])
def test_days_without_a_time_have_no_windows_in_a_zone(tmp_path: Path, kind: str) -> None:
    """A date is midnight UTC, which is the evening of the day before in New York."""
    numbered = [frame.with_columns(pl.col("timestamp") // 86_400) for frame in small_log()]
    days = numbered
    if kind == "dates":
        days = [
            frame.with_columns(pl.col("timestamp").cast(pl.Int32).cast(pl.Date)) for frame in days
        ]
    write_log(tmp_path, (days[0], days[1]))
    for unit, is_refused in (("user per week", False), ("user per week in America/New_York", True)):
        text = settings_of(tmp_path, unit, "impressions").read_text()
        given = '{ timestamp = "integer" }' if kind != "dates" else "{}"
        text = text.replace('{ timestamp = "timestamp" }', given)
        path = write_settings(tmp_path, text, "days.toml")
        if is_refused:
            with pytest.raises(DataError, match=r"days without a time of day.*New_York"):
                measure.release(path, seed=1)
        else:
            measure.release(path, seed=1)


def test_the_example_of_a_weekly_report_can_be_planned() -> None:
    root = Path(__file__).parents[3]
    made = measure.plan(root / "examples" / "measure_weekly.toml")
    assert str(made.plan.guarantee.unit) == BERLIN
    assert made.crossing is not None
    assert "up to 14% of conversions" in str(made.crossing)
