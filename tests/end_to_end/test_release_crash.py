"""Commands that are killed cost nothing twice, and nothing is out that was not paid.

The contract of the protocol (tests/contract) cuts every job at every operation inside one process.
Here whole commands die for real, and the same command is given again. What is not to die runs in
this process. Training has tests of its own for that: a run goes on, and is killed many times.
"""

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.cli.main import run_with
from tulle.privacy.units import Adjacency, Unit
from unit.cli.select_files import write_settings as write_selection
from unit.measure.queries import small_measurements
from unit.select.decisions.auction_tables import (
    auction_table,
    decide_seeded,
    make_ledger,
    selection,
    write_table,
)
from waiting import HANG_S

DIE_AT = """
import os, signal, sys
from tulle.accounting.ledger import Ledger
from tulle.cli.main import run_with
from tulle.runs import charging, record, release_files, release_once

def die(*_, **__):
    os._exit(9)

place = sys.argv[1]
if place == "pay":
    charging.ReleasePayments.pay = die
elif place == "draw":
    release_once._write = die
elif place == "term":
    release_files.ReleaseFiles.hide_record = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
elif place == "record":
    release_files.ReleaseFiles.hide_record = die
elif place == "mark":
    Ledger._finish = die
elif place == "place":
    release_files.ReleaseFiles.put_in_place = die
elif place == "between":
    link = os.link
    def link_first(hidden, path):
        link(hidden, path)
        if str(hidden).endswith(".unreleased"):
            die()
    release_files.os.link = link_first
elif place == "card":
    record.card_of = die
sys.exit(run_with(sys.argv[2:]))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command that releases, with a ledger that pays for one release."""

    name: str
    prepare: Callable[[Path], Ledger]
    arguments: str
    """All but where the output goes."""
    ending: str
    """What is released, below or behind the name of the output."""
    has_record: bool = True
    """Whether the record lies in a file of its own."""

    def run(self, place: str, folder: Path, out: str = "first") -> tuple[int, str]:
        output = out if self.ending.startswith("/") else f"{out}{self.ending}"
        arguments = [*self.arguments.split(), "--out", output, "--ledger", "ledger.db", "--json"]
        if place == "nowhere":
            return run_here(arguments, folder)
        done = subprocess.run(
            [sys.executable, "-c", DIE_AT, place, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr

    def released(self, folder: Path, out: str = "first") -> Path:
        return folder / f"{out}{self.ending}"


def run_here(arguments: list[str], folder: Path) -> tuple[int, str]:
    shown, said = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(said),
    ):
        code = run_with(arguments)
    return code, shown.getvalue() if code == 0 else said.getvalue()


def make_labels(folder: Path) -> Ledger:
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


def make_auctions(folder: Path) -> Ledger:
    write_table(auction_table(200, seed=1), folder / "auctions.parquet")
    write_selection(folder / "selection.toml")
    return make_ledger(folder)


def make_evaluation(folder: Path) -> Ledger:
    ledger = make_auctions(folder)
    decide_seeded(selection(), folder / "auctions.parquet", folder / "choices.parquet")
    shown = pl.read_parquet(folder / "choices.parquet")
    shown[::5].select("auction_id").write_csv(folder / "clicks.csv")
    (folder / "all.toml").write_text(
        '[mechanism]\nkind = "randomized-response"\nepsilon = 1.0\n'
        '[privacy]\nunit = "impression"\nconsent = "everyone"\n'
    )
    return ledger


def make_measurement(folder: Path) -> Ledger:
    small_measurements.write_log(folder)
    settings = small_measurements.settings("conversions", "reach")
    small_measurements.write_settings(folder, settings)
    return small_measurements.new_ledger(folder / "ledger.db", epsilon=1.0)


LABELS = Command(
    name="labels",
    prepare=make_labels,
    arguments="labels release clicks.parquet --schema schema.toml --mechanism rr --epsilon 1",
    ending=".parquet",
)
SELECT = Command(
    name="select",
    prepare=make_auctions,
    arguments="select decide selection.toml auctions.parquet --quiet",
    ending=".parquet",
)
EVALUATE = Command(
    name="evaluate",
    prepare=make_evaluation,
    arguments="select evaluate all.toml auctions.parquet choices.parquet --clicks clicks.csv "
    "--target all.toml --epsilon 1",
    ending=".json",
)
MEASURE = Command(
    name="measure",
    prepare=make_measurement,
    arguments="measure run campaigns.toml --quiet",
    ending="/measurement.json",
    has_record=False,
)
COMMANDS = (LABELS, SELECT, EVALUATE, MEASURE)
PLACES = {
    "pay": [],
    "draw": [SpendStatus.OPEN],
    "record": [SpendStatus.OPEN],
    "mark": [SpendStatus.OPEN],
    "place": [SpendStatus.RELEASED],
    "between": [SpendStatus.RELEASED],
    "card": [SpendStatus.RELEASED],
}
"""Where a command dies, and what its payment is then."""
each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)


def statuses(ledger: Ledger) -> list[SpendStatus]:
    return [spend.status for spend in ledger.spends("all")]


@pytest.mark.parametrize(
    "place",
    [
        place
        if place in ("draw", "place")  # before and after the ledger marks the spend
        else pytest.param(
            place, marks=pytest.mark.long("kills real processes; the contract has the same cuts")
        )
        for place in PLACES
    ],
)
@each_command
def test_the_same_command_finishes_what_was_killed_for_one_payment(
    tmp_path: Path, command: Command, place: str
) -> None:
    ledger = command.prepare(tmp_path)
    assert command.run(place, tmp_path)[0] == 9
    assert statuses(ledger) == PLACES[place]
    released = command.released(tmp_path)
    is_out = place == "card" or (place == "between" and not command.has_record)
    content = released.read_bytes() if is_out else None
    assert released.exists() == is_out

    code, shown = command.run("nowhere", tmp_path)
    assert code == 0, shown
    assert json.loads(shown).get("stored_before", True) == (SpendStatus.RELEASED in PLACES[place])
    assert content in (None, released.read_bytes())
    assert statuses(ledger) == [SpendStatus.RELEASED]
    assert not list(tmp_path.rglob(".*.unreleased"))
    assert [path.name for path in tmp_path.rglob("*card.json")]
    content = released.read_bytes()
    assert command.run("nowhere", tmp_path)[0] == 0
    assert released.read_bytes() == content


@pytest.mark.long("starts five processes a case; the contract of releases has the same cuts")
@pytest.mark.parametrize("place", ["record", "mark"])
@each_command
def test_tries_with_other_names_leave_one_draw_for_one_payment(
    tmp_path: Path, command: Command, place: str
) -> None:
    ledger = command.prepare(tmp_path)
    for out in ("a", "b"):
        assert command.run(place, tmp_path, out)[0] == 9
        assert not command.released(tmp_path, out).exists()
    for out in ("c", "a", "b"):
        code, shown = command.run("nowhere", tmp_path, out)
        assert code == 0, shown
    assert len({command.released(tmp_path, out).read_bytes() for out in "abc"}) == 1
    assert statuses(ledger) == [SpendStatus.RELEASED]


@each_command
def test_a_stop_signal_leaves_nothing_behind(tmp_path: Path, command: Command) -> None:
    ledger = command.prepare(tmp_path)
    code, said = command.run("term", tmp_path)
    assert code == 130
    assert "nothing is out" in said
    assert not list(tmp_path.rglob("*first*"))
    assert statuses(ledger) == [SpendStatus.OPEN]
    assert command.run("nowhere", tmp_path)[0] == 0
    assert statuses(ledger) == [SpendStatus.RELEASED]
