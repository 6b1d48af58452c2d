import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.errors import BudgetExceededError
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.units import Adjacency, Unit
from waiting import HANG_S

NUM_PROCESSES = 8
TRIES_PER_PROCESS = 12

SPEND_OFTEN = f"""
import sys
from tulle.accounting.ledger import Ledger
from tulle.errors import BudgetExceededError
from tulle.privacy.events import event_from_json

ledger = Ledger.open(sys.argv[1], busy_timeout_s={HANG_S})
event = event_from_json(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
accepted = []
for _ in range(int(sys.argv[3])):
    try:
        with ledger.spend(event, purpose="counts") as spend:
            accepted.append(spend.id)
    except BudgetExceededError:
        pass
print(*accepted)
"""

SPEND_AFTER_FORK = f"""
import os, sys, threading
from tulle.accounting.ledger import Ledger
from tulle.privacy.events import EpsilonDelta

ledger = Ledger.open(sys.argv[1], busy_timeout_s={HANG_S})
spend = ledger.spend(EpsilonDelta(epsilon=0.01), purpose="counts")
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        for _ in range(5):
            with ledger.spend(EpsilonDelta(epsilon=0.01), purpose="counts"):
                pass
        os._exit(0)
    children.append(child)
with spend:
    pass
sys.exit(sum(os.waitpid(child, 0)[1] for child in children))
"""


def make_ledger(path: Path, *, epsilon: float, delta: float = 0.0) -> Ledger:
    ledger = Ledger.create(path, busy_timeout_s=HANG_S)
    ledger.create_budget(
        Budget(
            name="ads",
            unit=Unit.user(),
            adjacency=Adjacency.ADD_OR_REMOVE,
            epsilon=epsilon,
            delta=delta,
        )
    )
    return ledger


def spend_in_processes(path: Path, event_text: str, *, processes: int, tries: int) -> list[int]:
    """The numbers of the accepted spends of processes that all begin together."""
    command = [sys.executable, "-c", SPEND_OFTEN, str(path), event_text, str(tries)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    printed = [worker.communicate(timeout=HANG_S)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * processes
    return [int(number) for text in printed for number in text.split()]


def test_eight_processes_never_overspend_and_lose_no_spend(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=5.05)
    accepted = spend_in_processes(
        ledger.path,
        '{"kind": "EpsilonDelta", "epsilon": 0.1}',
        processes=NUM_PROCESSES,
        tries=TRIES_PER_PROCESS,
    )
    spends = ledger.spends("ads")
    assert sorted(accepted) == [spend.id for spend in spends] == list(range(1, 51))
    assert {spend.status for spend in spends} == {SpendStatus.RELEASED}
    assert ledger.state("ads").spent_epsilon == pytest.approx(5.0)


def test_processes_that_compose_noise_never_overspend(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6)
    accepted = spend_in_processes(
        ledger.path, '{"kind": "Gaussian", "noise_multiplier": 12}', processes=3, tries=4
    )
    # n Gaussians of multiplier 12 are one of 12 / sqrt(n): epsilon(1e-6) is 0.995 for eight and
    # 1.06 for nine (analytic Gaussian mechanism, Balle and Wang 2018, theorem 8).
    assert len(accepted) == len(ledger.spends("ads")) == 8
    assert ledger.state("ads").spent_epsilon <= 1.0


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=1.05)

    def try_to_spend(_: int) -> bool:
        try:
            with ledger.spend(EpsilonDelta(epsilon=0.1), purpose="counts"):
                return True
        except BudgetExceededError:
            return False

    with ThreadPoolExecutor(max_workers=6) as pool:
        accepted = sum(pool.map(try_to_spend, range(20)))
    assert accepted == ledger.state("ads").num_spends == 10


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_ledger_is_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=1.0)
    done = subprocess.run(
        [sys.executable, "-c", SPEND_AFTER_FORK, str(ledger.path)], timeout=HANG_S, check=False
    )
    assert done.returncode == 0
    spends = Ledger.open(ledger.path).spends("ads")
    assert len(spends) == 21
    assert {spend.status for spend in spends} == {SpendStatus.RELEASED}
