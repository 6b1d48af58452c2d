"""Processes that say when their work begins and ends, measured from outside meanwhile.

The process that works calls `begin` and `end` around its work, and prints lines of JSON. The one
that has started it reads its anonymous memory every few milliseconds: RssAnon of
/proc/PID/status, the pages that belong to no file. The largest resident size (ru_maxrss) would
count mapped files as well, whose pages can be dropped at any time. A peak that is shorter than
the time between two readings is missed. The standard library is enough, so that peers can use it.
"""

import json
import os
import resource
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_SECONDS_BETWEEN_READINGS = 0.005
"""Short against the time that it takes to fill a gigabyte, long against that of a reading."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")


def begin() -> tuple[float, float]:
    """Says that the work begins now, with the memory that is used already; returns the clocks."""
    print(json.dumps({"anonymous_bytes": anonymous_bytes("self")}), flush=True)
    return time.perf_counter(), time.process_time()


def end(clocks: tuple[float, float]) -> None:
    """Says that the work is done, and what it took since `begin`: CPU seconds of all threads."""
    wall, cpu = clocks
    took = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "maxrss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(took), flush=True)


def anonymous_bytes(process: int | str) -> int:
    """Anonymous memory of a process; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("RssAnon")]
    return int(found[0]) * 1024 if found else 0


def run_measured(command: Sequence[str], num_cores: int) -> dict:
    """Runs a command on the first cores alone, with as many threads; returns what it says.

    Args:
      command: A program that calls `begin` and `end`, and prints an object with more afterwards.
      num_cores: Number of cores.

    Returns:
      What it printed, and as `memory_bytes` the anonymous memory that the work took at most beyond
      what was there before it.
    """
    environment = os.environ | dict.fromkeys(_THREADS, str(num_cores))
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:num_cores])  # which the process inherits
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    finally:
        os.sched_setaffinity(0, allowed)
    with process:
        said = _lines_of(process)
    if process.returncode != 0:
        raise SystemExit(f"{Path(command[1]).name} failed with exit code {process.returncode}.")
    return said


def _lines_of(process: subprocess.Popen) -> dict:
    # Libraries print warnings between the lines of JSON.
    lines = (line for line in process.stdout or () if line.startswith("{"))
    before = json.loads(next(lines, "{}")).get("anonymous_bytes", 0)
    readings, is_done = [before], threading.Event()

    def read() -> None:
        while not is_done.wait(_SECONDS_BETWEEN_READINGS):
            readings.append(anonymous_bytes(process.pid))

    reader = threading.Thread(target=read)
    reader.start()
    took = json.loads(next(lines, "{}"))
    is_done.set()
    reader.join()
    more = json.loads(next(lines, "{}"))
    return took | more | {"memory_bytes": max(readings) - before}
