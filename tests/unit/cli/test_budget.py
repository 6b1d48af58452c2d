import datetime
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.cli.budget import budget_app
from tulle.errors import BudgetExceededError, ConfigError, DataError, RunStateError
from waiting import HANG_S

HALF = '{"kind": "EpsilonDelta", "epsilon": 0.5}'


@pytest.fixture
def ledger_path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


def run(*arguments: str) -> str:
    """Runs the command and returns its stdout; an error comes out as it was raised."""
    return CliRunner().invoke(budget_app, arguments, catch_exceptions=False).stdout


def create(ledger_path: str, *more: str, unit: str = "user per 7 days", name: str = "ads") -> str:
    limits = ("--adjacency", "add-remove", "--epsilon", "1", "--delta", "0")
    return run("create", ledger_path, "--name", name, "--unit", unit, *limits, *more)


def on_the_books(ledger_path: str) -> list[SpendStatus]:
    return [spend.status for spend in Ledger.open(ledger_path).spends("ads")]


def shown(ledger_path: str, *more: str) -> list[dict[str, Any]]:
    budgets: list[dict[str, Any]] = json.loads(run("show", ledger_path, "--json", *more))["budgets"]
    return budgets


def test_create_makes_the_ledger_and_adds_budgets_to_it(ledger_path: str) -> None:
    assert create(ledger_path) == "ads: 1 to spend for each user per 7 days (delta=0)\n"
    made = json.loads(create(ledger_path, "--purpose", "training", "--json", name="train"))
    assert made == {
        "ledger": "ledger.db",
        "budget": {
            "name": "train",
            "unit": "user per 7 days",
            "adjacency": "add-remove",
            "epsilon": 1.0,
            "delta": 0.0,
            "purpose": "training",
        },
    }
    assert [budget["name"] for budget in shown(ledger_path)] == ["ads", "train"]
    with pytest.raises(ConfigError, match="'ads' exists"):
        create(ledger_path)


def test_create_with_a_wrong_setting_makes_no_ledger(ledger_path: str) -> None:
    with pytest.raises(ConfigError, match="unit="):
        create(ledger_path, unit="household")
    assert not Path(ledger_path).exists()


def test_create_does_not_start_anew_over_a_damaged_ledger(ledger_path: str) -> None:
    Path(ledger_path).write_bytes(b"")
    with pytest.raises(RunStateError, match="damaged"):
        create(ledger_path)
    assert Path(ledger_path).read_bytes() == b""


def test_spend_writes_and_prints_what_is_left(ledger_path: str) -> None:
    create(ledger_path)
    printed = run(
        "spend", ledger_path, "--event", HALF, "--purpose", "counts", "--at", "2026-01-14",
        "--note", "weekly counts",
    )  # fmt: skip
    assert printed == (
        "ads: 0.5 of 1 spent, 0.5 left (user per 7 days, add-remove, delta=0, "
        "2026-01-08T00:00Z to 2026-01-15T00:00Z, spends: 1, open: 0)\n"
    )
    assert on_the_books(ledger_path) == [SpendStatus.RELEASED]
    (spend,) = Ledger.open(ledger_path).spends("ads")
    assert spend.request.note == "weekly counts"


def test_spend_answers_in_json(ledger_path: str) -> None:
    create(ledger_path)
    arguments = ("--event", HALF, "--purpose", "counts", "--at", "2026-01-14", "--json")
    answer = json.loads(run("spend", ledger_path, *arguments))
    assert answer["spend"] == 1
    (state,) = answer["budgets"]
    assert (state["spent_epsilon"], state["left_epsilon"], state["num_spends"]) == (0.5, 0.5, 1)
    assert state["window_start"] == "2026-01-08T00:00:00+00:00"
    assert shown(ledger_path, "--at", "2026-01-10") == [state]
    assert shown(ledger_path, "--at", "2026-01-15")[0]["left_epsilon"] == 1.0


def test_check_writes_nothing(ledger_path: str) -> None:
    create(ledger_path)
    arguments = ("--event", HALF, "--purpose", "counts", "--at", "2026-01-14")
    assert "0.5 left" in run("check", ledger_path, *arguments)
    assert json.loads(run("check", ledger_path, *arguments, "--json"))["fits"] is True
    assert on_the_books(ledger_path) == []


@pytest.mark.parametrize("command", ["check", "spend"])
def test_what_does_not_fit_is_refused_with_the_way_out(ledger_path: str, command: str) -> None:
    create(ledger_path, unit="user")
    event = '{"kind": "Laplace", "noise_multiplier": 0.25}'
    with pytest.raises(BudgetExceededError, match="Least noise that fits: noise_multiplier=1"):
        run(command, ledger_path, "--event", event, "--purpose", "counts")
    assert on_the_books(ledger_path) == []


def test_an_event_about_a_smaller_unit_is_refused(ledger_path: str) -> None:
    create(ledger_path, unit="user")
    arguments = (ledger_path, "--event", HALF, "--purpose", "counts", "--unit")
    for command in ("check", "spend"):
        with pytest.raises(ConfigError, match="does not cover unit 'user'"):
            run(command, *arguments, "user per day")
    assert "0.5 left" in run("spend", *arguments, "user")


def test_an_event_can_come_from_a_file(ledger_path: str, tmp_path: Path) -> None:
    create(ledger_path, unit="user")
    (tmp_path / "event.json").write_text(HALF, encoding="utf-8")
    run("spend", ledger_path, "--event", f"@{tmp_path / 'event.json'}", "--purpose", "counts")
    assert shown(ledger_path)[0]["spent_epsilon"] == 0.5


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("@missing.json", "@missing.json cannot be read"),
        ("{", "not JSON"),
        ('{"kind": "Gausian"}', "'Gausian' is unknown"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused(
    ledger_path: str, event: str, message: str
) -> None:
    create(ledger_path, unit="user")
    with pytest.raises((ConfigError, DataError), match=message):
        run("spend", ledger_path, "--event", event, "--purpose", "counts")
    assert on_the_books(ledger_path) == []


@pytest.mark.parametrize(
    ("times", "num_windows"),
    [
        (("--at", "2026-01-14"), 24),
        (("--at", "2026-01-14", "--until", "2026-01-15"), 48),
        (("--at", "2026-01-14T09:30"), 1),
        (("--at", "2026-01-14T09:30Z", "--until", "2026-01-14T10:00Z"), 2),
        (("--at", "2026-01-14T09:30+05:30", "--until", "2026-01-14T04:59"), 1),
    ],
)
def test_a_bare_date_is_its_whole_day(
    ledger_path: str, times: tuple[str, ...], num_windows: int
) -> None:
    create(ledger_path, unit="user per hour")
    arguments = ("--event", HALF, "--purpose", "counts", "--json", *times)
    assert len(json.loads(run("check", ledger_path, *arguments))["budgets"]) == num_windows


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (("--at", "14.1.2026"), "at='14.1.2026' must be a date or a time"),
        (("--at", "2026-01-14", "--until", "soon"), "until='soon' must be"),
        (("--at", "2026-W03"), "at='2026-W03' must be a date or a time"),
        (("--at", "20260114"), "at='20260114' must be a date or a time"),
        (("--at", "2026-01-14", "--until", "2026-W04"), "until='2026-W04' must be"),
        (("--until", "2026-01-14"), "needs at="),
        ((), "which time the data are from"),
    ],
)
def test_a_time_that_cannot_be_used_is_named(
    ledger_path: str, times: tuple[str, ...], message: str
) -> None:
    create(ledger_path)
    with pytest.raises(ConfigError, match=message):
        run("spend", ledger_path, "--event", HALF, "--purpose", "counts", *times)


def test_show_names_the_windows_that_were_charged_and_not_only_the_present_one(
    ledger_path: str,
) -> None:
    """Data are of last week, and a budget that looks unspent invites a second release."""
    create(ledger_path, unit="user per week in Europe/Berlin")
    for day in ("2026-01-14", "2026-03-02"):
        run("spend", ledger_path, "--event", HALF, "--purpose", "counts", "--at", day)
    (budget,) = shown(ledger_path)
    assert budget["spent_epsilon"] == 0
    charged = [
        (state["window_start"], state["spent_epsilon"]) for state in budget["charged_windows"]
    ]
    assert charged == [("2026-03-01T23:00:00+00:00", 0.5), ("2026-01-11T23:00:00+00:00", 0.5)]
    lines = run("show", ledger_path).splitlines()
    assert [line.partition(" of ")[0] for line in lines] == ["ads: 0", "ads: 0.5", "ads: 0.5"]
    assert "2026-03-01T23:00Z to 2026-03-08T23:00Z" in lines[1]
    # Who asks for one window gets that one.
    (line,) = run("show", ledger_path, "--at", "2026-03-08").splitlines()
    assert line == lines[1]


def test_a_spend_in_the_present_window_is_shown_once(ledger_path: str) -> None:
    create(ledger_path)
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    run("spend", ledger_path, "--event", HALF, "--purpose", "counts", "--at", today)
    assert 1 <= len(run("show", ledger_path).splitlines()) <= 2  # two if a window ends meanwhile
    assert sum(len(budget["charged_windows"]) for budget in shown(ledger_path)) <= 1


def test_nothing_is_left_of_a_budget_but_rounding(ledger_path: str) -> None:
    create(ledger_path, unit="user")
    third = '{"kind": "Laplace", "noise_multiplier": 3.0}'
    for _ in range(3):
        printed = run("spend", ledger_path, "--event", third, "--purpose", "counts")
    assert "1 of 1 spent, 0 left" in printed
    with pytest.raises(BudgetExceededError, match="has 0 of 1 left"):
        run("check", ledger_path, "--event", third, "--purpose", "counts")


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ("user per week in Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("user per week from mondy", "did you mean 'monday'"),
        ("user per 0 days", "has no length"),
        ("user per month from 2026-01-01", "leave 'from 2026-01-01' out"),
    ],
)
def test_a_calendar_that_is_none_is_refused(ledger_path: str, unit: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create(ledger_path, unit=unit)
    assert not Path(ledger_path).exists()


def test_show_of_one_budget_shows_only_that(ledger_path: str) -> None:
    create(ledger_path)
    create(ledger_path, name="more", unit="user")
    assert [budget["name"] for budget in shown(ledger_path, "--name", "more")] == ["more"]
    assert run("show", ledger_path).count("\n") == 2


def test_a_budget_that_is_overdrawn_without_limit_is_shown_as_such(ledger_path: str) -> None:
    create(ledger_path, unit="user")
    connection = sqlite3.connect(ledger_path, isolation_level=None)
    connection.execute(
        "INSERT INTO spends (event, purpose, status, recorded_at) VALUES "
        """('{"kind": "NonPrivate"}', 'counts', 'open', '2026-01-14T00:00:00+00:00')"""
    )
    connection.close()
    (state,) = shown(ledger_path)
    assert (state["spent_epsilon"], state["left_epsilon"]) == ("Infinity", 0.0)
    assert run("show", ledger_path).startswith("ads: inf of 1 spent, 0 left")


def test_show_of_a_missing_ledger_is_an_error(ledger_path: str) -> None:
    with pytest.raises(RunStateError, match="does not exist"):
        run("show", ledger_path)


@pytest.mark.parametrize("command", ["create", "show", "check", "spend"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"Example: tulle budget {command} ledger.db" in run(command, "--help")


def test_the_command_line_loads_nothing_slow() -> None:
    script = (
        "import sys, tulle.cli.budget; "
        "print([m for m in ('numpy', 'scipy', 'sqlite3', 'dp_accounting') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.stdout == "[]\n"
