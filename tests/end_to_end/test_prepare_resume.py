"""A prepare that is killed outright, at any moment, ends with the bytes of one that was not.

What is killed is a process of its own; what finishes its work runs in this one.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tulle.data.features.feature_plan import hash_all
from tulle.data.formats.public import ATTRIBUTION
from tulle.data.preparation import prepare_log
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log
from tulle.data.tables.sources import LogFiles
from tulle.errors import TulleError
from waiting import HANG_S

NUM_ROWS, ROWS_PER_BLOCK = 12_000, 1_000

PREPARE = f"""
import os, sys
from pathlib import Path
from tulle.data.features.feature_plan import hash_all
from tulle.data.formats.public import ATTRIBUTION
from tulle.data.tables.sources import LogFiles
from tulle.data.preparation import prepare_log

def die_at(name, number):
    function, calls = getattr(os, name), []
    def dying(*arguments, **options):
        calls.append(1)
        if len(calls) == number:
            os._exit(9)
        return function(*arguments, **options)
    setattr(os, name, dying)

if len(sys.argv) > 3:
    die_at(sys.argv[3], int(sys.argv[4]))
log = LogFiles(
    paths=(Path(sys.argv[1]),), layout=ATTRIBUTION, rows_per_block={ROWS_PER_BLOCK}
)
plan = hash_all(ATTRIBUTION.schema, salt=b"0" * 16)
prepare_log(log, plan, Path(sys.argv[2]), progress=lambda rows, *_: print(rows, flush=True))
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "clicks.tsv.gz"
    write_log(shapes.ATTRIBUTION, path, num_rows=NUM_ROWS, seed=4)
    return path


@pytest.fixture(scope="module")
def expected(log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("expected") / "whole"
    assert code_of(start(log, folder)) == 0
    return bytes_of(folder)


def start(log: Path, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PREPARE, str(log), str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def code_of(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=HANG_S)
    return process.returncode


def code_here(log: Path, folder: Path) -> int:
    """The exit code that a process would have which nobody kills."""
    files = LogFiles(paths=(log,), layout=ATTRIBUTION, rows_per_block=ROWS_PER_BLOCK)
    try:
        prepare_log(files, hash_all(ATTRIBUTION.schema, salt=b"0" * 16), folder)
    except TulleError:
        return 1
    return 0


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def kill_after(process: "subprocess.Popen[str]", num_lines: int, delay_s: float) -> None:
    assert process.stdout is not None
    for _ in range(num_lines):
        process.stdout.readline()
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=HANG_S)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_random_moments_it_ends_with_the_same_bytes(
    log: Path, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311
    folder = tmp_path / "out"
    for _ in range(3):
        if folder.exists():
            break
        kill_after(start(log, folder), chance.randint(0, 3), chance.uniform(0, 0.02))
        assert folder.exists() or (tmp_path / "out.partial").exists() or not any(tmp_path.iterdir())
    if not folder.exists():
        assert code_here(log, folder) == 0
    PreparedDataset.open(folder).verify()
    assert bytes_of(folder) == expected


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("fsync", 2),  # before anything is begun
        ("fsync", 13),  # in the first blocks
        ("fsync", 60),  # in a later one
        ("replace", 2),  # before the encoder is in place
        ("replace", 9),  # between arrays and their record
        ("rename", 1),  # all is written, nothing in place
        ("rmdir", 1),  # all is in place, not everything cleared away
    ],
)
def test_killed_at_a_chosen_step_it_ends_with_the_same_bytes(
    log: Path, expected: dict[str, bytes], tmp_path: Path, call: str, number: int
) -> None:
    folder = tmp_path / "out"
    assert code_of(start(log, folder, call, str(number))) == 9
    folder_was_there = folder.exists()
    assert folder_was_there == (call == "rmdir")
    # What is in place already is refused, and what was left beside it cleared away.
    assert code_here(log, folder) == folder_was_there
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert bytes_of(folder) == expected


def test_two_processes_do_not_write_the_same_folder(
    log: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    runs = [start(log, folder) for _ in range(3)]
    codes = [code_of(run) for run in runs]
    assert sorted(codes)[:2] == [0, 1]
    assert codes.count(0) == 1
    assert bytes_of(folder) == expected
