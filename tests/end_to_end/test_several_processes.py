"""Training commands of several processes, of which one is lost or asked to stop."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tulle.cli.main import run_with
from tulle.runs.card import read_card
from waiting import HANG_S, wait_until

SETTINGS = """
method = "dp-sgd"

[data]
source = "synth:search"
rows = 3000

[model]
kind = "logistic regression"

[target]
epsilon = 2.0

[private_phase]
epochs = 16.0
batch_size = 256

[private_phase.optimizer]
kind = "sgd"
learning_rate = 0.1
"""
TRAIN = "train --plan plan.json --data synth:search --rows 3000 --output runs/run --quiet"
TULLE = (sys.executable, "-m", "tulle.cli")
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
    *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "tulle.cli"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    assert run_with(["plan", "--config", "run.toml", "--output", "plan.json", "--quiet"]) == 0
    return tmp_path


@contextlib.contextmanager
def started(command: tuple[str, ...], options: str = "") -> Iterator[subprocess.Popen[str]]:
    """A command of which nothing is left at the end."""
    mark = f"TULLE_TEST_MARK={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [*command, *TRAIN.split(), *options.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", name: value},
    )
    try:
        yield process
        # What the command itself started may end a moment after it.
        process.communicate(timeout=HANG_S)
        wait_until(lambda: marked_processes(mark) == [], "the end of processes left behind")
    finally:
        for pid in marked_processes(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=HANG_S)


def marked_processes(mark: str) -> list[int]:
    """Processes that have a variable in their environment, and are no zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if mark.encode() + b"\0" in (entry / "environ").read_bytes() + b"\0":
                    found.append(int(entry.name))
    return found


def wait_for_steps(folder: Path, process: subprocess.Popen[str], num_steps: int = 8) -> None:
    records = folder / "runs" / "run" / "records.jsonl"

    def are_taken() -> bool:
        assert process.poll() is None, process.communicate()
        return records.exists() and max(steps_in(records), default=0) >= num_steps

    wait_until(are_taken, f"{num_steps} steps")


def steps_in(records: Path) -> list[int]:
    found = [json.loads(line) for line in records.read_text().splitlines(keepends=True)[:-1]]
    return [record["step"] for record in found if record.get("kind") == "step"]


def followers_of(process: subprocess.Popen[str]) -> list[int]:
    """Those who wait for a leader: torchrun gave them rank 1, or a leader started them."""
    environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    (mark,) = [entry.decode() for entry in environment if entry.startswith(b"TULLE_TEST_MARK=")]
    found = []
    for pid in marked_processes(mark):
        has_rank = b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if has_rank or b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(pid)
    return found


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=HANG_S)
    return process.returncode, errors


def assert_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    card = read_card(folder / "runs" / "run" / "card.json")
    assert card.verdict.startswith("Private release")


@pytest.mark.long(
    "starts three runs of two processes; the loss of a process is in make test without them"
)
def test_a_run_that_lost_a_process_goes_on_with_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(TORCHRUN, "--checkpoint-every 5") as process:
        wait_for_steps(folder, process)
        (follower,) = followers_of(process)
        os.kill(follower, signal.SIGKILL)
        code, errors = finish(process)
    assert code != 0
    assert "connection to another process was lost" in errors
    assert "--resume" in errors
    assert run_with([*TRAIN.split(), "--resume", "--checkpoint-every", "5"]) == 0
    assert_whole(folder, capsys)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(TULLE, id="own"),
        pytest.param(
            TORCHRUN,
            id="torchrun",
            marks=pytest.mark.long("the same with torchrun, which make test starts elsewhere"),
        ),
    ],
)
def test_a_run_that_is_asked_to_stop_goes_on_with_several(
    command: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(command, "--processes 2") as process:
        wait_for_steps(folder, process)
        # As a scheduler does: torchrun passes it on, and so does the group of the session.
        os.killpg(process.pid, signal.SIGTERM)
        code, errors = finish(process)
    assert code != 0
    assert "stopped at step" in errors
    with started(TORCHRUN, "--resume --json") as process:
        output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors
    # Followers print nothing, so this is one object.
    assert json.loads(output)["steps_lost"] == 0
    assert_whole(folder, capsys)
