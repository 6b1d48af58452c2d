"""Relative error of optimised and usual clips: python benchmarks/quality/clip_shares.py.

The three synthetic sets of Aksu et al. (2024): slices with a power law of impressions, ten
conversions each on average, lognormal values. An impression is the unit; it keeps its first 20
conversions and each of them gets a 20th of its budget. Clips come from one set, errors are those
to expect on a second one of the same law.
"""

import argparse
import dataclasses
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.measure.clipping import (
    ValueHistory,
    expected_errors,
    optimise_clips,
    quantile_clips,
)
from tulle.measure.trees.level_budgets import LaplaceLevels

SEED, NUM_PAIRS, STEPS = 7, 20, 1 << 16
EPSILONS, QUANTILES = (8.0, 16.0, 64.0), (0.9, 0.95)
CONVERSIONS_PER_IMPRESSION, MAX_PER_IMPRESSION = 10.0, 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSet:
    """Parameters of one set."""

    ones: float
    """Chance of the smallest number of impressions in a slice, up to a factor."""
    twos: float
    num_slices: int
    mean_value: float
    mode_value: float
    scale: float = 1.0


SETS = {
    "synthetic 1": SyntheticSet(
        ones=0.5, twos=0.0675, num_slices=3200, mean_value=130.05, mode_value=17.22
    ),
    "synthetic 2": SyntheticSet(
        ones=0.51, twos=0.25, num_slices=180, mean_value=2.63578, mode_value=1.98704, scale=5000
    ),
    "synthetic 3": SyntheticSet(
        ones=0.44046, twos=0.2, num_slices=180, mean_value=13.52268, mode_value=1.89888, scale=5000
    ),
}
PAPER_ERRORS = {
    ("synthetic 1", 64.0): (0.175, 0.233, 0.273),
    ("synthetic 1", 16.0): (0.320, 0.645, math.inf),
    ("synthetic 2", 8.0): (0.079, 0.125, 0.142),
    ("synthetic 2", 16.0): (0.046, 0.073, 0.074),
    ("synthetic 2", 64.0): (0.016, 0.047, 0.031),
    ("synthetic 3", 16.0): (0.258, 0.398, 0.583),
    ("synthetic 3", 64.0): (0.140, 0.200, 0.190),
}
"""Read from the authors' curves, to 0.005: optimised, clip at 90%, clip at 95%.

Infinity is for what is above the chart."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "clip_shares.json")
    parser.add_argument("--pairs", type=int, default=NUM_PAIRS)
    options = parser.parse_args()
    rows = []
    for name, law in SETS.items():
        rng = np.random.default_rng(SEED)
        pairs = [[draw_conversions(law, rng) for _ in range(2)] for _ in range(options.pairs)]
        rows += [
            {"set": name, **measure(pairs, epsilon), "in_the_paper": paper_ratio(name, epsilon)}
            for epsilon in EPSILONS
        ]
    print_table(rows)
    facts = {
        "versions": versions("numpy", "scipy"),
        "seed": SEED,
        "pairs": options.pairs,
        "steps": STEPS,
        "max_per_impression": MAX_PER_IMPRESSION,
    }
    write_record(options.output, "relative error by clips and shares", rows, facts)


def measure(pairs: list[list[ValueHistory]], epsilon: float) -> dict[str, object]:
    budget = LaplaceLevels(
        epsilon=epsilon, max_steps_per_unit=MAX_PER_IMPRESSION * STEPS, steps=STEPS
    )
    found = [errors_of_pair(earlier, later, budget) for earlier, later in pairs]
    errors = {name: float(np.mean([pair[name] for pair in found])) for name in found[0]}
    ratio = errors["optimised"] / min(errors["quantile_90"], errors["quantile_95"])
    rounded = {name: round(error, 4) for name, error in errors.items()}
    return {"epsilon": epsilon, **rounded, "over_best_baseline": round(ratio, 3)}


def paper_ratio(name: str, epsilon: float) -> float | None:
    if (name, epsilon) not in PAPER_ERRORS:
        return None
    optimised, *usual = PAPER_ERRORS[name, epsilon]
    return round(optimised / min(usual), 2)


def errors_of_pair(
    earlier: ValueHistory, later: ValueHistory, budget: LaplaceLevels
) -> dict[str, float]:
    plans = {"optimised": optimise_clips(earlier, budget)}
    for quantile in QUANTILES:
        name = f"quantile_{round(100 * quantile)}"
        plans[name] = quantile_clips(earlier, budget, quantile=quantile)
    taus = earlier.default_taus()
    return {
        name: expected_errors(
            later, plan.amounts, budget, has_rest=plan.has_rest, taus=taus
        ).overall
        for name, plan in plans.items()
    }


def draw_conversions(law: SyntheticSet, rng: np.random.Generator) -> ValueHistory:
    """One set: the slice and value of each conversion, and whether its impression keeps it."""
    impressions = 1 + power_law(-math.log2(law.twos / law.ones), law.num_slices, rng)
    slice_of_impression = np.repeat(np.arange(law.num_slices), impressions)
    conversions = rng.poisson(CONVERSIONS_PER_IMPRESSION, len(slice_of_impression))
    place = np.arange(conversions.sum()) - np.repeat(
        np.cumsum(conversions) - conversions, conversions
    )
    location = (2 * math.log(law.mean_value) + math.log(law.mode_value)) / 3
    spread = math.sqrt(location - math.log(law.mode_value))
    values = law.scale * rng.lognormal(location, spread, len(place))
    return ValueHistory(
        names=("value",),
        values=values[:, None],
        slices=np.repeat(slice_of_impression, conversions),
        kept=(place < MAX_PER_IMPRESSION).astype(np.float64),
    )


def power_law(exponent: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """`size` draws from 1 to `size`, by the continuous approximation (Clauset et al. 2009, D.6)."""
    least_tail = ((size + 0.5) / 0.5) ** (1 - exponent)
    tails = rng.uniform(least_tail, 1, size)
    return np.floor(0.5 * tails ** (-1 / (exponent - 1)) + 0.5).astype(np.int64)


if __name__ == "__main__":
    main()
