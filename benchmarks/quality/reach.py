"""Reach and frequency by the criterion of cross-media teams: python benchmarks/quality/reach.py.

A setting passes for reach if 95% of its runs are within 5% of the truth, and for frequency if 80%
are within a shuffle distance of 20% (half the sum of absolute differences of the shares). Runs
differ in noise and, for sketches, in which registers users fall into; registers are drawn from
their exact law instead of hashing users. Budgets are for reach and frequency together.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.lab.sketches.counted_legions import (
    CountedLegions,
    SketchFrequencyConfig,
    release_sketch_frequencies,
)
from tulle.lab.sketches.liquid_legions import LiquidLegionsConfig
from tulle.lab.sketches.private_union import PrivateUnionConfig
from tulle.measure.reach import FrequencyConfig, monotone_counts, release_frequencies
from tulle.measure.slice_jobs import Frequencies
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.polya import sample_noise_shares
from tulle.privacy.units import Adjacency

EPSILONS = (2 * math.log(3), math.log(3), 0.5, 0.25, 0.1)
POPULATIONS = (300, 3_000, 30_000, 300_000, 3_000_000, 30_000_000, 300_000_000)
MAX_FREQUENCY, DECAY_OF_FREQUENCY = 10, 0.6
REACH_ERROR, REACH_GOAL, SHUFFLE_DISTANCE, FREQUENCY_GOAL = 0.05, 0.95, 0.2, 0.8
DIRECT_METHODS = (
    ("direct", 0.0, 1),
    ("direct, half of epsilon on reach", 0.5, 1),
    ("direct, 20 slices a user", 0.0, 20),
)
SHAPES = (
    LiquidLegionsConfig(num_registers=100_000, decay=12.0),
    LiquidLegionsConfig(num_registers=1_000_000, decay=5.6),
)
NUM_PARTIES, NUM_HONEST = 10, 5
ADD = Adjacency.ADD_OR_REMOVE
Rows = Iterator[dict[str, object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=PUBLISHED / "reach.json")
    options = parser.parse_args()
    rng = SeededNoise(options.seed)
    rows = []
    for population in POPULATIONS:
        rows += direct_rows(population, options.runs, rng)
        for shape in SHAPES:
            generator = np.random.default_rng([options.seed, population, shape.num_registers])
            rows += sketch_rows(population, shape, options.runs, generator, rng)
    print_table(rows)
    facts = {
        "seed": options.seed,
        "num_runs": options.runs,
        "versions": versions("numpy", "scipy"),
        "max_frequency": MAX_FREQUENCY,
        "num_parties": NUM_PARTIES,
        "min_honest_parties": NUM_HONEST,
        "criterion": {
            "reach_error": REACH_ERROR,
            "reach_goal": REACH_GOAL,
            "shuffle_distance": SHUFFLE_DISTANCE,
            "frequency_goal": FREQUENCY_GOAL,
        },
    }
    write_record(options.output, "reach and frequency within stated errors", rows, facts)


def direct_rows(population: int, num_runs: int, rng: NoiseSource) -> Rows:
    """One noisy histogram a run, from exact counts of one engine."""
    raw = true_counts(population)
    for epsilon in EPSILONS:
        for method, share, num_slices in DIRECT_METHODS:
            config = FrequencyConfig(
                epsilon=epsilon,
                max_frequency=MAX_FREQUENCY,
                max_slices_per_unit=num_slices,
                adjacency=ADD,
                reach_share=share,
            )
            frequencies = Frequencies(slices=pl.DataFrame(), raw_counts=np.tile(raw, (num_runs, 1)))
            release = release_frequencies(frequencies, config, rng=rng)
            estimates = release.counts.sum(axis=1)
            yield row(method, population, epsilon, estimates, release.consistent_counts)


def sketch_rows(
    population: int,
    shape: LiquidLegionsConfig,
    num_runs: int,
    generator: np.random.Generator,
    rng: NoiseSource,
) -> Rows:
    """A merged sketch a run, seen by a trusted party or only in noisy residues."""
    configs = [
        SketchFrequencyConfig(epsilon=epsilon, max_frequency=MAX_FREQUENCY, adjacency=ADD)
        for epsilon in EPSILONS
    ]
    marks = np.zeros(num_runs)
    estimates = np.zeros((len(EPSILONS), num_runs))
    counts = np.zeros((len(EPSILONS), num_runs, MAX_FREQUENCY))
    for run in range(num_runs):
        sketch = drawn_sketch(population, shape, generator)
        marks[run] = sketch.raw_num_marks
        for place, config in enumerate(configs):
            release = release_sketch_frequencies(sketch, config, rng=rng)
            estimates[place, run] = release.reach.value
            counts[place, run] = release.noisy_counts
    name = f"m={shape.num_registers:,} a={shape.decay:g}"
    for place, epsilon in enumerate(EPSILONS):
        consistent = monotone_counts(counts[place])
        yield row(f"sketch, {name}", population, epsilon, estimates[place], consistent)
        noisy_marks = marks + union_noise(epsilon, shape, num_runs, rng)
        union_estimates = np.array([shape.reach_of(number) for number in noisy_marks.tolist()])
        yield row(f"union of parties, {name}", population, epsilon, union_estimates, None)


def union_noise(
    epsilon: float, shape: LiquidLegionsConfig, num_runs: int, rng: NoiseSource
) -> np.ndarray:
    """What all parties' shares add up to, in each run."""
    union = PrivateUnionConfig(
        epsilon=epsilon,
        delta=1e-12,
        num_parties=NUM_PARTIES,
        min_honest_parties=NUM_HONEST,
        sketch=shape,
    )
    shares = sample_noise_shares(union.noise_share, num_runs * NUM_PARTIES, rng=rng)
    return shares.reshape(num_runs, NUM_PARTIES).sum(axis=1)


def drawn_sketch(
    population: int, shape: LiquidLegionsConfig, generator: np.random.Generator
) -> CountedLegions:
    """A sketch of so many users, drawn from its law: users alone are a sample of all."""
    users = generator.multinomial(population, shape.hit_probs)
    is_alone = users == 1
    num_alone = int(is_alone.sum())
    by_frequency = generator.multivariate_hypergeometric(
        true_counts(population), num_alone, method="marginals"
    )
    counts = np.zeros(shape.num_registers, np.int64)
    counts[is_alone] = np.repeat(np.arange(1, MAX_FREQUENCY + 1), by_frequency)
    return CountedLegions(
        config=shape,
        key_mark="",
        raw_owners=is_alone.astype(np.uint64),
        raw_counts=counts,
        raw_is_shared=users > 1,
    )


def true_counts(population: int) -> np.ndarray:
    """Users by frequency: each further impression is 0.6 times as common."""
    weights = DECAY_OF_FREQUENCY ** np.arange(MAX_FREQUENCY)
    counts = np.floor(population * weights / weights.sum()).astype(np.int64)
    counts[0] += population - counts.sum()
    return counts


def row(
    method: str,
    population: int,
    epsilon: float,
    estimates: np.ndarray,
    counts: np.ndarray | None,
) -> dict[str, object]:
    errors = np.abs(estimates / population - 1)
    reach_share = float(np.mean(errors <= REACH_ERROR))
    frequency_share = distance = None
    if counts is not None:
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        distances = np.abs(shares - true_counts(population) / population).sum(axis=1) / 2
        frequency_share = float(np.mean(distances <= SHUFFLE_DISTANCE))
        distance = float(np.median(distances))
    return {
        "method": method,
        "reach": population,
        "epsilon": round(epsilon, 4),
        "median_reach_error": float(np.median(errors)),
        "reach_within": reach_share,
        "reach_passes": reach_share >= REACH_GOAL,
        "median_shuffle_distance": distance,
        "frequency_within": frequency_share,
        "frequency_passes": None if frequency_share is None else frequency_share >= FREQUENCY_GOAL,
    }


if __name__ == "__main__":
    main()
