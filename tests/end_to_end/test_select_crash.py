"""Decisions that are killed cost nothing twice, and nothing is out that was not paid."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from unit.cli.select_files import write_settings
from unit.select.deciding.auction_tables import (
    auction_table,
    decide_seeded,
    make_ledger,
    selection,
    write_table,
)
from waiting import HANG_S

DIE_AT = """
import os, signal, sys
from tulle.cli.main import run_with
from tulle.accounting.ledger import OpenSpend
from tulle.report import card_file
from tulle.runs import hidden_files
from tulle.runs.release_files import ReleaseFiles
from tulle.select.deciding import deciding, evaluating

def die(*_, **__):
    os._exit(9)

place = sys.argv[1]
if place == "check":
    deciding._ChoiceDraw.check = die
elif place == "draw":
    deciding.draw_places = die
    evaluating.release_estimate = die
elif place == "term":
    deciding.draw_places = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
elif place == "record":
    ReleaseFiles.hide_record = die
elif place == "mark":
    OpenSpend.mark_released = die
elif place == "place":
    ReleaseFiles.put_in_place = die
elif place == "between":
    link = os.link
    def link_record(hidden, path):
        link(hidden, path)
        if str(path).endswith("release.json"):
            die()
    hidden_files.os.link = link_record
elif place == "card":
    card_file.write_card = die
sys.exit(run_with(sys.argv[2:]))
"""


def command(place: str, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", DIE_AT, place, "select", *arguments, "--ledger", "ledger.db"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


def decide(place: str, folder: Path, out: str = "choices.parquet") -> tuple[int, str]:
    options = ["--out", out, "--quiet", "--json"]
    done = command(place, folder, "decide", "selection.toml", "auctions.parquet", *options)
    return done.returncode, done.stdout + done.stderr


def make_folder(folder: Path) -> Ledger:
    """Auctions, a selection, and a ledger that pays for one release."""
    write_table(auction_table(200, seed=1), folder / "auctions.parquet")
    write_settings(folder / "selection.toml")
    return make_ledger(folder)


def statuses(ledger: Ledger) -> list[SpendStatus]:
    return [spend.status for spend in ledger.spends("all")]


@pytest.mark.parametrize(
    ("place", "expected", "is_stored"),
    [
        ("check", [], "false"),
        ("draw", [SpendStatus.OPEN], "false"),
        ("record", [SpendStatus.OPEN], "false"),
        ("mark", [SpendStatus.OPEN], "false"),
        ("place", [SpendStatus.RELEASED], "true"),
        ("between", [SpendStatus.RELEASED], "true"),
    ],
)
def test_killed_decisions_are_finished_by_the_same_command_for_one_payment(
    tmp_path: Path, place: str, expected: list[SpendStatus], is_stored: str
) -> None:
    ledger = make_folder(tmp_path)
    assert decide(place, tmp_path)[0] == 9
    assert statuses(ledger) == expected
    assert not (tmp_path / "choices.parquet").exists()

    code, shown = decide("nowhere", tmp_path)
    assert code == 0, shown
    assert f'"stored_before": {is_stored}' in shown
    assert pl.read_parquet(tmp_path / "choices.parquet").columns == ["auction_id", "ad"]
    assert statuses(ledger) == [SpendStatus.RELEASED]
    assert not list(tmp_path.glob(".*.unreleased"))


def test_a_card_that_was_not_written_comes_with_the_same_command(tmp_path: Path) -> None:
    ledger = make_folder(tmp_path)
    assert decide("card", tmp_path)[0] == 9
    content = (tmp_path / "choices.parquet").read_bytes()
    assert not (tmp_path / "choices.card.json").exists()
    code, shown = decide("nowhere", tmp_path)
    assert code == 0, shown
    assert '"stored_before": true' in shown
    assert (tmp_path / "choices.card.json").exists()
    assert (tmp_path / "choices.parquet").read_bytes() == content
    assert statuses(ledger) == [SpendStatus.RELEASED]


def test_tries_with_other_names_leave_one_draw_for_one_payment(tmp_path: Path) -> None:
    ledger = make_folder(tmp_path)
    for name in "ab":
        assert decide("mark", tmp_path, f"{name}.parquet")[0] == 9
        assert not list(tmp_path.glob("[ab].*"))
    assert decide("nowhere", tmp_path, "c.parquet")[0] == 0
    assert not list(tmp_path.glob("[ab].*"))
    assert '"stored_before": true' in decide("nowhere", tmp_path, "a.parquet")[1]
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()
    assert statuses(ledger) == [SpendStatus.RELEASED]


def test_a_stop_signal_leaves_nothing_behind(tmp_path: Path) -> None:
    ledger = make_folder(tmp_path)
    code, shown = decide("term", tmp_path)
    assert code == 130
    assert "nothing is out" in shown
    assert not list(tmp_path.glob("*choices*"))
    assert statuses(ledger) == [SpendStatus.OPEN]
    assert decide("nowhere", tmp_path)[0] == 0
    assert statuses(ledger) == [SpendStatus.RELEASED]


@pytest.mark.parametrize(
    ("place", "expected"),
    [("draw", SpendStatus.OPEN), ("mark", SpendStatus.OPEN), ("place", SpendStatus.RELEASED)],
)
def test_a_killed_evaluation_is_paid_once(
    tmp_path: Path, place: str, expected: SpendStatus
) -> None:
    ledger = make_folder(tmp_path)
    decide_seeded(selection(), tmp_path / "auctions.parquet", tmp_path / "choices.parquet")
    shown = pl.read_parquet(tmp_path / "choices.parquet")
    shown[::5].select("auction_id").write_csv(tmp_path / "clicks.csv")
    (tmp_path / "all.toml").write_text(
        '[mechanism]\nkind = "randomized-response"\nepsilon = 1.0\n'
        '[privacy]\nunit = "impression"\nconsent = "everyone"\n'
    )
    options = ["--clicks", "clicks.csv", "--target", "all.toml", "--epsilon", "1"]
    options += ["--out", "value.json", "--json"]
    evaluate = ("evaluate", "all.toml", "auctions.parquet", "choices.parquet", *options)
    assert command(place, tmp_path, *evaluate).returncode == 9
    assert statuses(ledger) == [expected]
    assert not (tmp_path / "value.json").exists()
    done = command("nowhere", tmp_path, *evaluate)
    assert done.returncode == 0, done.stderr
    assert statuses(ledger) == [SpendStatus.RELEASED]
    assert (tmp_path / "value.json").exists()
