import numpy as np
import polars as pl
import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.trees.consistency import consistent_estimate, running_total, running_totals
from tulle.measure.trees.slice_tree import NO_PARENT, SliceTree, day_tree
from unit.measure.trees.dense_trees import leaf_matrix, random_tree, whitened, whitened_totals

KEYS = pl.DataFrame(
    {
        "campaign": ["a", "b", "a", "b", "b"],
        "geo": ["x", "x", "y", "z", "z"],
        "age": ["1", "1", "1", "1", "2"],
    }
)
LEVELS = [(), ("campaign",), ("campaign", "geo"), ("campaign", "geo", "age")]


def test_levels_are_prefixes_of_the_keys() -> None:
    tree = SliceTree.from_keys(KEYS, LEVELS)
    assert tree.parents.tolist() == [NO_PARENT, 0, 0, 1, 2, 1, 2, 3, 4, 5, 6, 6]
    assert tree.levels.tolist() == [0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    assert tree.keys is not None
    assert tree.keys.row(0) == (None, None, None)
    assert tree.keys.row(2) == ("b", None, None)
    assert tree.keys.row(6) == ("b", "z", None)
    assert tree.keys[tree.leaf_nodes.tolist()].equals(KEYS)


def test_totals_of_nodes_are_those_of_grouping_the_rows() -> None:
    tree = SliceTree.from_keys(KEYS, LEVELS)
    totals = tree.node_totals([1, 10, 100, 1000, 10000])
    assert tree.keys is not None
    found = dict(zip(tree.keys.rows(), totals.tolist(), strict=True))
    assert found[(None, None, None)] == 11111
    assert found[("a", None, None)] == 101
    assert found[("b", None, None)] == 11010
    assert found[("b", "z", None)] == 11000
    assert found[("b", "z", "2")] == 10000


def test_totals_of_a_random_tree_are_those_of_walking_up() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        tree = random_tree(rng)
        values = rng.integers(0, 100, (len(tree.leaf_nodes), 2))
        np.testing.assert_array_equal(tree.node_totals(values), leaf_matrix(tree) @ values)


def test_whole_numbers_stay_exact_beyond_what_floats_hold() -> None:
    tree = SliceTree.from_keys(pl.DataFrame({"day": ["1", "2"]}), [(), ("day",)])
    assert tree.node_totals([2**61, 1]).tolist() == [2**61 + 1, 2**61, 1]


def test_a_tree_of_leaves_alone_and_one_with_several_tops() -> None:
    assert SliceTree.from_keys(KEYS.select("geo", "age").unique(), [("geo", "age")]).num_levels == 1
    tree = SliceTree.from_keys(KEYS, LEVELS[1:])
    assert tree.parents.tolist()[:2] == [NO_PARENT, NO_PARENT]


def test_a_key_can_be_null() -> None:
    keys = pl.DataFrame({"geo": ["x", None], "age": ["1", "1"]})
    tree = SliceTree.from_keys(keys, [("geo",), ("geo", "age")])
    assert tree.node_totals([3, 4]).tolist() == [3, 4, 3, 4]


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([], "all columns"),
        ([(), ("campaign",)], "all columns"),
        ([("geo",), ("campaign",), ("campaign", "geo", "age")], "level above"),
        ([("campaign", "geo", "age"), ("campaign", "geo", "age")], "at least one more"),
    ],
)
def test_levels_that_do_not_nest_are_refused(levels: list, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SliceTree.from_keys(KEYS, levels)


def test_keys_that_are_missing_or_repeated_are_refused() -> None:
    with pytest.raises(DataError, match="empty"):
        SliceTree.from_keys(KEYS.clear(), LEVELS)
    with pytest.raises(DataError, match="more than once"):
        SliceTree.from_keys(pl.concat([KEYS, KEYS[:1]]), LEVELS)


def test_leaf_values_for_another_tree_are_refused() -> None:
    with pytest.raises(DataError, match="4 leaf values for a tree with 5 leaves"):
        SliceTree.from_keys(KEYS, LEVELS).node_totals([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("parents", "levels", "leaves", "message"),
    [
        ([], [], [], "at least one node"),
        ([-1, 0], [0], [1], "a level for each"),
        ([-1, 0], [1, 2], [1], "from 0 on"),
        ([-1, -1], [0, 2], [0, 1], "without a gap"),
        ([1, -1], [0, 1], [0], "comes before"),
        ([-1, 0, 0], [0, 0, 1], [1, 2], "one level above"),
        ([-1, 0, 0], [0, 1, 1], [1], "without children"),
    ],
)
def test_arrays_that_are_no_tree_are_refused(
    parents: list, levels: list, leaves: list, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        SliceTree(
            parents=np.array(parents, dtype=np.int64),
            levels=np.array(levels, dtype=np.int64),
            leaf_nodes=np.array(leaves, dtype=np.int64),
        )


def test_full_groups_of_days_are_the_nodes() -> None:
    tree = day_tree(7)
    assert tree.levels.tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    assert tree.parents.tolist() == [NO_PARENT, 0, 0, NO_PARENT, 1, 1, 2, 2, 3, 3, NO_PARENT]
    assert tree.leaf_nodes.tolist() == [4, 5, 6, 7, 8, 9, 10]


def test_groups_can_be_of_any_size() -> None:
    tree = day_tree(30, branching=7)
    assert np.bincount(tree.levels).tolist() == [4, 30]
    assert day_tree(6, branching=7).num_levels == 1


@pytest.mark.parametrize(("num_days", "branching"), [(1, 2), (13, 2), (30, 3), (9, 7)])
def test_running_totals_and_their_variances_are_those_of_dense_least_squares(
    num_days: int, branching: int
) -> None:
    rng = np.random.default_rng(31)
    tree = day_tree(num_days, branching=branching)
    variances = rng.uniform(0.5, 2, tree.num_levels)[tree.levels]
    noisy = rng.normal(10, 3, tree.num_nodes)
    estimate = consistent_estimate(tree, noisy, variances)
    design = whitened(tree, variances)
    covariance = np.linalg.inv(design.T @ design)
    prefixes = np.tri(num_days)
    expected = prefixes @ covariance @ design.T @ whitened_totals(noisy, variances)
    expected_variances = np.diag(prefixes @ covariance @ prefixes.T)
    values, found_variances = running_totals(estimate)
    np.testing.assert_allclose(values, expected, rtol=1e-11)
    np.testing.assert_allclose(found_variances, expected_variances, rtol=1e-11)
    last = running_total(estimate, num_days - 1)
    assert last.value == pytest.approx(expected[-1], rel=1e-11)
    assert last.variance == pytest.approx(expected_variances[-1], rel=1e-11)


def test_a_tree_beats_single_days_for_long_running_totals() -> None:
    # The same rho: a 9th of it for each level, or all of it for days of variance 1.
    tree = day_tree(256)
    by_tree = consistent_estimate(tree, np.zeros(tree.num_nodes), np.full(tree.num_nodes, 9.0))
    _, variances = running_totals(by_tree)
    assert variances.max() < 40
    assert np.mean(variances) < np.mean(np.arange(1, 257)) / 5


@pytest.mark.parametrize("day", [-1, 3])
def test_a_day_that_is_not_in_the_tree_is_refused(day: int) -> None:
    estimate = consistent_estimate(day_tree(3), np.zeros(4), np.ones(4))
    with pytest.raises(ConfigError, match=f"day={day}"):
        running_total(estimate, day)


@pytest.mark.parametrize(("num_days", "branching"), [(0, 2), (3, 1)])
def test_a_tree_without_days_or_groups_is_refused(num_days: int, branching: int) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        day_tree(num_days, branching=branching)
