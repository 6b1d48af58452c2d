"""Seconds of a private step: python benchmarks/speed/dpsgd.py [--peer-python PATH] [options].

All ways to take a step on one task live in one process and take turns, step by step, so
that other work on the machine slows them alike. A ratio is the median over the ratios of
neighbours, and it is to the limit: tulle's own step without clipping, noise and momentum of
its tables. Slow ways take every fourth turn. With --peer-python, an environment with torch
and opacus, Opacus takes its turns too, in a process of its own. Peak memory is that of a
process which takes a few steps of one way alone. Other noise is measured with --mode. Parts of
the grid, e.g. --model fm --rows 100000, are added to the file with --add.
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

from dpsgd_steps import (
    BY_DEFAULT,
    DIM,
    HIDDEN,
    LAZY,
    LIMIT,
    MODELS,
    MOMENTUM,
    OFTEN,
    RATE,
    STEPS,
    TORCH_SPARSE,
    Task,
)

from record import PUBLISHED, print_table, versions, write_record
from tulle.train.models.batches import ExampleBatch

GHOST = "opacus ghost"
NUM_BATCHES = 8
NUM_WARMUP = 3
STEPS_ALONE = 3
TURNS_OF_SLOW = 4

GROWTH = "mlp, batch 16384: lazy at 2400000 over lazy at 100000 rows"
TARGETS = {
    "mlp, 2400000 rows, batch 16384: lazy over limit": 1.10,
    "mlp, 2400000 rows, batch 16384: lazy over torch sparse": 0.95,
    "mlp, 2400000 rows, batch 2048: lazy over limit": 1.20,
    "fm, 2400000 rows, batch 16384: lazy over limit": 1.25,
    GROWTH: 1.10,
    "mlp, 2400000 rows, batch 16384: lazy peak above the model, GB": 1.0,
}
"""On 2 cores; the largest figure that is good enough."""

Seconds = dict[str, dict[int, float]]
"""Of each way to take a step, by turn."""


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    if options.alone:
        print(peak_bytes(task_of(json.loads(options.task)), options.alone))
        return
    rows: list[dict[str, object]] = []
    peer_versions: dict[str, str] = {}
    found: dict[str, float] = {}
    for task in tasks_of(options):
        print(f"{task.model}, {task.num_rows} rows, batch {task.batch_size}", flush=True)
        measured = measure(task, options, peer_versions)
        print_table(measured)
        rows += measured
    if options.add and options.output.exists():
        earlier = json.loads(options.output.read_text(encoding="utf-8"))
        rows = merged(earlier["rows"], rows)
        peer_versions = earlier["peer_versions"] | peer_versions
        found = {name: earlier["reached"][name] for name in TARGETS if name in earlier["reached"]}
    found |= reached(rows)
    if not options.no_growth:
        found[GROWTH] = growth(options.steps)
    facts = {
        "versions": versions("numpy", "torch"),
        "peer_versions": peer_versions,
        "num_threads": options.threads,
        "num_steps": options.steps,
        "load_at_end": os.getloadavg()[0],
        "targets": TARGETS,
        "reached": found,
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
    parser.add_argument(
        "--mode", choices=STEPS, action="append", help=f"[default: {', '.join(BY_DEFAULT)}]"
    )
    parser.add_argument("--steps", type=int, default=20, help="that are timed, of each way")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-python", type=Path, help="interpreter with torch and opacus")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "dpsgd.json")
    parser.add_argument("--add", action="store_true", help="keeps other rows of the output")
    parser.add_argument("--no-growth", action="store_true", help="leaves out the two tables")
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
    names = options.mode or list(BY_DEFAULT)
    unique_rows = task.unique_rows
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
            "unique_rows": unique_rows,
            "step": name,
            "seconds": round(statistics.median(spent.values()), 5),
            "over_limit": ratio(spent, seconds.get(LIMIT)),
            "over_torch_sparse": ratio(spent, seconds.get(TORCH_SPARSE)),
            "peak_bytes": peaks.get(name),
            "model_bytes": task.model_bytes,
        }
        for name, spent in seconds.items()
    ]


def take_turns(
    task: Task,
    names: Sequence[str],
    batches: Sequence[ExampleBatch],
    num_steps: int,
    peer: "subprocess.Popen[str] | None",
) -> Seconds:
    """Seconds of every step after the first few."""
    steps = {name: STEPS[name](task) for name in names}
    seconds: Seconds = {name: {} for name in steps}
    if peer is not None:
        seconds[GHOST] = {}
    for turn in range(NUM_WARMUP + num_steps):
        batch = batches[turn % len(batches)]
        is_for_all = turn == 0 or (turn - NUM_WARMUP) % TURNS_OF_SLOW == 0
        for name, step in steps.items():
            if is_for_all or name in OFTEN:
                start = time.perf_counter()
                step(batch)
                seconds[name][turn] = time.perf_counter() - start
        if peer is not None and is_for_all:
            peer.stdin.write("step\n")
            peer.stdin.flush()
            seconds[GHOST][turn] = float(peer.stdout.readline())
    return {
        name: {turn: spent for turn, spent in turns.items() if turn >= NUM_WARMUP}
        for name, turns in seconds.items()
    }


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


def ratio(spent: dict[int, float], other: dict[int, float] | None) -> float | None:
    """The median over steps that were neighbours."""
    if other is None:
        return None
    return round(statistics.median(a / other[turn] for turn, a in spent.items()), 3)


def merged(
    earlier: Sequence[dict[str, object]], later: Sequence[dict[str, object]]
) -> list[dict[str, object]]:
    """All rows, of those for one step the later one."""

    def key(row: dict[str, object]) -> tuple[object, ...]:
        return tuple(row[name] for name in ("model", "batch_size", "num_rows", "step"))

    found = {key(row): row for row in earlier} | {key(row): row for row in later}
    return list(found.values())


def reached(rows: Sequence[dict[str, object]]) -> dict[str, float]:
    """What the targets are compared with, as far as it was measured."""
    found: dict[str, float] = {}
    lazy = [row for row in rows if row["step"] == LAZY]
    for row in lazy:
        task = f"{row['model']}, {row['num_rows']} rows, batch {row['batch_size']}"
        for peer, key in ((LIMIT, "over_limit"), (TORCH_SPARSE, "over_torch_sparse")):
            if row[key] is not None:
                found[f"{task}: lazy over {peer}"] = row[key]
        if row["peak_bytes"] is not None:
            above = (row["peak_bytes"] - row["model_bytes"]) / 1e9
            found[f"{task}: lazy peak above the model, GB"] = round(above, 3)
    return {name: found[name] for name in TARGETS if name in found}


def growth(num_steps: int) -> float:
    """Of the lazy step with the table; steps on a small and on a large one take turns."""
    tasks = [Task(model="mlp", num_rows=rows, batch_size=16384) for rows in (100_000, 2_400_000)]
    batches = [task.batches(NUM_BATCHES) for task in tasks]
    steps = [STEPS[LAZY](task) for task in tasks]
    ratios = []
    for turn in range(NUM_WARMUP + num_steps):
        spent = []
        for step, own in zip(steps, batches, strict=True):
            start = time.perf_counter()
            step(own[turn % NUM_BATCHES])
            spent.append(time.perf_counter() - start)
        ratios.append(spent[1] / spent[0])
    return round(statistics.median(ratios[NUM_WARMUP:]), 3)


if __name__ == "__main__":
    main()
