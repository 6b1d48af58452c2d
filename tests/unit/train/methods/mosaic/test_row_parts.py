"""The rows of a unit together weigh at most what one row may, in whole numbers, in all tables."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS, row_sums
from tulle.train.methods.mosaic.label_parts import LABEL_BITS
from tulle.train.methods.mosaic.noise_shares import NoiseShares, RowShares
from tulle.train.methods.mosaic.row_parts import PART_BITS, RowParts, row_parts

_WHOLE = 1 << PART_BITS
_NUM_CELLS, _NUM_TABLES = 4, 3


def row_shares(parts: RowParts, *, share: float, are_public: bool) -> tuple[RowShares, int]:
    """A share of a budget, and how much it is in squared steps."""
    shares = NoiseShares(3.0, rng=SeededNoise(1))
    limits = parts.public_limits if are_public else parts.limits
    taken: list[int] = []

    def noted(allowance: int) -> np.ndarray:
        taken.append(allowance)
        return limits(allowance)

    return shares.for_rows(share, noted, sensitivity=1.0), taken[0]


def spend(
    parts: RowParts, units: np.ndarray, seed: int, *, are_public: bool, share: float = 0.01
) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Weights that rows of units have in some tables, after they paid for them."""
    rng = np.random.default_rng(seed)
    own, allowance = row_shares(parts, share=share, are_public=are_public)
    cells = [rng.integers(0, _NUM_CELLS, len(units)) for _ in range(_NUM_TABLES)]
    wanted = [rng.integers(1, 1 << 40, _NUM_CELLS) for _ in range(_NUM_TABLES)]
    totals = sum(some[its] for some, its in zip(wanted, cells, strict=True))
    weights = []
    for some, its in zip(wanted, cells, strict=True):
        costs = parts.costs(its, _NUM_CELLS) if are_public else None
        weights.append(own.weights(some, its, np.asarray(totals), costs))
        own.release(lambda w: w, weights=weights[-1], costs=costs)
    return weights, cells, allowance


def moved_by_labels(weights: list[np.ndarray], cells: list[np.ndarray], rows: np.ndarray) -> int:
    """Squared distance of all sums of labels if the labels of these rows are all flipped."""
    sums = [
        sum(int(w[row]) for row in rows if c[row] == cell)
        for w, c in zip(weights, cells, strict=True)
        for cell in range(_NUM_CELLS)
    ]
    return sum(one**2 for one in sums)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_the_parts_of_a_unit_never_add_up_to_more_than_1(
    units: list[int], full_rows: int, seed: int, is_weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(1e-6, 1, len(units)).astype(np.float32) if is_weighted else None
    parts = row_parts(len(units), np.array(units), weights, full_rows=full_rows)
    assert parts.linear is not None
    assert parts.squared is not None
    for allowance in (0, 1, 12345, 1 << 32, (1 << 60) // 7, 1 << 60):
        limits, public = parts.limits(allowance), parts.public_limits(allowance)
        for unit in set(units):
            own = np.flatnonzero(np.array(units) == unit)
            assert sum(int(parts.linear[row]) for row in own) <= _WHOLE
            assert sum(int(parts.squared[row]) for row in own) <= _WHOLE
            assert sum(math.isqrt(int(limits[row])) for row in own) ** 2 <= allowance
            assert all(math.isqrt(int(limits[row])) ** 2 == limits[row] for row in own)
            assert sum(int(public[row]) for row in own) <= allowance


def test_a_row_that_is_a_unit_has_the_whole_share() -> None:
    alone = row_parts(3)
    assert alone.limits(1000).tolist() == alone.public_limits(1000).tolist() == [1000] * 3
    assert alone.costs(np.array([0, 0, 1]), 2) is None
    assert (alone.total, alone.mean, alone.unevenness) == (3.0, 1.0, 1.0)
    # The same, where units are named and each has one row.
    named = row_parts(3, np.array([7, -2, 5]))
    assert named.limits(10**6).tolist() == [10**6] * 3
    assert named.public_limits(10**6).tolist() == [10**6] * 3


def test_rows_of_a_unit_share_its_weight_and_rows_of_small_units_may_weigh_alike() -> None:
    units = np.array([1, 1, 1, 1, 2])
    assert row_parts(5, units).weights(np.int64(100)).tolist() == [25] * 4 + [100]
    two = row_parts(5, units, full_rows=2)
    assert two.weights(np.int64(100)).tolist() == [25] * 4 + [50]
    assert two.mean == pytest.approx(0.3)
    assert row_parts(5, units, full_rows=4).unevenness == pytest.approx(1.0)
    squares = np.array([0.25, 0.25, 0.25, 0.25, 1.0]) ** 2
    assert row_parts(5, units).unevenness == pytest.approx(squares.mean() / 0.4**2)


def test_costs_are_the_rows_of_the_unit_in_the_same_cell() -> None:
    rng = np.random.default_rng(3)
    units, cells = rng.integers(0, 20, 200), rng.integers(0, 5, 200)
    costs = row_parts(200, units).costs(cells, 5)
    assert costs is not None
    for row in range(200):
        assert costs[row] == ((units == units[row]) & (cells == cells[row])).sum()


@pytest.mark.parametrize("full_rows", [1, 3])
def test_flipped_labels_of_a_unit_move_sums_by_at_most_the_share(full_rows: int) -> None:
    rng, nearest = np.random.default_rng(5), 0.0
    for seed in range(40):
        units = rng.integers(0, 12, 60)
        parts = row_parts(60, units, full_rows=full_rows)
        weights, cells, allowance = spend(parts, units, seed, are_public=True)
        for unit in range(12):
            moved = moved_by_labels(weights, cells, np.flatnonzero(units == unit))
            assert moved <= allowance
            nearest = max(nearest, moved / allowance)
    assert nearest > 0.8  # the bound is no larger than it must be


@pytest.mark.parametrize("fault", ["rows are their own units", "rows of a cell pay once"])
def test_a_unit_that_counts_more_than_once_is_noticed(fault: str) -> None:
    rng, worst = np.random.default_rng(5), 0.0
    for seed in range(20):
        units = rng.integers(0, 12, 60)
        parts = row_parts(60, units)
        if fault == "rows are their own units":
            parts = row_parts(60)
        else:
            parts = RowParts(num_rows=60, linear=parts.linear, squared=parts.squared)
        weights, cells, allowance = spend(parts, units, seed, are_public=True)
        for unit in range(12):
            moved = moved_by_labels(weights, cells, np.flatnonzero(units == unit))
            worst = max(worst, moved / allowance)
    assert worst > 1.2


def replaced_unit_moves(parts: RowParts, units: np.ndarray, seed: int) -> float:
    """Squared distance of sums of residuals and predictions, over twice the share.

    The rows of a unit get other labels, cells and predictions in every table. They go from one cell
    to another together, which is the worst that they can do.
    """
    rng = np.random.default_rng(seed)
    own, allowance = row_shares(parts, share=0.01, are_public=False)
    size, sums = len(units), [np.zeros((_NUM_TABLES, 2, _NUM_CELLS), np.int64) for _ in range(2)]
    is_replaced = units == 0
    priorities = rng.integers(1, 1 << 40, _NUM_TABLES)
    for table, side in itertools.product(range(_NUM_TABLES), range(2)):
        cells = np.where(is_replaced, side * rng.integers(0, 2), 3)
        labels = np.where(is_replaced, side << LABEL_BITS, 0).astype(np.int32)
        likely = rng.choice([-9, -1, 9], size) << LOG_ODDS_BITS
        log_odds = np.where(is_replaced, likely, 0).astype(np.int32)
        wanted = np.full(_NUM_CELLS, priorities[table])
        weights = own.weights(wanted, cells, np.full(size, priorities.sum()))
        weights[~is_replaced] = 0
        sums[side][table] = row_sums(cells, labels, log_odds, weights, _NUM_CELLS)
    moved = (sums[1] - sums[0]).ravel().tolist()
    return sum(one**2 for one in moved) / (2 * allowance)


def test_a_replaced_unit_moves_sums_by_no_more_than_a_replaced_row() -> None:
    rng, nearest = np.random.default_rng(2), 0.0
    for seed in range(300):
        units = rng.integers(0, 3, rng.integers(1, 12))
        moved = replaced_unit_moves(row_parts(len(units), units), units, seed)
        assert moved <= 1.0
        nearest = max(nearest, moved)
    assert nearest > 0.5
    # Planted faults: rows in one cell whose squares add up to 1, and a cap of 3 that is forgotten.
    for wrong in (lambda p: p.squared, lambda p: np.minimum(3 * p.linear, _WHOLE)):
        parts = row_parts(9, np.zeros(9, np.int64))
        faulty = RowParts(num_rows=9, linear=np.asarray(wrong(parts)))
        if faulty.linear is parts.squared:
            faulty = RowParts(num_rows=9, linear=np.sqrt(parts.squared / _WHOLE) * _WHOLE // 1)
        faulty = RowParts(num_rows=9, linear=faulty.linear.astype(np.int64))
        units = np.zeros(9, np.int64)
        assert max(replaced_unit_moves(faulty, units, seed) for seed in range(30)) > 1.5


def test_a_row_that_costs_more_than_its_limit_is_refused() -> None:
    parts = row_parts(2, np.array([1, 1]))
    own, allowance = row_shares(parts, share=0.01, are_public=True)
    half = np.full(2, math.isqrt(allowance // 2))
    costs = parts.costs(np.array([0, 0]), 1)
    assert costs is not None
    with pytest.raises(ConfigError, match="more than its share"):
        own.release(lambda w: w, weights=half, costs=costs)
    with pytest.raises(ConfigError, match="more than its share"):
        own.release(lambda w: w, weights=half // 8, costs=np.array([0, 1]))
    # In different cells they cost less; nothing was charged for what was refused.
    own.release(lambda w: w, weights=half - 1, costs=np.ones(2, np.int64))
    with pytest.raises(ConfigError, match="more than its share"):
        own.release(lambda w: w, weights=half // 8, costs=costs)


def test_a_row_of_weight_0_spends_nothing() -> None:
    for units in (None, np.array([1, 1, 2])):
        parts = row_parts(3, units, np.array([0.0, 1.0, 0.0], np.float32))
        assert parts.limits(10**6).tolist() == [0, 10**6, 0]
        assert parts.public_limits(10**6).tolist() == [0, 10**6, 0]


@pytest.mark.parametrize("weight", [-1.0, 1.5, np.nan])
def test_sample_weights_beyond_1_are_refused(weight: float) -> None:
    with pytest.raises(DataError, match="from 0 to 1"):
        row_parts(2, None, np.array([1.0, weight], np.float32))
