"""Budgets that renew with a calendar: which days a spend means, and which windows pay."""

import dataclasses
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tulle.accounting import ledger_rows
from tulle.accounting.budget import Budget, BudgetState
from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Span, span_of
from tulle.errors import BudgetExceededError, ConfigError
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.units import Adjacency, Unit
from tulle.privacy.windows import TimeWindows

HALF = EpsilonDelta(epsilon=0.5)
BERLIN = "user per week in Europe/Berlin"
MICRO = timedelta(microseconds=1)


def make_budget(unit: str, *, name: str = "", adjacency: str = "add-remove") -> Budget:
    return Budget(
        name=name or unit,
        unit=Unit.parse(unit),
        adjacency=Adjacency.parse(adjacency),
        epsilon=1.0,
        delta=0.0,
    )


def make_ledger(folder: Path, *budgets: Budget) -> Ledger:
    ledger = Ledger.create(folder / "ledger.db")
    for budget in budgets:
        ledger.create_budget(budget)
    return ledger


def windows_of(states: tuple[BudgetState, ...]) -> list[tuple[str, str]]:
    bounds = [state.window_bounds or (datetime.min, datetime.min) for state in states]
    return [(f"{start:%Y-%m-%dT%H}", f"{end:%Y-%m-%dT%H}") for start, end in bounds]


@pytest.mark.parametrize(
    ("unit", "at", "until", "window"),
    [
        ("user per week", "2026-03-02", "2026-03-08", ("2026-03-02T00", "2026-03-09T00")),
        (BERLIN, "2026-03-02", "2026-03-08", ("2026-03-01T23", "2026-03-08T23")),
        # The week in which the clock is set forward has 167 hours.
        (BERLIN, "2026-03-23", "2026-03-29", ("2026-03-22T23", "2026-03-29T22")),
        (
            "user per day in America/New_York",
            "2026-11-01",
            None,
            ("2026-11-01T04", "2026-11-02T05"),
        ),
        (
            "user per month in Asia/Kolkata",
            "2026-02-01",
            "2026-02-28",
            ("2026-01-31T18", "2026-02-28T18"),
        ),
        (
            "user per week from sunday",
            "2026-03-01",
            "2026-03-07",
            ("2026-03-01T00", "2026-03-08T00"),
        ),
        (
            "user per 7 days from 2026-01-05",
            "2026-03-02",
            "2026-03-08",
            ("2026-03-02T00", "2026-03-09T00"),
        ),
    ],
)  # fmt: skip
def test_days_of_one_window_of_the_calendar_touch_that_window_alone(
    unit: str, at: str, until: str | None, window: tuple[str, str], tmp_path: Path
) -> None:
    ledger = make_ledger(tmp_path, make_budget(unit))
    states = ledger.check(HALF, purpose="reach", unit=unit, at=at, until=until)
    assert windows_of(states) == [window]
    # A release of all rows of a user fits too where the data are of one window.
    assert windows_of(ledger.check(HALF, purpose="reach", unit="user", at=at, until=until)) == [
        window
    ]


def test_a_report_of_a_week_is_refused_nothing_in_the_next(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(BERLIN))
    monday = date(2026, 3, 2)
    for _ in range(8):
        spent = ledger.spend(
            EpsilonDelta(epsilon=1.0), purpose="weekly", unit=BERLIN, at=monday,
            until=monday + timedelta(days=6),
        )  # fmt: skip
        assert [state.left_epsilon for state in spent.states()] == [0.0]
        monday += timedelta(days=7)
    with pytest.raises(BudgetExceededError, match="has 0 of 1 left"):
        ledger.spend(HALF, purpose="weekly", unit=BERLIN, at=monday - timedelta(days=1))


def test_windows_of_days_from_1970_are_charged_twice_for_a_calendar_week(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget("user per 7 days"))
    states = ledger.check(HALF, purpose="weekly", at="2026-03-02", until="2026-03-08")
    assert windows_of(states) == [
        ("2026-02-26T00", "2026-03-05T00"),
        ("2026-03-05T00", "2026-03-12T00"),
    ]


def test_every_window_is_charged_from_its_first_to_its_last_microsecond(tmp_path: Path) -> None:
    for number, unit in enumerate(("user per day in Europe/Berlin", "user per month", BERLIN)):
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger = make_ledger(folder, make_budget(unit))
        change = datetime(2026, 3, 29, 1, tzinfo=UTC)
        start, end = ledger.state(unit, change).window_bounds or (change, change)
        ledger.spend(EpsilonDelta(epsilon=1.0), purpose="counts", at=start)
        for moment in (start, change, end - MICRO):
            assert ledger.state(unit, moment).left_epsilon == 0
            with pytest.raises(BudgetExceededError):
                ledger.check(HALF, purpose="counts", at=moment)
        for moment in (start - MICRO, end):
            assert ledger.state(unit, moment).left_epsilon == 1
            assert len(ledger.check(HALF, purpose="counts", at=moment)) == 1
        assert len(ledger.check(HALF, purpose="counts", at=end, until=end)) == 1
        with pytest.raises(BudgetExceededError):
            ledger.check(HALF, purpose="counts", at=end - MICRO, until=end)


class TestDifferentCalendars:
    @pytest.mark.parametrize(
        ("unit", "budget"),
        [
            ("user per week", "user per 7 days"),
            ("user per week", BERLIN),
            ("user per week", "user per month"),
            ("user per day", "user per week"),
            ("user per week from sunday", "user per week"),
            ("user per 7 days from 2026-01-06", "user per 7 days from 2026-01-05"),
        ],
    )
    @pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
    def test_bounds_for_other_windows_are_no_bounds_for_these(
        self, unit: str, budget: str, adjacency: str, tmp_path: Path
    ) -> None:
        ledger = make_ledger(tmp_path, make_budget(budget, adjacency=adjacency))
        with pytest.raises(ConfigError, match=r"does not cover .*name the same windows in both"):
            ledger.spend(HALF, purpose="counts", unit=unit, at="2026-03-04")
        assert ledger.spends(budget) == ()

    def test_a_larger_window_is_charged_to_every_window_that_it_touches(
        self, tmp_path: Path
    ) -> None:
        ledger = make_ledger(tmp_path, make_budget("user per day", adjacency="replace"))
        spent = ledger.spend(
            HALF, purpose="counts", unit="user per week", at="2026-03-02", until="2026-03-08"
        )
        assert len(spent.states()) == 7
        days = [f"2026-03-0{day}" for day in range(1, 10)]
        charged = [ledger.state("user per day", day).num_spends for day in days]
        assert charged == [0, 1, 1, 1, 1, 1, 1, 1, 0]

    def test_names_of_the_same_windows_are_one_unit(self, tmp_path: Path) -> None:
        ledger = make_ledger(tmp_path, make_budget("user per week"))
        ledger.spend(
            HALF, purpose="counts", unit="user per 7 days from 2026-01-05", at="2026-03-01",
            until="2026-03-03",
        )  # fmt: skip
        assert [state.num_spends for state in ledger.charged_states("user per week")] == [1, 1]

    def test_a_whole_user_over_two_windows_is_charged_under_replace_alone(
        self, tmp_path: Path
    ) -> None:
        """Impressions of the lookback in the week before: both weeks pay."""
        span = {"at": "2026-02-23", "until": "2026-03-08"}
        both = make_budget(BERLIN, name="both", adjacency="replace")
        ledger = make_ledger(tmp_path, both)
        assert len(ledger.check(HALF, purpose="weekly", unit="user", **span)) == 2
        other = tmp_path / "add-remove"
        other.mkdir()
        ledger = make_ledger(other, make_budget(BERLIN))
        with pytest.raises(ConfigError, match="adjacency replace"):
            ledger.check(HALF, purpose="weekly", unit="user", **span)


class TestDays:
    def test_days_are_those_of_the_budgets_that_are_charged(self, tmp_path: Path) -> None:
        ledger = make_ledger(tmp_path, make_budget(BERLIN))
        zone = ledger.time_zone("weekly", "user", at="2026-03-02", until=None)
        assert zone == "Europe/Berlin"
        first, last = span_of("2026-03-29", None, zone=zone)
        assert first == datetime(2026, 3, 28, 23, tzinfo=UTC)
        assert last == datetime(2026, 3, 29, 22, tzinfo=UTC) - MICRO

    def test_where_no_budget_renews_the_unit_says_the_zone(self, tmp_path: Path) -> None:
        ledger = make_ledger(tmp_path, make_budget("user"))
        assert ledger.time_zone("weekly", BERLIN, at="2026-03-02", until=None) == "Europe/Berlin"
        assert ledger.time_zone("weekly", None, at="2026-03-02", until=None) == "UTC"

    def test_days_of_two_zones_are_unclear(self, tmp_path: Path) -> None:
        budgets = make_budget(BERLIN), make_budget("user per 7 days")
        ledger = make_ledger(
            tmp_path, *(dataclasses.replace(b, adjacency="replace") for b in budgets)
        )
        with pytest.raises(ConfigError, match=r"at=2026-03-02 .*Europe/Berlin, UTC.*offset"):
            ledger.check(HALF, purpose="weekly", unit="user", at="2026-03-02")
        with pytest.raises(ConfigError, match="until=2026-03-02T12:00 "):
            ledger.check(
                HALF,
                purpose="weekly",
                unit="user",
                at="2026-03-02T00:00Z",
                until="2026-03-02T12:00",
            )
        times = {"at": "2026-03-02T00:00+01:00", "until": "2026-03-08T23:59+01:00"}
        states = ledger.check(HALF, purpose="weekly", unit="user", **times)
        assert [str(state.budget.unit) for state in states] == [BERLIN, *["user per 7 days"] * 2]

    def test_a_time_without_a_zone_is_refused_where_days_are_not_of_utc(
        self, tmp_path: Path
    ) -> None:
        ledger = make_ledger(tmp_path, make_budget(BERLIN))
        with pytest.raises(ConfigError, match=r"says no time zone.*days of Europe/Berlin"):
            ledger.check(HALF, purpose="weekly", at="2026-03-02T00:00")
        assert len(ledger.check(HALF, purpose="weekly", at="2026-03-02T00:00Z")) == 1

    def test_the_state_of_a_day_is_that_of_its_window(self, tmp_path: Path) -> None:
        ledger = make_ledger(tmp_path, make_budget(BERLIN))
        ledger.spend(HALF, purpose="weekly", at="2026-03-02", until="2026-03-08")
        states = [ledger.state(BERLIN, f"2026-03-{day:02d}").num_spends for day in (1, 2, 8, 9)]
        assert states == [0, 1, 1, 0]


class TestWhatIsShown:
    def test_windows_that_were_charged_are_found_the_latest_first(self, tmp_path: Path) -> None:
        ledger = make_ledger(tmp_path, make_budget(BERLIN), make_budget("user", name="all"))
        for monday in ("2026-03-02", "2026-01-05", "2026-03-09"):
            ledger.spend(EpsilonDelta(epsilon=0.1), purpose="weekly", unit="user", at=monday)
        found = ledger.charged_states(BERLIN)
        assert [start for start, _ in windows_of(found)] == [
            "2026-03-08T23", "2026-03-01T23", "2026-01-04T23",
        ]  # fmt: skip
        assert [state.spent_epsilon for state in found] == [pytest.approx(0.1)] * 3
        assert len(ledger.charged_states(BERLIN, most=1)) == 1
        assert ledger.charged_states("all") == ()

    def test_what_rounding_leaves_of_a_budget_is_nothing(self) -> None:
        budget = make_budget("user")
        state = BudgetState(
            budget=budget, window_bounds=None, spent_epsilon=1 - 1.332e-15, num_spends=3, num_open=0
        )
        assert state.left_epsilon == 0
        assert dataclasses.replace(state, spent_epsilon=1 - 1e-9).left_epsilon > 0


class TestPlantedFaults:
    """A wrong ledger, and what notices it."""

    def test_a_release_that_is_charged_to_one_of_two_windows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def noticed(folder: str) -> bool:
            (tmp_path / folder).mkdir()
            ledger = make_ledger(tmp_path / folder, make_budget(BERLIN))
            ledger.spend(
                EpsilonDelta(epsilon=1.0), purpose="x", at="2026-03-08", until="2026-03-09"
            )
            days = ("2026-03-08", "2026-03-09")
            return [ledger.state(BERLIN, day).left_epsilon for day in days] != [0, 0]

        assert not noticed("right")
        shared = ledger_rows._shared_windows
        monkeypatch.setattr(
            ledger_rows, "_shared_windows", lambda *args: iter(list(shared(*args))[1:])
        )
        assert noticed("wrong")

    def test_a_boundary_that_is_off_by_one_hour_at_a_change_of_the_clock(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def touched() -> int:
            last_hour = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)  # 00:30 of Monday in Berlin
            span = Span.of(last_hour, last_hour + timedelta(hours=1))
            return len(make_budget(BERLIN).windows(span))

        assert touched() == 1
        monkeypatch.setattr(TimeWindows, "offsets", ((0, 3600),))  # winter, all year round
        assert touched() == 2
