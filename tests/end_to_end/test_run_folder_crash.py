"""A run that is killed outright, at any moment, leaves a folder that opens, with no half data."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tulle.errors import RunStateError
from tulle.runs.folder import RunFolder
from tulle.runs.records import StepBlocks
from waiting import HANG_S

NUM_STEPS, BLOCK_SIZE, NUM_WEIGHTS = 100_000, 2, 5_000

RUN = f"""
import os, sys
import numpy as np
from golden.card.fixed_card import make_plan
from tulle.errors import RunStateError
from tulle.runs.records import StepBlocks
from tulle.runs.folder import RunFolder

def open_or_create(path):
    try:
        return RunFolder.open(path)
    except RunStateError:
        return RunFolder.create(path, settings={{"a": 1}}, plan=make_plan(), facts={{"rows": 9}})

def work(run, num_blocks):
    if not run.has_array("labels"):
        run.write_array("labels", np.repeat(np.random.default_rng().integers(1 << 60), 1000))
    blocks = StepBlocks(num_steps={NUM_STEPS}, block_size={BLOCK_SIZE})
    checkpoints, records = run.checkpoints(), run.records
    latest = checkpoints.latest()
    point = blocks.resume_point(
        records.read(), checkpoint_step=0 if latest is None else latest.step
    )
    if point.missing_end is not None:
        records.append(point.missing_end, durable=True)
    for block, _ in zip(blocks.starting_at(point.next_step), range(num_blocks)):
        records.append(block.begun_record(), durable=True)
        for step in range(block.start, block.end):
            print("step", step, flush=True)
            records.append({{"kind": "step", "step": step, "text": "x" * 200}})
        weights = np.full({NUM_WEIGHTS}, float(block.end))
        checkpoints.save(block.end, "private", {{"weights": weights}}, {{"twice": 2 * block.end}})
        run.write_json("result.json", {{"step": block.end, "filling": ["y"] * 200}})
        records.append(block.ended_record(block.end), durable=True)
        print("ended", block.end, flush=True)

def run(path, num_blocks):
    print("begun", flush=True)
    folder = open_or_create(path)
    with folder.hold():
        work(folder, num_blocks)
"""

RUN_FOREVER = RUN + "run(sys.argv[1], 10**9)"

DIE_AT_EACH_CALL = (
    RUN
    + """
def die_at(number):
    calls = iter(range(1, 10**9))
    def dying(function):
        def call(*arguments, **options):
            if next(calls) == number:
                os._exit(9)
            return function(*arguments, **options)
        return call
    for name in ("open", "write", "fsync", "replace", "unlink", "ftruncate"):
        setattr(os, name, dying(getattr(os, name)))

for number in range(1, int(sys.argv[2])):
    for deadly in (True, False):
        print("process", number, deadly, flush=True)
        if os.fork() == 0:
            if deadly:
                die_at(number)
            run(os.path.join(sys.argv[1], str(number)), 4 if deadly else 2)
            os._exit(0)
        print("status", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
)


def run_and_kill(path: Path, *, num_lines: int, delay_s: float) -> list[str]:
    """Kills the run a while after it printed some lines; returns all that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_FOREVER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(num_lines)]
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGKILL
    # The pipe may hold the beginning of a line at the end.
    return [line.strip() for line in (*printed, *rest.splitlines(keepends=True)) if "\n" in line]


def check_folder(path: Path, printed: list[str]) -> RunFolder:
    """Opens and reads everything there is."""
    run = RunFolder.open(path)
    latest = run.checkpoints().latest()
    checkpoint_step = 0 if latest is None else latest.step
    if latest is not None:
        np.testing.assert_array_equal(
            latest.tensors["weights"], np.full(NUM_WEIGHTS, float(latest.step))
        )
        assert latest.facts["twice"] == 2 * latest.step
    point = StepBlocks(num_steps=NUM_STEPS, block_size=BLOCK_SIZE).resume_point(
        run.records.read(), checkpoint_step=checkpoint_step
    )
    steps = [int(line.split()[1]) for line in printed if line.startswith("step")]
    ends = [int(line.split()[1]) for line in printed if line.startswith("ended")]
    assert len(steps) == len(set(steps)), "a step was done twice"
    assert all(step < point.next_step for step in steps), "a step was done and not charged"
    assert max(ends, default=0) <= checkpoint_step, "a checkpoint that was announced is lost"
    if run.path_of("result.json").exists():
        result = run.read_json("result.json")
        assert len(result["filling"]) == 200
        # The checkpoint is written first, the result second.
        assert max(ends, default=0) <= result["step"] <= checkpoint_step
    return run


def test_dying_before_each_call_to_the_disk_a_run_goes_on_with_whole_data(tmp_path: Path) -> None:
    num_deaths = 84
    told = subprocess.run(
        [sys.executable, "-c", DIE_AT_EACH_CALL, str(tmp_path), str(num_deaths + 1)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=HANG_S,
    ).stdout
    histories = told.split("process ")[1:]
    for number in range(1, num_deaths + 1):
        first, second = histories[2 * number - 2 : 2 * number]
        assert first.endswith("status 9\n"), first
        assert second.endswith("status 0\n"), second
        assert second.count("ended") == 2
        run = check_folder(tmp_path / str(number), (first + second).splitlines())
        assert len(set(run.read_array("labels").tolist())) == 1


def test_killed_at_random_moments_a_run_always_opens_with_whole_data(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311
    path, printed, labels = tmp_path / "run", list[str](), set[int]()
    for number in range(15):
        # The first kills hit the making of the folder, later ones any moment of the work.
        num_lines = 1 if number < 3 else chance.randint(2, 9)
        printed += run_and_kill(path, num_lines=num_lines, delay_s=chance.uniform(0, 0.01))
        if not (path / "run.json").exists():
            with pytest.raises(RunStateError, match="is no run"):
                RunFolder.open(path)
            continue
        run = check_folder(path, printed)
        if run.has_array("labels"):
            labels.update(run.read_array("labels").tolist())
    assert len(labels) == 1, "labels were drawn again"
    run = RunFolder.open(path)
    with run.hold():
        assert not [*path.glob(".*.tmp"), *(path / "checkpoints").glob(".*.tmp")]
    assert len(list((path / "checkpoints").iterdir())) <= 3
    assert sum(line.startswith("ended") for line in printed) >= 5
