"""A measurement that is killed costs nothing twice and leaves nothing that looks whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from unit.measure.queries.small_measurements import (
    new_ledger,
    settings,
    write_log,
    write_settings,
)
from waiting import HANG_S

DIE_AT = """
import os, signal, sys
from tulle.cli.main import run_with
from tulle.accounting.ledger import OpenSpend
from tulle.measure.queries import raw_totals
from tulle.measure.queries.released_file import ReleasedFile
from tulle.report import card_file

def die(*_, **__):
    os._exit(9)

place = sys.argv[1]
if place == "totals":
    raw_totals.slice_totals = die
elif place == "term":
    raw_totals.slice_totals = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
elif place == "draw":
    raw_totals.RawTotals.released = die
elif place == "hide":
    ReleasedFile.hide = die
elif place == "mark":
    OpenSpend.mark_released = die
elif place == "place":
    ReleasedFile.put_in_place = die
elif place == "card":
    card_file.write_card = die
sys.exit(run_with(sys.argv[2:]))
"""


def command(place: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    arguments = ["measure", "run", str(folder / "campaigns.toml"), "--out", str(folder / "out")]
    arguments += ["--ledger", str(folder / "ledger.db"), "--quiet", "--json"]
    return subprocess.run(
        [sys.executable, "-c", DIE_AT, place, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A log, its settings, and a ledger that pays for one measurement."""
    write_log(tmp_path)
    write_settings(tmp_path, settings("conversions", "reach"))
    return new_ledger(tmp_path / "ledger.db", epsilon=1.0)


@pytest.mark.parametrize(
    ("place", "statuses", "is_stored"),
    [
        ("totals", [], "false"),
        ("draw", [SpendStatus.OPEN], "false"),
        ("hide", [SpendStatus.OPEN], "false"),
        ("mark", [SpendStatus.OPEN], "false"),
        ("place", [SpendStatus.RELEASED], "true"),
        ("card", [SpendStatus.RELEASED], "true"),
    ],
)
def test_the_same_command_finishes_it_for_one_payment(
    tmp_path: Path, ledger: Ledger, place: str, statuses: list[SpendStatus], is_stored: str
) -> None:
    assert command(place, tmp_path).returncode == 9
    assert [spend.status for spend in ledger.spends("all")] == statuses
    assert (tmp_path / "out" / "measurement.json").exists() == (place == "card")
    again = command("nowhere", tmp_path)
    assert again.returncode == 0, again.stderr
    assert f'"stored_before": {is_stored}' in again.stdout
    assert [spend.status for spend in ledger.spends("all")] == [SpendStatus.RELEASED]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "card.json",
        "card.md",
        "conversions.parquet",
        "measurement.json",
        "reach.parquet",
    ]
    third = command("nowhere", tmp_path)
    assert third.stdout.replace("true", "false") == again.stdout.replace("true", "false")


def test_it_stops_when_it_is_asked_to(tmp_path: Path, ledger: Ledger) -> None:
    stopped = command("term", tmp_path)
    assert stopped.returncode == 130
    assert "nothing is out" in stopped.stderr
    assert ledger.spends("all") == ()
