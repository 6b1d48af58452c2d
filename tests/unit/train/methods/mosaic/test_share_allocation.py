"""Shares go where they gain most, and each row spends its whole share where its cells matter."""

import itertools

import numpy as np
import pytest

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.column_values import public_values
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.row_parts import row_parts
from tulle.train.methods.mosaic.share_allocation import (
    RowRound,
    allocate_shares,
    mixed_weights,
    wishes_of_tables,
)

_RATE, _NOISE, _SHARE = 0.1, 400.0, 0.2
_BITS = NoiseShares(1.0, rng=SeededNoise(0)).weight_bits
_LARGE, _MIDDLE, _TINY = 200_000, 2_000, 3


def table(place: int, counts: list[int], spread: float = 0.3) -> CandidateTable:
    column = public_values(f"column {place}", place, np.array(counts))
    return CandidateTable([column], num_rows=sum(counts), spread=spread, max_cells=1 << 18)


def mixed_tables() -> list[CandidateTable]:
    """Cells of all sizes in both: ids are ranked by frequency, so 1 is the largest."""
    return [table(place, [_LARGE, *[_MIDDLE] * 40, *[_TINY] * 200]) for place in range(2)]


def row_round(
    tables: list[CandidateTable], cells: list[np.ndarray], num_steps: int = 2
) -> RowRound:
    given = [_SHARE / len(tables)] * len(tables)
    wishes = wishes_of_tables(tables, given, noise_variance=_NOISE, rate=_RATE, num_steps=num_steps)
    totals = sum(wishes[one.identity].wanted[own] for one, own in zip(tables, cells, strict=True))
    shares = NoiseShares(1.0, rng=SeededNoise(0)).for_rows(
        _SHARE, row_parts(len(cells[0])).limits, sensitivity=1.0
    )
    return RowRound(wishes, np.asarray(totals), shares, np.sqrt(_SHARE) * 2.0**_BITS)


def weights_of(own: RowRound, one: CandidateTable, cells: np.ndarray) -> np.ndarray:
    """Weights as parts of 1."""
    return own.weights(one, cells) / 2**_BITS


def drawn_cells(tables: list[CandidateTable], num_rows: int = 20_000) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        rng.choice(one.num_cells, num_rows, p=one.cells.rows / one.cells.rows.sum())
        for one in tables
    ]


def test_every_row_spends_its_whole_share() -> None:
    tables = mixed_tables()
    cells = drawn_cells(tables)
    own = row_round(tables, cells)
    spent = sum(own.weights(one, rows) ** 2 for one, rows in zip(tables, cells, strict=True))
    share = _SHARE * 4.0**_BITS
    assert (spent <= share).all()
    assert np.allclose(spent, share, rtol=1e-6)


def test_rows_spend_where_their_cell_is_neither_huge_nor_tiny() -> None:
    tables = mixed_tables()
    large, middle, tiny = 1, 2, 200
    cells = [np.array([large, tiny, middle]), np.array([middle, middle, middle])]
    own = row_round(tables, cells)
    first, second = (own.weights(one, rows) ** 2 for one, rows in zip(tables, cells, strict=True))
    assert first[0] < 0.2 * second[0]
    assert first[1] < 0.2 * second[1]
    assert first[2] == pytest.approx(second[2])


def test_it_gains_more_than_spending_alike() -> None:
    """Gains of the sums as they are: with the mean weight of the rows of each cell."""
    tables = mixed_tables()
    cells = drawn_cells(tables, 283_000)
    own = row_round(tables, cells)

    def gain(place: int, weights: np.ndarray) -> float:
        one, rows = tables[place], cells[place]
        counts = np.maximum(np.bincount(rows, minlength=one.num_cells), 1)
        means = np.bincount(rows, weights, minlength=one.num_cells) / counts
        return one.cells.gain(_NOISE / np.maximum(means, 1e-9) ** 2, _RATE)

    by_row = sum(gain(place, weights_of(own, tables[place], cells[place])) for place in range(2))
    alike = np.full(len(cells[0]), np.sqrt(_SHARE / 2))
    twice = np.full(len(cells[0]), np.sqrt(_SHARE))
    assert by_row > sum(gain(place, alike) for place in range(2))
    # As if the budget were nearly twice as large.
    assert by_row > 0.98 * sum(gain(place, twice) for place in range(2))


def test_typical_weights_are_about_those_of_rows() -> None:
    """Of cells that matter: where most do not, the guess is rough."""
    tables = mixed_tables()
    cells = drawn_cells(tables, 100_000)
    own = row_round(tables, cells)
    weights, typical = own.weights(tables[0], cells[0]), own.typical_steps(tables[0])
    found = np.sqrt(np.mean(weights[cells[0] == 5] ** 2))
    assert typical[5] == pytest.approx(found, rel=0.3)


def test_tables_that_have_nothing_to_tell_are_paid_alike() -> None:
    tables = [table(place, [100, 100], spread=0.0) for place in range(2)]
    own = row_round(tables, [np.array([1, 2]), np.array([2, 1])])
    weights = weights_of(own, tables[0], np.array([1, 2]))
    assert weights**2 == pytest.approx(_SHARE / 2, rel=1e-6)


def test_without_steps_all_rows_spend_alike() -> None:
    tables = mixed_tables()
    cells = drawn_cells(tables)
    weights = weights_of(row_round(tables, cells, num_steps=0), tables[0], cells[0])
    assert weights**2 == pytest.approx(_SHARE / 2, rel=1e-6)


def named_table(name: str, counts: list[int], spread: float = 0.3) -> CandidateTable:
    column = public_values(name, 0, np.array(counts))
    return CandidateTable([column], num_rows=sum(counts), spread=spread, max_cells=1 << 18)


def test_shares_add_up_to_what_there_is() -> None:
    tables = [named_table("a", [500] * 10), named_table("b", [50] * 100)]
    shares = allocate_shares(tables, share=0.4, most=0.4, noise_variance=4.0, rate=0.1)
    assert sum(shares) == pytest.approx(0.4)
    assert min(shares) > 0


def test_the_split_is_the_best_one() -> None:
    tables = [
        named_table("a", [900] * 10),
        named_table("b", [90] * 100),
        named_table("c", [9] * 1_000),
    ]
    variance, rate, total = 4.0, 0.1, 0.5
    shares = allocate_shares(tables, share=total, most=1.0, noise_variance=variance, rate=rate)

    def gain(parts: tuple[float, ...]) -> float:
        return sum(
            one.expected_gain(variance / part, rate)
            for one, part in zip(tables, parts, strict=True)
            if part > 0
        )

    found = gain(tuple(shares))
    for i, j in itertools.product(range(1, 50), repeat=2):
        rest = 50 - i - j
        if rest >= 0:
            other = tuple(total * number / 50 for number in (i, j, rest))
            assert gain(other) <= found * (1 + 1e-6)


def test_no_table_gets_more_than_the_most() -> None:
    tables = [named_table("a", [10] * 5_000)]
    shares = allocate_shares(tables, share=1.0, most=0.03, noise_variance=4.0, rate=0.1)
    assert 0 < shares[0] <= 0.03


def test_a_table_that_has_shown_that_it_has_nothing_gets_nothing() -> None:
    empty, good = named_table("a", [500] * 10), named_table("b", [500] * 10)
    empty.note_spread(0.3, 1e9, 0.1)
    empty.note_again(0.0, 4.0, 0.1)
    shares = allocate_shares([empty, good], share=1.0, most=1.0, noise_variance=4.0, rate=0.1)
    assert shares[0] == 0
    assert shares[1] > 0


def test_mixed_weights_are_the_sum_that_counts_rounds_by_their_factors() -> None:
    cells = np.array([0, 1, 1])
    first, second = np.array([1 << 20, 1 << 20, 7]), np.array([1 << 10, 1 << 24, 9])
    factors = np.array([1.0, 0.25]), np.array([0.5, 1.0])
    mixed = mixed_weights(cells, zip(factors, (first, second), strict=True))
    assert mixed.tolist() == [(1 << 20) + (1 << 9), (1 << 18) + (1 << 24), 10]
    assert mixed_weights(cells, [(np.ones(2), first)]).tolist() == first.tolist()
