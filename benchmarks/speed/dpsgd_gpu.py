"""Milliseconds of a private step on a GPU: python benchmarks/speed/dpsgd_gpu.py [options].

All ways to take steps on one task live in one process and take turns, 32 steps at a time. A
ratio is the median over the ratios of neighbours to tulle's own step without clipping, noise
and momentum on tables, with the same products, recorded as the private one is. Bytes and
operations are those that a step cannot do without; the floor is the time that they take at the
rates of a large copy and of a large matrix product, measured in the same run.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from dpsgd_gpu_steps import (
    CHUNK,
    CLIP_NORM,
    DeviceTask,
    Steps,
    make_task,
    plain_steps,
    private_steps,
    sampler_of,
    torch_steps,
)
from dpsgd_steps import DIM, HIDDEN, NUM_FEATURES

from record import PUBLISHED, print_table, versions, write_record

HALF, SINGLE = torch.bfloat16, torch.float32
NAMES = {HALF: "bfloat16", SINGLE: "tf32"}
NUM_EXAMPLES = 36_000_000
NUM_WARMUP = 2
LARGEST_FOR_ALL = 40_000_000
"""Rows of tables; where there are more, not all ways fit on one GPU side by side."""
TARGETS = {"private over plain": 1.10, "milliseconds of a private step": 1.5}


def main() -> None:
    options = parse_options()
    torch.set_float32_matmul_precision("high")
    limits = {"copy_bytes_per_second": copy_rate()}
    limits |= {f"{NAMES[dtype]}_flops_per_second": product_rate(dtype) for dtype in NAMES}
    rows: list[dict[str, object]] = []
    for num_rows in options.rows or (2_400_000, 40_000_000, 100_000_000):
        task = make_task("mlp", num_rows, options.batch, options.examples)
        rows += measure(task, options.rounds, limits)
        print_table([row for row in rows if row["num_rows"] == num_rows])
        del task
        torch.cuda.empty_cache()
    facts = {
        "versions": versions("numpy", "torch", "triton"),
        "gpu": torch.cuda.get_device_name(),
        "num_examples": options.examples,
        "batch_size": options.batch,
        "clip_norm": CLIP_NORM,
        "steps_at_a_time": CHUNK,
        "rounds": options.rounds,
        "limits": limits,
        "targets": TARGETS,
    }
    write_record(options.output, "milliseconds of a step of DP-SGD on a GPU", rows, facts)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, action="append", help="[default: 2400000, 40000000, 100000000]"
    )
    parser.add_argument("--batch", type=int, default=16384)
    parser.add_argument("--examples", type=int, default=NUM_EXAMPLES)
    parser.add_argument("--rounds", type=int, default=12, help="of 32 steps, of each way")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "dpsgd_gpu.json")
    return parser.parse_args()


def measure(task: DeviceTask, rounds: int, limits: dict[str, float]) -> list[dict[str, object]]:
    """One row for each way to take a step."""
    ways: dict[str, Callable[[], Steps]] = {}
    is_huge = task.task.num_rows > LARGEST_FOR_ALL
    for dtype, name in NAMES.items():
        if is_huge and dtype is SINGLE:
            continue
        ways[f"tulle plain, {name}"] = lambda dtype=dtype: plain_steps(task, products=dtype)
        ways[f"tulle private, {name}"] = lambda dtype=dtype: private_steps(task, products=dtype)
    if not is_huge:
        ways["torch sparse, tf32"] = lambda: torch_steps(task, is_sparse=True)
        ways["torch dense, tf32"] = lambda: torch_steps(task, is_sparse=False)
    steps, peaks = {}, {}
    for name, make in ways.items():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        steps[name] = make()
        steps[name]()
        peaks[name] = torch.cuda.max_memory_allocated() - before
    spent = take_turns(steps, rounds)
    unique = unique_rows(task)
    found = []
    for name, seconds in spent.items():
        plain = spent[f"tulle plain, {name.rpartition(', ')[2]}"]
        floor = floor_of(task, name, unique, limits)
        found.append(
            {
                "num_rows": task.task.num_rows,
                "step": name,
                "milliseconds": round(1e3 * statistics.median(seconds), 4),
                "over_plain": round(
                    statistics.median(a / b for a, b in zip(seconds, plain, strict=True)), 3
                ),
                "unique_rows": unique,
                "gigabytes_moved": round(floor["bytes"] / 1e9, 3),
                "floor_milliseconds": round(1e3 * floor["seconds"], 4),
                "seconds_per_epoch": round(
                    statistics.median(seconds) * task.num_examples / expected_size(task, name), 2
                ),
                "peak_gigabytes": round(peaks[name] / 1e9, 2),
            }
        )
    return found


def take_turns(steps: dict[str, Steps], rounds: int) -> dict[str, list[float]]:
    """Seconds a step, in each round after the first few."""
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(NUM_WARMUP + rounds):
        for name, step in steps.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            torch.cuda.synchronize()
            spent[name].append((time.perf_counter() - start) / CHUNK)
    return {name: seconds[NUM_WARMUP:] for name, seconds in spent.items()}


def expected_size(task: DeviceTask, name: str) -> float:
    """Examples in a batch: a private one leaves room, as its number varies."""
    return sampler_of(task).expected_size if "private" in name else task.task.batch_size


def unique_rows(task: DeviceTask) -> int:
    first_rows = torch.tensor([0, *task.task.sizes[:-1]], device="cuda").cumsum(0)
    return torch.unique(task.ids[: task.task.batch_size].long() + first_rows).numel()


def floor_of(
    task: DeviceTask, name: str, unique: int, limits: dict[str, float]
) -> dict[str, float]:
    """Bytes and seconds of a perfect step: every activation and row moved as often as needed."""
    is_private, is_half = "private" in name, "bfloat16" in name
    size = 2 if is_half else 4
    sizes = (NUM_FEATURES * DIM, *HIDDEN)
    num_weights = sum(a * b for a, b in zip(sizes, (*HIDDEN, 1), strict=True))
    # Activations are written once and read by the next layer, its weight and the ReLU below;
    # their gradients likewise; gradients of rows are written, read, and added.
    activations = task.task.batch_size * sum(sizes) * size
    gradients = task.task.batch_size * (sum(HIDDEN) + sizes[0]) * size
    rows = unique * DIM * 4 * (6 if is_private else 3)
    weights = num_weights * 4 * (6 if is_private else 5)
    moved = 3 * activations + 3 * gradients + rows + weights
    operations = 6 * num_weights * task.task.batch_size
    rate = limits[f"{'bfloat16' if is_half else 'tf32'}_flops_per_second"]
    return {
        "bytes": moved,
        "seconds": max(moved / limits["copy_bytes_per_second"], operations / rate),
    }


def copy_rate() -> float:
    """Bytes read and written a second by a large copy."""
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    seconds = best_of(lambda: target.copy_(source))
    return 2 * source.nbytes / seconds


def product_rate(dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    size = 8192
    left, right = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    return 2 * size**3 / best_of(lambda: left @ right)


def best_of(work: Callable[[], object], count: int = 10) -> float:
    spent = []
    for _ in range(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    return min(spent[2:])


if __name__ == "__main__":
    main()
