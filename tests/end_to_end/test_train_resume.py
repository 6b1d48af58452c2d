"""A training command that is killed at any moment goes on, and pays and draws labels once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.cli.main import run_with
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.card import read_card
from tulle.runs.folder import RunFolder
from tulle.train.methods.train_plan import TrainPlan
from waiting import HANG_S

SETTINGS = """
method = "hybrid"

[data]
source = "synth:search"
rows = 4000

[model]
kind = "mlp"
embedding_dim = 16
public_hidden = [64]
common_hidden = [64]

[target]
epsilon = 2.0

[label_phase]
epochs = 8.0
batch_size = 64

[private_phase]
epochs = 30.0
batch_size = 512
"""
NUM_KILLS = 8
PLANNED = "--plan plan.json --data synth:search --rows 4000"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    assert run_with(["plan", "--config", "run.toml", "--output", "plan.json", "--quiet"]) == 0
    return tmp_path


def make_ledger() -> Ledger:
    ledger = Ledger.create("ledger.db")
    budget = Budget(
        name="all",
        unit=Unit.example(),
        adjacency=Adjacency.REPLACE,
        epsilon=2.5,
        delta=1e-6,
        purpose="training",
    )
    ledger.create_budget(budget)
    return ledger


def start(options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tulle.cli", "train", *options.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_for(text: str, process: subprocess.Popen[str]) -> None:
    if process.stderr is None:
        raise ValueError("stderr must be a pipe")
    for line in process.stderr:
        if line.startswith(text):
            return


def charged_steps(folder: Path) -> list[int]:
    """Every step that a block was begun for, but those that its end gave back."""
    steps: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for record in RunFolder.open(folder).records.read():
            if record.get("kind") == "block begun":
                steps += range(int(str(record["start"])), int(str(record["end"])))
            elif record.get("kind") == "block ended":
                steps = [step for step in steps if step < int(str(record["end"]))]
    return steps


def labels_in(folder: Path) -> bytes | None:
    path = folder / "randomized_labels.safetensors"
    return path.read_bytes() if path.exists() else None


def finish(options: str) -> dict[str, Any]:
    process = start(f"{options} --json")
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    facts: dict[str, Any] = json.loads(out)
    return facts


@pytest.mark.long("kills at random moments; every cut of the protocol is in tests/contract")
def test_a_run_that_is_killed_again_and_again_ends_as_planned(folder: Path) -> None:
    ledger = make_ledger()
    options = f"{PLANNED} --output runs/a --ledger ledger.db --checkpoint-every 20"
    run, moments, kept = folder / "runs" / "a", random.Random(3), None  # noqa: S311
    for kill in range(NUM_KILLS):
        is_begun = (run / "run.json").exists()
        process = start(f"{options}{' --resume' if is_begun else ''}")
        # While the folder is made, labels are drawn or trained on, and in private steps.
        wait_for("plan:" if kill < NUM_KILLS // 2 else "private:", process)
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        process.communicate()
        found = labels_in(run)
        assert kept is None or found == kept
        kept = found
        assert len(ledger.spends("all")) <= 1
        steps = charged_steps(run) if (run / "run.json").exists() else []
        assert len(steps) == len(set(steps))
    assert charged_steps(run)
    facts = finish(f"{options} --resume")
    planned = TrainPlan.from_json((folder / "plan.json").read_text())
    assert facts["epsilon"] == planned.epsilon == 2.0
    assert facts["steps"] == planned.num_private_steps
    assert charged_steps(run) == list(range(facts["steps"]))
    assert kept is not None
    assert labels_in(run) == kept
    assert len(ledger.spends("all")) == 1
    assert facts["verdict"].startswith("Private release: epsilon=2, delta=1e-07")
    assert read_card(run / "card.json").verdict == facts["verdict"]


def test_a_run_that_is_asked_to_stop_goes_on_later(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = f"{PLANNED} --checkpoint-every 50"
    run = folder / "runs" / "hybrid-search"
    planned = TrainPlan.from_json((folder / "plan.json").read_text())
    stopped, kept = 0, None
    for number in (signal.SIGTERM, signal.SIGINT):
        process = start(options)
        wait_for("private: step ", process)
        process.send_signal(number)
        _, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 130, (number, err)
        assert "error: stopped at step" in err
        assert "--resume" in err
        assert stopped < len(charged_steps(run)) < planned.num_private_steps, number
        assert kept in (None, labels_in(run))
        stopped, kept = len(charged_steps(run)), labels_in(run)
        options = f"{PLANNED} --resume --checkpoint-every 50"
    # What nobody stops needs no process of its own.
    capsys.readouterr()
    assert run_with(["train", *options.split(), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["run"] == "runs/hybrid-search"
    assert charged_steps(run) == list(range(facts["steps"]))
    assert labels_in(run) == kept
