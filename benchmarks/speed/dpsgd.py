"""Seconds of a private step: python benchmarks/speed/dpsgd.py [--peer-python PATH] [options].

All ways to take a step on one task live in one process and take turns, step by step, so
that other work on the machine slows them alike. A ratio is the median over the ratios of
neighbours, and it is to the limit: tulle's own step without clipping and noise, in parts of
a batch as the private step takes them ("tulle plain" takes the batch at once). With
--peer-python, an environment with torch and opacus, Opacus takes its turns too, in a process
of its own. Peak memory is that of a process which takes a few steps of one way alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from dpsgd_steps import DIM, HIDDEN, LAZY, LIMIT, MODELS, MOMENTUM, RATE, STEPS, Task

from record import PUBLISHED, print_table, versions, write_record
from tulle.train.examples import ExampleBatch

GHOST = "opacus ghost"
NUM_BATCHES = 8
NUM_WARMUP = 3
STEPS_ALONE = 3

TARGETS = {
    "mlp, 2400000 rows, batch 16384: lazy over limit": 1.10,
    "mlp, 2400000 rows, batch 16384: lazy over torch sparse": 0.95,
    "mlp, 2400000 rows, batch 2048: lazy over limit": 1.20,
    "fm, 2400000 rows, batch 16384: lazy over limit": 1.25,
    "mlp, batch 16384: lazy at 2400000 over lazy at 100000 rows": 1.10,
}
"""On 2 cores; the largest ratio that is good enough."""


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    if options.alone:
        print(peak_bytes(task_of(json.loads(options.task)), options.alone))
        return
    rows: list[dict[str, object]] = []
    peer_versions: dict[str, str] = {}
    for task in tasks_of(options):
        print(f"{task.model}, {task.num_rows} rows, batch {task.batch_size}", flush=True)
        found = measure(task, options, peer_versions)
        print_table(found)
        rows += found
    facts = {
        "versions": versions("numpy", "torch"),
        "peer_versions": peer_versions,
        "num_threads": options.threads,
        "num_steps": options.steps,
        "load_at_end": os.getloadavg()[0],
        "targets": TARGETS,
        "reached": reached(rows),
    }
    print(f"reached: {json.dumps(facts['reached'], indent=2)}")
    write_record(options.output, "seconds of a step of DP-SGD on a CPU", rows, facts)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, action="append", help="[default: all]")
    parser.add_argument(
        "--rows", type=int, action="append", help="[default: 100000, 1000000, 2400000]"
    )
    parser.add_argument("--batch", type=int, action="append", help="[default: 16384, 2048]")
    parser.add_argument("--mode", choices=STEPS, action="append", help="[default: all]")
    parser.add_argument("--steps", type=int, default=20, help="that are timed, of each way")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-python", type=Path, help="interpreter with torch and opacus")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "dpsgd.json")
    parser.add_argument("--no-memory", action="store_true", help="leaves out peak memory")
    parser.add_argument("--alone", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    return parser.parse_args()


def tasks_of(options: argparse.Namespace) -> list[Task]:
    return [
        Task(model=model, num_rows=num_rows, batch_size=batch_size)
        for model in options.model or MODELS
        for batch_size in options.batch or (16384, 2048)
        for num_rows in options.rows or (100_000, 1_000_000, 2_400_000)
    ]


def task_of(data: dict[str, object]) -> Task:
    return Task(**data)  # type: ignore[arg-type]


def measure(
    task: Task, options: argparse.Namespace, peer_versions: dict[str, str]
) -> list[dict[str, object]]:
    """One row for each way to take a step."""
    names = options.mode or list(STEPS)
    batches = task.batches(NUM_BATCHES)
    peaks: dict[str, int] = {}
    if not options.no_memory:
        peaks = {name: peak_of_process(task, name, options.threads) for name in names}
    if options.peer_python is None:
        seconds = take_turns(task, names, batches, options.steps, None)
    else:
        with peer_process(task, batches, options) as peer:
            seconds = take_turns(task, names, batches, options.steps, peer)
            peer.stdin.close()
            facts = json.loads(peer.stdout.readline())
        peaks[GHOST] = facts.pop("peak")
        peer_versions |= facts
    return [
        {
            "model": task.model,
            "num_rows": task.num_rows,
            "batch_size": task.batch_size,
            "step": name,
            "seconds": round(statistics.median(spent), 5),
            "over_limit": ratio(spent, seconds.get(LIMIT)),
            "over_torch_sparse": ratio(spent, seconds.get("torch sparse")),
            "peak_bytes": peaks.get(name),
        }
        for name, spent in seconds.items()
    ]


def take_turns(
    task: Task,
    names: Sequence[str],
    batches: Sequence[ExampleBatch],
    num_steps: int,
    peer: "subprocess.Popen[str] | None",
) -> dict[str, list[float]]:
    """Seconds of every step after the first few."""
    steps = {name: STEPS[name](task) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(NUM_WARMUP + num_steps):
        batch = batches[number % len(batches)]
        for name, step in steps.items():
            start = time.perf_counter()
            step(batch)
            seconds[name].append(time.perf_counter() - start)
        if peer is not None:
            peer.stdin.write("step\n")
            peer.stdin.flush()
            seconds.setdefault(GHOST, []).append(float(peer.stdout.readline()))
    return {name: spent[NUM_WARMUP:] for name, spent in seconds.items()}


@contextmanager
def peer_process(
    task: Task, batches: Sequence[ExampleBatch], options: argparse.Namespace
) -> Iterator["subprocess.Popen[str]"]:
    first_rows = np.cumsum([0, *task.sizes[:-1]])
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "batches.npz"
        np.savez(
            data,
            ids=np.stack([batch.public_ids.numpy() + first_rows for batch in batches]),
            labels=np.stack([batch.labels.numpy() for batch in batches]),
        )
        description = {
            "model": task.model,
            "num_rows": sum(task.sizes),
            "data": str(data),
            "num_threads": options.threads,
            "dim": DIM,
            "hidden": HIDDEN,
            "rate": RATE,
            "momentum": MOMENTUM,
        }
        script = Path(__file__).with_name("dpsgd_peer.py")
        command = [str(options.peer_python), str(script), json.dumps(description)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            yield peer


def peak_of_process(task: Task, name: str, num_threads: int) -> int:
    data = {"model": task.model, "num_rows": task.num_rows, "batch_size": task.batch_size}
    arguments = ["--alone", name, "--task", json.dumps(data), "--threads", str(num_threads)]
    command = [sys.executable, __file__, *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peak_bytes(task: Task, name: str) -> int:
    batches = task.batches(STEPS_ALONE)
    step = STEPS[name](task)
    for batch in batches:
        step(batch)
    # Of this program alone: what getrusage tells a child begins with its parent's memory.
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def ratio(spent: Sequence[float], other: Sequence[float] | None) -> float | None:
    """The median over steps that were neighbours."""
    if other is None:
        return None
    return round(statistics.median(a / b for a, b in zip(spent, other, strict=True)), 3)


def reached(rows: Sequence[dict[str, object]]) -> dict[str, float]:
    """What the targets are compared with, as far as it was measured."""
    found: dict[str, float] = {}
    lazy = [row for row in rows if row["step"] == LAZY]
    for row in lazy:
        task = f"{row['model']}, {row['num_rows']} rows, batch {row['batch_size']}"
        for peer, key in (("limit", "over_limit"), ("torch sparse", "over_torch_sparse")):
            if row[key] is not None:
                found[f"{task}: lazy over {peer}"] = row[key]
    seconds = {(row["model"], row["batch_size"], row["num_rows"]): row["seconds"] for row in lazy}
    few, many = (seconds.get(("mlp", 16384, num_rows)) for num_rows in (100_000, 2_400_000))
    if few and many:
        key = "mlp, batch 16384: lazy at 2400000 over lazy at 100000 rows"
        found[key] = round(many / few, 3)
    return {name: found[name] for name in TARGETS if name in found}


if __name__ == "__main__":
    main()
