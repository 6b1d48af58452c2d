"""Relative error of trees by the split of the budget: python benchmarks/quality/level_budgets.py.

Expected errors, computed exactly: nothing is drawn but the totals of the leaves. The sparse trees
have 8^4 leaves whose weights are nested Dirichlet shares; the dense tree has the conversions of
slices with a power law of impressions and ten conversions each (Aksu et al. 2024, synthetic 1).
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import polars as pl
from clip_shares import SETS, draw_conversions

from record import PUBLISHED, print_table, versions, write_record
from tulle.measure.trees.level_budgets import (
    LaplaceLevels,
    TreeErrors,
    closed_form_split,
    expected_rmsre,
    leaf_only_split,
    optimised_split,
    uniform_split,
)
from tulle.measure.trees.slice_tree import SliceTree

SEED, NUM_TREES, EPSILON, TAU, CONCENTRATION = 7, 20, 1.0, 5.0, 0.8
TOTALS = (500, 5_000, 50_000)
SPARSE_SIZES, DENSE_SIZES = (8, 8, 8, 8), (20, 10, 8, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "level_budgets.json")
    parser.add_argument("--trees", type=int, default=NUM_TREES)
    options = parser.parse_args()
    rng = np.random.default_rng(SEED)
    rows = [measure_sparse(total, options.trees, rng) for total in TOTALS]
    rows.append(measure_dense(options.trees, rng))
    print_table(rows)
    facts = {
        "versions": versions("numpy", "scipy"),
        "seed": SEED,
        "trees": options.trees,
        "epsilon": EPSILON,
        "tau": TAU,
        "concentration": CONCENTRATION,
    }
    write_record(options.output, "relative error of trees by level budgets", rows, facts)


def measure_sparse(total: int, num_trees: int, rng: np.random.Generator) -> dict[str, object]:
    tree = product_tree(SPARSE_SIZES)
    histories = [rng.multinomial(total, nested_weights(rng)) for _ in range(num_trees)]
    return {"tree": "sparse", "conversions": total, **mean_errors(tree, histories)}


def measure_dense(num_trees: int, rng: np.random.Generator) -> dict[str, object]:
    tree = product_tree(DENSE_SIZES)
    num_leaves = len(tree.leaf_nodes)
    drawn = [draw_conversions(SETS["synthetic 1"], rng).slices for _ in range(num_trees)]
    histories = [np.bincount(slices, minlength=num_leaves) for slices in drawn]
    total = round(float(np.mean([history.sum() for history in histories])))
    return {"tree": "dense", "conversions": total, **mean_errors(tree, histories)}


def product_tree(sizes: tuple[int, ...]) -> SliceTree:
    """All combinations of keys, with a level for each number of them from none on."""
    names = [f"key_{place}" for place in range(len(sizes))]
    places = np.unravel_index(np.arange(np.prod(sizes)), sizes)
    keys = pl.DataFrame(
        {name: place.astype(str) for name, place in zip(names, places, strict=True)}
    )
    return SliceTree.from_keys(keys, [tuple(names[:count]) for count in range(len(names) + 1)])


def nested_weights(rng: np.random.Generator) -> np.ndarray:
    weights = np.ones(1)
    for size in SPARSE_SIZES:
        parts = rng.dirichlet(np.full(size, CONCENTRATION), size=len(weights))
        weights = (weights[:, None] * parts).ravel()
    return weights


def mean_errors(tree: SliceTree, histories: list[np.ndarray]) -> dict[str, object]:
    """Mean errors over histories, and mean shares of the optimum from the top."""
    found = [errors_by_split(tree, history) for history in histories]
    shares = np.mean([optimum for _, optimum in found], axis=0)
    errors = {name: round(float(np.mean([e[name] for e, _ in found])), 4) for name in found[0][0]}
    return {**errors, "optimised_shares": " ".join(f"{share:.2f}" for share in shares)}


def errors_by_split(tree: SliceTree, history: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
    budget = LaplaceLevels(epsilon=EPSILON)
    errors = TreeErrors.from_history(tree, history, tau=TAU)
    uniform, cube_root = uniform_split(tree), closed_form_split(errors, budget)
    optimum = optimised_split(errors, budget)
    by_split = {
        "leaf_only": expected_rmsre(errors, budget, leaf_only_split(tree)),
        "uniform_raw": expected_rmsre(errors, budget, uniform, after_consistency=False),
        "uniform": expected_rmsre(errors, budget, uniform),
        "cube_root_raw": expected_rmsre(errors, budget, cube_root, after_consistency=False),
        "cube_root": expected_rmsre(errors, budget, cube_root),
        "optimised": expected_rmsre(errors, budget, optimum),
    }
    return by_split, optimum


if __name__ == "__main__":
    main()
