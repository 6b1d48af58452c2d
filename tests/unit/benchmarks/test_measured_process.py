import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import HANG_S

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "speed"))

from measured_process import run_measured

FOLDER = sys.path[0]
MEGABYTE = 1_000_000
WORK = f"""
import json, mmap, os, sys, time
sys.path.insert(0, {FOLDER!r})
from measured_process import begin, end
before = bytearray(b"x") * 60_000_000
clocks = begin()
print("[a library] warns of something")
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    touched = sum(mapped[place] for place in range(0, len(mapped), 4096))
taken = bytearray(b"x") * 80_000_000
time.sleep(0.1)
del taken
end(clocks)
facts = {{"cores": len(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}}
print(json.dumps(facts))
"""


def test_memory_is_what_the_work_took_beyond_before_and_without_mapped_files(
    tmp_path: Path,
) -> None:
    script, mapped = tmp_path / "work.py", tmp_path / "mapped"
    script.write_text(WORK)
    mapped.touch()
    os.truncate(mapped, 200 * MEGABYTE)
    said = run_measured([sys.executable, str(script), str(mapped)], 1)
    assert 75 * MEGABYTE < said["memory_bytes"] < 100 * MEGABYTE
    assert said["maxrss_bytes"] > 300 * MEGABYTE
    assert said["seconds"] > 0.1
    assert said["cpu_seconds"] < HANG_S
    assert (said["cores"], said["threads"]) == (1, "1")


def test_the_process_that_starts_another_keeps_its_own_cores() -> None:
    code = f"""
import os, sys
sys.path.insert(0, {FOLDER!r})
from measured_process import run_measured
before = os.sched_getaffinity(0)
run_measured([sys.executable, "-c", "print('{{}}')"], 1)
print(before == os.sched_getaffinity(0))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout == "True\n"


def test_a_process_that_fails_ends_the_benchmark(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match=r"work\.py failed with exit code 3"):
        run_measured([sys.executable, str(script)], 1)
