"""Each row spends its whole share, on the tables where its cell matters."""

import numpy as np
import pytest

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.column_values import public_values
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.share_allocation import RowRound, wishes_of_tables

_RATE, _NOISE, _SHARE = 0.1, 400.0, 0.2
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
    shares = NoiseShares(1.0, rng=SeededNoise(0)).for_rows(_SHARE, len(cells[0]), sensitivity=1.0)
    return RowRound(wishes, np.asarray(totals), shares)


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
    assert np.allclose(spent, _SHARE, rtol=1e-12)


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

    by_row = sum(gain(place, own.weights(tables[place], cells[place])) for place in range(2))
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
    weights, typical = own.weights(tables[0], cells[0]), own.typical_weights(tables[0])
    found = np.sqrt(np.mean(weights[cells[0] == 5] ** 2))
    assert typical[5] == pytest.approx(found, rel=0.3)


def test_tables_that_have_nothing_to_tell_are_paid_alike() -> None:
    tables = [table(place, [100, 100], spread=0.0) for place in range(2)]
    own = row_round(tables, [np.array([1, 2]), np.array([2, 1])])
    assert own.weights(tables[0], np.array([1, 2])) ** 2 == pytest.approx(_SHARE / 2)


def test_without_steps_all_rows_spend_alike() -> None:
    tables = mixed_tables()
    cells = drawn_cells(tables)
    weights = row_round(tables, cells, num_steps=0).weights(tables[0], cells[0])
    assert weights**2 == pytest.approx(_SHARE / 2)
