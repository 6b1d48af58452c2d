"""Hierarchies of slices, run again: what consistency and the split of a budget are worth.

Expected errors, computed exactly: nothing is drawn but the totals of the leaves. Figures are
RMSRE, the root mean square of error / max(tau, total), over all levels.
"""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.lab.reproduction.published import Findings, OwnFigure
from tulle.lab.reproduction.reproducing import ReproductionSettings
from tulle.measure.trees.level_budgets import (
    LaplaceLevels,
    TreeErrors,
    closed_form_split,
    expected_rmsre,
    leaf_only_split,
    optimised_split,
    uniform_split,
)
from tulle.measure.trees.slice_tree import NO_PARENT, SliceTree

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_EPSILON, _TAU = 1.0, 5.0
"""Budget of the whole tree, and the total below which an error counts as absolute: relative errors
of slices near 0 would drown all others."""
# Four levels end in 4,096 leaves for 5,000 conversions, spread unevenly: many small leaves below
# large sums, where the split of a budget matters most.
_SIZES = (8, 8, 8, 8)
_TOTAL, _CONCENTRATION = 5_000, 0.8
_NUM_TREES, _PAPER_TREES = 3, 20
"""Errors are exact for each tree; several only average over its totals."""


def run_hierarchy(settings: ReproductionSettings) -> Findings:
    """One budget over the levels of a tree, with and without consistency.

    Privacy:
      Not a private release: errors are computed from the totals as they are.
    """
    if settings.data is None:
        num_trees = _PAPER_TREES if settings.is_paper else _NUM_TREES
        tree = full_tree(np.stack(np.unravel_index(np.arange(np.prod(_SIZES)), _SIZES), axis=1))
        rng = np.random.default_rng(settings.seed)
        histories = [_drawn_totals(rng) for _ in range(num_trees)]
        where = (
            f"{num_trees} synthetic trees of {len(tree.leaf_nodes):,} leaves, "
            f"{_TOTAL:,} conversions"
        )
    else:
        tree, totals = read_tree(settings.data)
        histories, where = [totals], f"{settings.data.name}, {len(tree.leaf_nodes):,} leaves"
    found = []
    for number, history in enumerate(histories):
        settings.say(f"tree {number + 1} of {len(histories)}")
        found.append(_errors(tree, history))
    figures = {
        name: OwnFigure(value=float(np.mean([errors[name] for errors in found])))
        for name in found[0]
    }
    setting = f"{where}, {tree.num_levels} levels, Laplace noise at epsilon {_EPSILON:g}"
    return Findings(figures=figures, setting=setting)


def full_tree(keys: IntArray) -> SliceTree:
    """The tree whose leaves are rows of keys, with a level for each number of keys from none on.

    Args:
      keys: [leaves, keys], no row twice.
    """
    parents, levels = [np.array([NO_PARENT])], [np.zeros(1, dtype=np.int64)]
    above, num_nodes = np.zeros(len(keys), dtype=np.int64), 1
    for number in range(1, keys.shape[1] + 1):
        _, first, places = np.unique(
            keys[:, :number], axis=0, return_index=True, return_inverse=True
        )
        parents.append(above[first])
        levels.append(np.full(len(first), number))
        above = num_nodes + places.reshape(-1)
        num_nodes += len(first)
    return SliceTree(
        parents=np.concatenate(parents).astype(np.int64),
        levels=np.concatenate(levels).astype(np.int64),
        leaf_nodes=above.astype(np.int64),
    )


def read_tree(path: Path) -> tuple[SliceTree, FloatArray]:
    """A tree from a CSV file: a header, columns of keys from the top, the total last.

    Privacy:
      Reads exact totals: for public ones, or noisy ones that were paid for.
    """
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    if len(header) < 2 or not rows or any(len(row) != len(header) for row in rows):
        raise DataError(
            f"{path.name} must have a header, one column or more of keys, the total in the last "
            "column, and as many values in every row."
        )
    try:
        totals = np.array([float(row[-1]) for row in rows])
    except ValueError:
        raise DataError(
            f"column {header[-1]!r} of {path.name} must have numbers alone: it is the total."
        ) from None
    if not np.all(np.isfinite(totals)) or np.any(totals < 0):
        raise DataError(f"totals in {path.name} must be finite and >= 0; clip noisy ones at 0.")
    keys = np.stack(
        [
            np.unique([row[place] for row in rows], return_inverse=True)[1]
            for place in range(len(header) - 1)
        ],
        axis=1,
    )
    if len(np.unique(keys, axis=0)) < len(keys):
        raise DataError(f"{path.name} has a slice twice; add up its totals first.")
    return full_tree(keys), totals


def _errors(tree: SliceTree, history: FloatArray) -> dict[str, float]:
    budget = LaplaceLevels(epsilon=_EPSILON)
    errors = TreeErrors.from_history(tree, history, tau=_TAU)
    uniform = uniform_split(tree)
    before = errors.level_rmsre(budget, uniform, after_consistency=False)
    after = errors.level_rmsre(budget, uniform)
    return {
        "uniform budget, as measured": expected_rmsre(
            errors, budget, uniform, after_consistency=False
        ),
        "uniform budget, consistent": expected_rmsre(errors, budget, uniform),
        "cube-root budget, as measured": expected_rmsre(
            errors, budget, closed_form_split(errors, budget), after_consistency=False
        ),
        "optimised budget, consistent": expected_rmsre(
            errors, budget, optimised_split(errors, budget)
        ),
        "leaves alone, added up": expected_rmsre(errors, budget, leaf_only_split(tree)),
        "top level, as measured": float(before[0]),
        "top level, consistent": float(after[0]),
        "last level, as measured": float(before[-1]),
        "last level, consistent": float(after[-1]),
    }


def _drawn_totals(rng: np.random.Generator) -> FloatArray:
    """Nested Dirichlet shares: most leaves have next to nothing, as slices of ads do."""
    weights = np.ones(1)
    for size in _SIZES:
        parts = rng.dirichlet(np.full(size, _CONCENTRATION), size=len(weights))
        weights = (weights[:, None] * parts).ravel()
    return rng.multinomial(_TOTAL, weights).astype(np.float64)
