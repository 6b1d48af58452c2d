"""A training run that is killed outright again and again ends as planned, and costs no more."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.folder import RunFolder
from tulle.train.export import load_model
from tulle.train.plan_data import train_plan_to_json
from unit.train.small_data import (
    label_phase,
    make_examples,
    planned,
    private_phase,
    two_phase,
    write_dataset,
)
from waiting import wait_until

pytestmark = pytest.mark.slow

NUM_KILLS = 8

TRAIN = """
import os, sys
from pathlib import Path
from tulle.accounting.ledger import Ledger
from tulle.data.prepared.dataset import PreparedDataset
from tulle.train.fitting import fit
from tulle.train.plan_data import train_plan_from_json
from tulle.train.run_options import LedgerCharge, RunOptions
from tulle.train.schedules import CosineDecay

home = Path(sys.argv[1])
plan = train_plan_from_json((home / "plan.json").read_text())
taken = os.open(home / "steps.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
whole = CosineDecay.rate_factor

def noting(self, step, num_steps):
    if num_steps == plan.num_private_steps:
        os.write(taken, f"{step}\\n".encode())
    return whole(self, step, num_steps)

CosineDecay.rate_factor = noting
options = RunOptions(
    folder=home / "run",
    resume=(home / "run" / "run.json").exists(),
    charge=LedgerCharge(ledger=Ledger.open(home / "ledger.db")),
    checkpoint_every=25,
)
print("begun", flush=True)
dataset = PreparedDataset.open(home / "data")
fit(dataset, plan, test=PreparedDataset.open(home / "test"), options=options)
print("finished", flush=True)
"""


def start(home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAIN, str(home)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line == "begun\n", child.communicate()[1]
    return child


def wait_for_steps(taken: Path, num_steps: int, child: subprocess.Popen[str]) -> None:
    """Returns when this process has taken some steps, or has ended."""
    before = num_lines(taken)
    wait_until(lambda: child.poll() is not None or num_lines(taken) >= before + num_steps)


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_run_that_is_killed_at_random_moments_ends_as_planned(tmp_path: Path) -> None:
    examples = make_examples(400)
    write_dataset(tmp_path / "data", examples)
    write_dataset(tmp_path / "test", make_examples(400, seed=1))
    config = two_phase(
        label_phase=label_phase(epochs=10.0),
        private_phase=private_phase(noise_multiplier=8.0, epochs=600.0),
    )
    plan = planned(config)
    (tmp_path / "plan.json").write_text(train_plan_to_json(plan))
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.create_budget(
        Budget(
            name="training",
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=plan.plan.guarantee.epsilon * 1.5,
            delta=1e-4,
        )
    )
    chance = random.Random(4)  # noqa: S311
    num_killed, labels = 0, set()
    for number in range(NUM_KILLS):
        child = start(tmp_path)
        if number < 2:  # These may die before the run is paid for.
            time.sleep(chance.uniform(0.0, 0.5))
        else:
            num_steps = chance.randint(1, plan.num_private_steps // 20)
            wait_for_steps(tmp_path / "steps.txt", num_steps, child)
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert child.returncode in (-signal.SIGKILL, 0), errors
        num_killed += child.returncode == -signal.SIGKILL
        if (tmp_path / "run" / "run.json").exists():
            folder = RunFolder.open(tmp_path / "run")
            if folder.has_array("randomized_labels"):
                labels.add(folder.read_array("randomized_labels").tobytes())
    child = start(tmp_path)
    output, errors = child.communicate()
    assert (child.returncode, output) == (0, "finished\n"), errors

    assert num_killed >= 3
    folder = RunFolder.open(tmp_path / "run")
    labels.add(folder.read_array("randomized_labels").tobytes())
    assert len(labels) == 1
    assert len(ledger.spends("training")) == 1
    begun = [record for record in folder.records.read() if record["kind"] == "block begun"]
    charged = [step for record in begun for step in range(record["start"], record["end"])]  # type: ignore[arg-type]
    assert charged == list(range(plan.num_private_steps))
    taken = Counter(map(int, (tmp_path / "steps.txt").read_text().split()))
    assert set(taken.values()) == {1}
    assert set(taken) <= set(charged)
    assert len(taken) >= plan.num_private_steps - 25 * num_killed
    assert folder.path_of("result.json").exists()
    weights = load_model(folder.path_of("model")).model.parameters
    assert all(np.isfinite(values.numpy()).all() for values in weights.values())
