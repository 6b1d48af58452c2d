"""Hierarchies run again: trees of numbers are those of keys, and errors those of a simulation."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.errors import DataError
from tulle.lab.markets.claims import Verdict
from tulle.lab.reproduction import tree_runs
from tulle.lab.reproduction.published import judge, published_target
from tulle.lab.reproduction.reproducing import ReproductionSettings
from tulle.lab.reproduction.tree_runs import full_tree, read_tree, run_hierarchy
from tulle.measure.trees.slice_tree import SliceTree

KEYS = [("a", "x"), ("a", "y"), ("b", "x"), ("c", "z"), ("c", "x")]
TOTALS = [40, 2, 0, 7, 900]


def write_csv(path: Path, rows: list[tuple[object, ...]]) -> Path:
    lines = [("campaign", "geo", "conversions"), *rows]
    path.write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
    return path


def leaf_totals() -> list[tuple[object, ...]]:
    return [(*key, total) for key, total in zip(KEYS, TOTALS, strict=True)]


def test_a_tree_of_a_file_adds_up_as_the_tree_of_its_keys(tmp_path: Path) -> None:
    tree, totals = read_tree(write_csv(tmp_path / "leaves.csv", leaf_totals()))
    table = pl.DataFrame(KEYS, schema=["campaign", "geo"], orient="row")
    other = SliceTree.from_keys(table, [(), ("campaign",), ("campaign", "geo")])
    assert sorted(tree.node_totals(totals)) == sorted(other.node_totals(TOTALS))
    for level in range(3):
        assert np.sum(tree.node_totals(totals)[tree.levels == level]) == sum(TOTALS)
    assert list(tree.node_totals(totals)[tree.leaf_nodes]) == TOTALS


def test_a_full_tree_has_a_level_for_each_number_of_keys() -> None:
    keys = np.array(list(itertools.product(range(2), range(3), range(4))))
    tree = full_tree(keys)
    assert list(np.bincount(tree.levels)) == [1, 2, 6, 24]


def test_errors_of_a_file_bear_out_the_claims(tmp_path: Path) -> None:
    settings = ReproductionSettings(data=write_csv(tmp_path / "leaves.csv", leaf_totals()))
    found = run_hierarchy(settings)
    verdicts = [
        judge(claim, found).verdict for claim in published_target("tutorial-hierarchy").claims
    ]
    assert verdicts == [Verdict.HOLDS] * 3
    # By hand: the squared RMSRE of a level is its variance times mean(1 / max(tau, total)^2).
    shares = np.array([1 / 3] * 3)
    decay = np.exp(-shares)
    variances = 2 * decay / (1 - decay) ** 2
    tops = [np.array([949.0]), np.array([42.0, 0.0, 907.0]), np.array(TOTALS, dtype=float)]
    costs = [np.mean(1 / np.maximum(5.0, level) ** 2) for level in tops]
    expected = np.sqrt(np.mean(variances * costs))
    assert found.figures["uniform budget, as measured"].value == pytest.approx(expected, rel=1e-3)


def test_made_up_trees_follow_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_runs, "_SIZES", (3, 4))
    monkeypatch.setattr(tree_runs, "_NUM_TREES", 2)
    one, same, other = (
        run_hierarchy(ReproductionSettings(seed=seed)).figures for seed in (1, 1, 2)
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "x", 1), ("a", "x", 2)], "twice"),
        ([("a", "x", "many")], "numbers alone"),
        ([("a", "x", -1)], ">= 0"),
        ([("a", "x")], "as many values"),
        ([], "header"),
    ],
)
def test_a_file_that_is_no_tree_is_refused(
    tmp_path: Path, rows: list[tuple[object, ...]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_tree(write_csv(tmp_path / "leaves.csv", rows))
