"""Shares go where they gain most, and never beyond what there is."""

import itertools

import numpy as np
import pytest

from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.column_values import public_values
from tulle.train.methods.mosaic.share_allocation import allocate_shares


def table(name: str, counts: list[int], spread: float = 0.3) -> CandidateTable:
    column = public_values(name, 0, np.array(counts))
    return CandidateTable([column], num_rows=sum(counts), spread=spread, max_cells=1 << 18)


def test_shares_add_up_to_what_there_is() -> None:
    tables = [table("a", [500] * 10), table("b", [50] * 100)]
    shares = allocate_shares(tables, share=0.4, most=0.4, noise_variance=4.0, rate=0.1)
    assert sum(shares) == pytest.approx(0.4)
    assert min(shares) > 0


def test_the_split_is_the_best_one() -> None:
    tables = [table("a", [900] * 10), table("b", [90] * 100), table("c", [9] * 1_000)]
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
    tables = [table("a", [10] * 5_000)]
    shares = allocate_shares(tables, share=1.0, most=0.03, noise_variance=4.0, rate=0.1)
    assert 0 < shares[0] <= 0.03


def test_a_table_that_has_shown_that_it_has_nothing_gets_nothing() -> None:
    empty, good = table("a", [500] * 10), table("b", [500] * 10)
    empty.note_spread(0.3, 1e9, 0.1)
    empty.note_again(0.0, 4.0, 0.1)
    shares = allocate_shares([empty, good], share=1.0, most=1.0, noise_variance=4.0, rate=0.1)
    assert shares[0] == 0
    assert shares[1] > 0
