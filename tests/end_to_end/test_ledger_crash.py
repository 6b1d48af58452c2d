import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.errors import BudgetExceededError, RunStateError
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.units import Adjacency, Unit
from waiting import HANG_S

RELEASE_FOREVER = """
import signal, sys
from tulle.accounting.ledger import Ledger
from tulle.privacy.events import EpsilonDelta

with Ledger.open(sys.argv[1]).spend(EpsilonDelta(epsilon=0.75), purpose="counts"):
    print("spent", flush=True)
    signal.pause()
"""

SPEND_FOREVER = """
import sys
from tulle.accounting.ledger import Ledger
from tulle.privacy.events import EpsilonDelta

ledger = Ledger.open(sys.argv[1])
while True:
    with ledger.spend(EpsilonDelta(epsilon=1e-6), purpose="counts") as spend:
        print(spend.id, flush=True)
"""

DIE_AT = """
import os, sys
from tulle.accounting import ledger_file, ledger_rows
from tulle.accounting.ledger import Ledger
from tulle.privacy.events import EpsilonDelta

def die_after(function):
    def dying(*arguments):
        function(*arguments)
        os._exit(9)
    return dying

if sys.argv[2] == "create":
    ledger_file.lay_out = die_after(ledger_file.lay_out)
    Ledger.create(sys.argv[1])
ledger_rows.insert_spend = die_after(ledger_rows.insert_spend)
Ledger.open(sys.argv[1]).spend(EpsilonDelta(epsilon=0.75), purpose="counts")
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    made.create_budget(
        Budget(name="ads", unit=Unit.user(), adjacency=Adjacency.REPLACE, epsilon=1.0, delta=0.0)
    )
    return made


def run_until_printed(script: str, path: Path, *, lines: int) -> list[str]:
    """Runs a script, kills it outright after some lines, and returns all it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGKILL
    return [line.strip() for line in printed + rest.splitlines() if line.strip()]


def test_a_process_killed_before_its_release_leaves_the_spend_on_the_books(
    ledger: Ledger,
) -> None:
    assert run_until_printed(RELEASE_FOREVER, ledger.path, lines=1) == ["spent"]
    (spend,) = Ledger.open(ledger.path).spends("ads")
    assert spend.status is SpendStatus.OPEN
    assert ledger.state("ads").num_open == 1
    with pytest.raises(BudgetExceededError):
        ledger.spend(EpsilonDelta(epsilon=0.5), purpose="counts")


def test_a_process_killed_at_any_moment_loses_no_spend_that_it_announced(ledger: Ledger) -> None:
    announced = [
        int(line)
        for lines in (1, 4, 9)
        for line in run_until_printed(SPEND_FOREVER, ledger.path, lines=lines)
    ]
    kept = [spend.id for spend in Ledger.open(ledger.path).spends("ads")]
    assert set(announced) <= set(kept)
    # At most the one under way at each kill is on the books without being announced.
    assert len(kept) <= len(announced) + 3
    assert len(kept) == len(set(kept))


def test_a_lost_log_after_a_crash_loses_no_spend(ledger: Ledger) -> None:
    # Another connection stays open, so the log is not folded away when spends end.
    holder = sqlite3.connect(ledger.path)
    holder.execute("SELECT count(*) FROM spends").fetchone()
    announced = run_until_printed(SPEND_FOREVER, ledger.path, lines=5)
    # As the disk stands at this moment: without its log, which is there.
    copy = ledger.path.with_name("copy.db")
    assert ledger.path.with_name("ledger.db-wal").exists()
    subprocess.run(["cp", ledger.path, copy], check=True)
    holder.close()
    kept = {spend.id for spend in Ledger.open(copy).spends("ads")}
    assert {int(line) for line in announced} <= kept


def test_a_process_that_dies_in_a_transaction_leaves_no_half_of_it(ledger: Ledger) -> None:
    command = [sys.executable, "-c", DIE_AT, str(ledger.path), "spend"]
    assert subprocess.run(command, check=False, timeout=HANG_S).returncode == 9
    assert Ledger.open(ledger.path).spends("ads") == ()
    ledger.spend(EpsilonDelta(epsilon=1.0), purpose="counts")


def test_a_process_that_dies_while_creating_leaves_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    command = [sys.executable, "-c", DIE_AT, str(path), "create"]
    assert subprocess.run(command, check=False, timeout=HANG_S).returncode == 9
    with pytest.raises(RunStateError, match="does not exist"):
        Ledger.open(path)
    Ledger.create(path)
    assert Ledger.open(path).budgets() == ()


def test_only_one_of_two_creators_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    link = os.link

    def link_too_late(source: Path, target: Path) -> None:
        monkeypatch.undo()
        Ledger.create(path)
        link(source, target)

    monkeypatch.setattr(os, "link", link_too_late)
    with pytest.raises(RunStateError, match=r"ledger\.db cannot be created: File exists"):
        Ledger.create(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.db"]
    assert Ledger.open(path).budgets() == ()
