"""Time to design and to draw noisy labels.

    python benchmarks/speed/label_solvers.py [--output FILE]

Bins for 401 and 5,000 labels at several epsilons, the optimal unbiased randomizer for
40 labels and for 401 rounded to 40 atoms, and draws from a channel of 50 outputs.
CPU seconds of one thread, the median of three, against a limit that was set before.
"""

import argparse
import functools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

# Before numpy is loaded: it reads these once.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

from record import PUBLISHED, print_table, versions, write_record
from tulle.labels.label_grid import LabelGrid
from tulle.labels.mechanisms.bin_search import POISSON, SQUARED, find_bins
from tulle.labels.mechanisms.unbiased_response import UnbiasedResponse
from tulle.mechanisms.entropy import OperatingSystemNoise
from tulle.mechanisms.finite_channel import FiniteChannel

NUM_REPEATS = 3
BIN_EPSILONS = (1.0, 4.0, 8.0, 14.0)
UNBIASED_EPSILONS = (0.5, 1.0, 4.0, 8.0)
BIN_LIMITS = {401: 0.2, 5_000: 30.0}
UNBIASED_LIMIT = 5.0
NUM_ROWS = 3_000_000
DRAW_LIMIT = 1.0


def falling_prior(num_labels: int) -> np.ndarray:
    """Most labels are small, as sale values are."""
    weights = np.exp(-4 * np.arange(num_labels) / num_labels)
    return weights / weights.sum()


def rough_prior(num_labels: int) -> np.ndarray:
    """Neighbours differ a lot, as in a noisy histogram."""
    return np.random.default_rng(0).dirichlet(np.full(num_labels, 0.5))


PRIORS = {"falling": falling_prior, "rough": rough_prior}


def cpu_seconds(task: Callable[[], object]) -> float:
    times = []
    for _ in range(NUM_REPEATS):
        start = time.process_time()
        task()
        times.append(time.process_time() - start)
    return statistics.median(times)


def row(task: str, size: int, epsilon: float, seconds: float, limit: float) -> dict[str, object]:
    return {
        "task": task,
        "size": size,
        "epsilon": epsilon,
        "cpu_seconds": seconds,
        "limit_cpu_seconds": limit,
        "share_of_limit": seconds / limit,
    }


def bin_rows() -> list[dict[str, object]]:
    rows = []
    for num_labels, limit in BIN_LIMITS.items():
        values = np.arange(float(num_labels))
        for loss in (SQUARED, POISSON):
            for shape, prior in PRIORS.items():
                weights = prior(num_labels)
                for epsilon in BIN_EPSILONS:
                    task = functools.partial(find_bins, weights, values, epsilon, loss)
                    name = f"bins, {loss.name} loss, {shape} prior"
                    rows.append(row(name, num_labels, epsilon, cpu_seconds(task), limit))
    return rows


def unbiased_rows() -> list[dict[str, object]]:
    rows = []
    for num_labels in (40, 401):
        grid = LabelGrid(low=0.0, high=num_labels - 1.0)
        for shape, prior in PRIORS.items():
            weights = prior(num_labels)
            for epsilon in UNBIASED_EPSILONS:
                task = functools.partial(
                    UnbiasedResponse, grid=grid, prior=weights, epsilon=epsilon
                )
                name = f"unbiased, {shape} prior"
                rows.append(row(name, num_labels, epsilon, cpu_seconds(task), UNBIASED_LIMIT))
    return rows


def draw_rows() -> list[dict[str, object]]:
    num_inputs, num_outputs, epsilon = 40, 50, 1.0
    shares = np.where(np.arange(num_outputs) < 10, np.exp(epsilon), 1.0)
    chances = np.array([np.roll(shares, place) for place in range(num_inputs)]) / shares.sum()
    channel = FiniteChannel.from_probs(chances, outputs=range(num_outputs), epsilon=epsilon)
    inputs = np.random.default_rng(0).integers(0, num_inputs, NUM_ROWS)
    seconds = cpu_seconds(lambda: channel.draw(inputs, rng=OperatingSystemNoise()))
    return [row("draws of 50 outputs", NUM_ROWS, epsilon, seconds, DRAW_LIMIT)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=PUBLISHED / "label_solvers.json")
    output = parser.parse_args().output
    rows = [*bin_rows(), *unbiased_rows(), *draw_rows()]
    print_table(rows)
    worst = max(float(one["share_of_limit"]) for one in rows)
    facts = {
        "num_repeats": NUM_REPEATS,
        "worst_share_of_limit": worst,
        "versions": versions("numpy", "scipy"),
    }
    write_record(output, "time to design and to draw noisy labels", rows, facts)
    print(f"worst share of a limit: {worst:.2f}; wrote {output.name}")


if __name__ == "__main__":
    main()
