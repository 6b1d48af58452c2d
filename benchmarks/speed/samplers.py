"""Speed of the exact samplers: python benchmarks/speed/samplers.py [--output FILE].

Every row is measured in the same run against numpy's own sampler of the same or
the nearest law, which is not exact and not secure, and against the limit: the
rate at which the operating system gives 64-bit words. One thread; the median of
several repeats.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, write_record
from tulle.mechanisms.discrete_gaussian import sample_discrete_gaussian
from tulle.mechanisms.discrete_laplace import sample_discrete_laplace
from tulle.mechanisms.entropy import OperatingSystemNoise
from tulle.mechanisms.exact import sample_bernoulli_exp, sample_geometric
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace

Draw = Callable[[int], object]

SIZES = (1_000, 100_000, 1_000_000)
NUM_REPEATS = 7
TARGETS = {"discrete Laplace": 1e6, "discrete Gaussian": 3e5}
"""Draws a second that each sampler must reach at the largest size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "samplers.json")
    output = parser.parse_args().output
    rows = [row for size in SIZES for row in measure(size)]
    print_table(rows)
    largest = {row["law"]: row["draws_per_second"] for row in rows if row["size"] == SIZES[-1]}
    met = {
        law: min(v for name, v in largest.items() if name.startswith(law)) >= target
        for law, target in TARGETS.items()
    }
    facts = {
        "targets_draws_per_second": TARGETS,
        "targets_met": met,
        "num_repeats": NUM_REPEATS,
    }
    write_record(output, "exact samplers", rows, facts)
    print(f"targets met: {met}; wrote {output.name}")


def measure(size: int) -> list[dict[str, object]]:
    limit = OperatingSystemNoise().words
    rows = []
    for law, (exact, from_numpy) in samplers().items():
        # Taken in turns, so that other load on the machine hits all three alike.
        turns = [
            [seconds(draw, size) for draw in (exact, from_numpy, limit)]
            for _ in range(NUM_REPEATS + 1)
        ][1:]
        own = statistics.median(own for own, _, _ in turns)
        rows.append(
            {
                "law": law,
                "size": size,
                "draws_per_second": round(size / own),
                "ratio_to_numpy": round(statistics.median(n / own for own, n, _ in turns), 3),
                "ratio_to_entropy_limit": round(
                    statistics.median(words / own for own, _, words in turns), 3
                ),
            }
        )
    return rows


def samplers() -> dict[str, tuple[Draw, Draw]]:
    """The exact sampler and numpy's inexact one, by law."""
    rng = OperatingSystemNoise()
    generator = np.random.default_rng()
    gaussian = GaussianConfig(noise_multiplier=1.0)
    laplace = LaplaceConfig(noise_multiplier=1.0)

    def numpy_discrete_laplace(scale: float) -> Draw:
        chance = -np.expm1(-1 / scale)
        return lambda n: generator.geometric(chance, n) - generator.geometric(chance, n)

    def numpy_rounded_normal(scale: float) -> Draw:
        return lambda n: np.rint(generator.normal(0, scale, n)).astype(np.int64)

    rows: dict[str, tuple[Draw, Draw]] = {}
    for scale in (1.0, 100.0, 1e6):
        rows[f"discrete Laplace, scale {scale:g}"] = (
            lambda n, scale=scale: sample_discrete_laplace(scale, n, rng=rng),
            numpy_discrete_laplace(scale),
        )
    for scale in (1.0, 100.0, 1e6):
        rows[f"discrete Gaussian, scale {scale:g}"] = (
            lambda n, scale=scale: sample_discrete_gaussian(scale, n, rng=rng),
            numpy_rounded_normal(scale),
        )
    rows["geometric, scale 10"] = (
        lambda n: sample_geometric(10.0, n, rng=rng),
        lambda n: generator.geometric(-np.expm1(-0.1), n),
    )
    rows["Bernoulli(exp(-1))"] = (
        lambda n: sample_bernoulli_exp(1.0, n, rng=rng),
        lambda n: generator.random(n) < np.exp(-1),
    )
    rows["Laplace on a lattice"] = (
        lambda n: release_laplace(np.zeros(n), laplace, rng=rng),
        lambda n: generator.laplace(size=n),
    )
    rows["Gaussian on a lattice"] = (
        lambda n: release_gaussian(np.zeros(n), gaussian, rng=rng),
        lambda n: generator.normal(size=n),
    )
    return rows


def seconds(draw: Draw, size: int) -> float:
    """The time of one call, over enough calls to be measured."""
    num_calls = max(1, 100_000 // size)
    start = time.perf_counter()
    for _ in range(num_calls):
        draw(size)
    return (time.perf_counter() - start) / num_calls


if __name__ == "__main__":
    main()
