import subprocess
import sys
from pathlib import Path

from waiting import HANG_S

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os
import sys

sys.path.insert(0, {benchmarks!r})

from worker_processes import Crew, Job, collect_results


def work(task):
    if task["what"] == "die":
        os._exit(7)
    if task["what"] == "fail":
        raise ValueError("no such thing")
    return task["what"]


if __name__ == "__main__":
    words = sys.argv[3:]
    jobs = [
        Job(name=f"the job {{word}}", task={{"what": word}}, on_device=word.startswith("gpu"))
        for word in words
    ]
    crew = Crew(num_processes=int(sys.argv[1]), num_on_device=1, time_limit=float(sys.argv[2]))
    sys.exit(collect_results(jobs, work, crew, keep=lambda word: print("kept", word)))
"""


def run(
    tmp_path: Path, *words: str, processes: int = 1, time_limit: str = "inf"
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(benchmarks=str(ROOT / "benchmarks")))
    command = [sys.executable, str(script), str(processes), time_limit, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_a_process_that_dies_and_a_job_that_fails_leave_the_other_results(tmp_path: Path) -> None:
    done = run(tmp_path, "first", "die", "fail", "last", processes=2)
    assert sorted(done.stdout.splitlines()) == ["kept first", "kept last"]
    assert "the job die: its process ended with exit code 7" in done.stderr
    assert "the job fail:" in done.stderr
    assert "no such thing" in done.stderr
    assert done.returncode == 1


def test_jobs_on_the_device_come_first_where_a_process_takes_them(tmp_path: Path) -> None:
    done = run(tmp_path, "core", "gpu one", "gpu two")
    assert done.stdout.splitlines() == ["kept gpu one", "kept gpu two", "kept core"]
    assert done.returncode == 0


def test_no_job_begins_after_the_time_limit(tmp_path: Path) -> None:
    done = run(tmp_path, "first", "second", time_limit="0")
    assert "kept" not in done.stdout
    assert "2 of 2 runs were not begun" in done.stdout
    assert done.returncode == 0
