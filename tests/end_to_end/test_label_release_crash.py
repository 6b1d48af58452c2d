"""A release that is killed costs nothing twice and leaves nothing that looks whole."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.privacy.units import Adjacency, Unit
from waiting import HANG_S

DIE_AT = """
import os, sys
from tulle.cli.main import run_with
from tulle.runs import release_files
from tulle.labels.release.drawing import Drawing
from tulle.runs.release_files import ReleaseFiles
from tulle.accounting.ledger import OpenSpend

def die(*_, **__):
    os._exit(9)

place = sys.argv[1]
if place == "term":
    import signal
    Drawing.check_unchanged = lambda _self: os.kill(os.getpid(), signal.SIGTERM)
elif place == "draw":
    Drawing.check_unchanged = die
elif place == "record":
    ReleaseFiles.hide_record = die
elif place == "mark":
    OpenSpend.mark_released = die
elif place == "place":
    ReleaseFiles.put_in_place = die
elif place == "between":
    release_files.sync_folder = lambda _folder: None
    link = os.link
    def link_record(hidden, path):
        link(hidden, path)
        if str(path).endswith(".json"):
            die()
    release_files.os.link = link_record
sys.exit(run_with(sys.argv[2:]))
"""


def command(
    place: str, folder: Path, out: str = "noisy.parquet"
) -> "subprocess.CompletedProcess[str]":
    arguments = ["labels", "release", str(folder / "clicks.parquet")]
    arguments += ["--schema", str(folder / "schema.toml"), "--mechanism", "rr", "--epsilon", "1"]
    arguments += ["--out", str(folder / out), "--ledger", str(folder / "ledger.db")]
    return subprocess.run(
        [sys.executable, "-c", DIE_AT, place, *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


def make_folder(folder: Path) -> Ledger:
    """A table, its schema, and a ledger that pays for one release."""
    labels = np.random.default_rng(1).integers(0, 2, 500)
    table = pl.DataFrame({"ad": np.arange(500) % 7, "sale": labels})
    table.write_parquet(folder / "clicks.parquet")
    (folder / "schema.toml").write_text('label = "sale"\npublic = ["ad"]\n')
    ledger = Ledger.create(folder / "ledger.db")
    budget = Budget(
        name="all", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=1.0, delta=0.0
    )
    ledger.create_budget(budget)
    return ledger


@pytest.mark.parametrize(
    ("place", "status", "is_stored"),
    [
        ("draw", SpendStatus.OPEN, "false"),
        ("record", SpendStatus.OPEN, "false"),
        ("mark", SpendStatus.OPEN, "false"),
        ("place", SpendStatus.RELEASED, "true"),
        ("between", SpendStatus.RELEASED, "true"),
    ],
)
def test_a_killed_release_is_finished_by_the_same_command_for_one_payment(
    tmp_path: Path, place: str, status: SpendStatus, is_stored: str
) -> None:
    ledger = make_folder(tmp_path)
    assert command(place, tmp_path).returncode == 9
    assert [spend.status for spend in ledger.spends("all")] == [status]
    assert not (tmp_path / "noisy.parquet").exists()

    done = command("nowhere", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f'"stored_before": {is_stored}' in done.stdout
    assert pl.read_parquet(tmp_path / "noisy.parquet").height == 500
    assert [spend.status for spend in ledger.spends("all")] == [SpendStatus.RELEASED]
    assert not list(tmp_path.glob(".*.unreleased"))


@pytest.mark.parametrize("place", ["record", "mark"])
def test_tries_with_other_names_leave_one_table_for_one_payment(tmp_path: Path, place: str) -> None:
    ledger = make_folder(tmp_path)
    for out in ("a.parquet", "b.parquet"):
        assert command(place, tmp_path, out).returncode == 9
        assert not list(tmp_path.glob("[a-b].release.json"))
    assert command("nowhere", tmp_path, "c.parquet").returncode == 0
    for out in ("a.parquet", "b.parquet"):
        assert '"stored_before": true' in command("nowhere", tmp_path, out).stdout
    contents = {(tmp_path / f"{name}.parquet").read_bytes() for name in "abc"}
    assert len(contents) == 1
    assert [spend.status for spend in ledger.spends("all")] == [SpendStatus.RELEASED]


def test_a_stop_signal_leaves_nothing_behind(tmp_path: Path) -> None:
    ledger = make_folder(tmp_path)
    stopped = command("term", tmp_path)
    assert stopped.returncode == 130
    assert "nothing is out" in stopped.stderr
    assert not list(tmp_path.glob("*noisy*"))
    assert [spend.status for spend in ledger.spends("all")] == [SpendStatus.OPEN]
    assert command("nowhere", tmp_path).returncode == 0
    assert [spend.status for spend in ledger.spends("all")] == [SpendStatus.RELEASED]
