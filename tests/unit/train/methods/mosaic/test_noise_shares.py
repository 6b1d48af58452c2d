"""One Gaussian budget, given out in shares."""

import copy
import itertools
import os
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from statistical.noise_checks import assert_gaussian
from tulle.accounting.accountant import privacy_curve
from tulle.audit.profile import audit_profile
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.methods.mosaic.candidate_table import CandidateTable, public_values
from tulle.train.methods.mosaic.noise_shares import (
    NoiseShares,
    RowRound,
    allocate_shares,
    wishes_of_tables,
)


def test_noise_has_the_stated_scale() -> None:
    def draws(rng: NoiseSource, size: int) -> np.ndarray:
        shares = NoiseShares(2.0, rng=rng)
        return shares.release(np.zeros(size), sensitivity=3.0, share=0.25)

    assert_gaussian(draws, stddev=2.0 * 3.0 / 0.5)


def test_all_of_the_budget_is_there_and_no_more() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    shares.release(np.zeros(3), sensitivity=1.0, share=0.75)
    shares.release(np.zeros(3), sensitivity=1.0, share=0.25)
    with pytest.raises(ConfigError, match="left of the noise budget"):
        shares.release(np.zeros(3), sensitivity=1.0, share=1e-12)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_is_a_part(share: float) -> None:
    with pytest.raises(ConfigError, match="share="):
        NoiseShares(1.0, rng=SeededNoise(1)).release(np.zeros(1), sensitivity=1.0, share=share)


def ones(weights: np.ndarray) -> np.ndarray:
    return np.array([weights.sum()])


def test_a_share_of_rows_has_the_noise_of_the_whole_budget_and_weights_that_hold_it() -> None:
    def draws(rng: NoiseSource, size: int) -> np.ndarray:
        rows = NoiseShares(2.0, rng=rng).for_rows(0.25, 3, sensitivity=3.0)
        parts = np.array([1.0, 0.5, 0.0])
        noisy = rows.release(lambda weights: np.full(size, weights.sum()), parts=parts)
        return noisy - (0.5 + np.sqrt(0.125))

    assert_gaussian(draws, stddev=6.0)


def test_no_row_spends_more_than_its_share() -> None:
    rows = NoiseShares(1.0, rng=SeededNoise(1)).for_rows(0.5, 2, sensitivity=1.0)
    rows.release(ones, parts=np.array([1.0, 0.25]))
    rows.release(ones, parts=np.array([0.0, 0.75]))
    with pytest.raises(ConfigError, match="spend more than its share"):
        rows.release(ones, parts=np.array([0.0, 1e-6]))


@pytest.mark.parametrize("part", [-0.1, float("nan"), float("inf"), 1.1])
def test_a_part_of_a_row_is_a_part(part: float) -> None:
    rows = NoiseShares(1.0, rng=SeededNoise(1)).for_rows(0.5, 2, sensitivity=1.0)
    with pytest.raises(ConfigError, match="spend more than its share"):
        rows.release(ones, parts=np.array([0.5, part]))


def test_a_share_of_rows_is_taken_from_the_budget() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    shares.for_rows(0.75, 2, sensitivity=1.0)
    assert shares.left < 0.25
    with pytest.raises(ConfigError, match="left of the noise budget"):
        shares.for_rows(0.25, 2, sensitivity=1.0)
    with pytest.raises(ConfigError, match="share="):
        shares.for_rows(0.0, 2, sensitivity=1.0)


@pytest.mark.parametrize("spread", [copy.copy, copy.deepcopy, pickle.dumps])
def test_shares_can_be_neither_copied_nor_saved(spread: Callable[[object], object]) -> None:
    shares = NoiseShares(1.0, rng=release_rng())
    for guarded in (shares, shares.for_rows(0.5, 2, sensitivity=1.0)):
        with pytest.raises(RunStateError, match="must not be copied or saved"):
            spread(guarded)


def test_printing_shares_says_nothing() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(5))
    assert repr(shares) == "NoiseShares()"
    assert repr(shares.for_rows(0.5, 2, sensitivity=1.0)) == "RowShares()"


def test_a_forked_process_cannot_add_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = NoiseShares(1.0, rng=release_rng())
    rows = shares.for_rows(0.25, 2, sensitivity=1.0)
    left, parent = shares.left, os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    for release in (
        lambda: shares.release(np.zeros(3), sensitivity=1.0, share=0.5),
        lambda: shares.for_rows(0.5, 2, sensitivity=1.0),
        lambda: rows.release(ones, parts=np.array([0.5, 0.5])),
    ):
        with pytest.raises(RunStateError, match="another process"):
            release()
    assert shares.left == left


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, float("inf"), float("nan")])
def test_there_is_always_noise(noise_multiplier: float) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier="):
        NoiseShares(noise_multiplier, rng=SeededNoise(1))


@pytest.mark.parametrize(("noise_factor", "is_violated"), [(1.0, False), (0.5, True)])
def test_shares_that_follow_results_cost_one_gaussian(
    noise_factor: float, is_violated: bool
) -> None:
    """The second share is larger where the first sum is near the decision: adaptive on purpose."""
    claimed = 1.0

    def score(raw: float, shares: NoiseShares) -> float:
        """The log-likelihood ratio of sums around 1 and around 0, over all releases."""
        first = shares.release(np.array([raw]), sensitivity=1.0, share=0.3)[0]
        second_share = 0.7 if abs(first - 0.5) < 1 else 0.1
        total = 0.3 * (first - 0.5)
        second = shares.release(np.array([raw]), sensitivity=1.0, share=second_share)[0]
        total += second_share * (second - 0.5)
        if second_share == 0.1:
            rest = shares.release(np.array([raw]), sensitivity=1.0, share=0.6)[0]
            total += 0.6 * (rest - 0.5)
        return float(total)

    def scores(raw: float, seed: int) -> np.ndarray:
        seeds = range(seed, seed + 20_000)
        return np.array(
            [score(raw, NoiseShares(noise_factor * claimed, rng=SeededNoise(s))) for s in seeds]
        )

    event = Gaussian(noise_multiplier=claimed, replace_factor=1.0)
    claim = privacy_curve(event, Adjacency.REPLACE)
    result = audit_profile(scores(1.0, 0), scores(0.0, 1_000_000), claim)
    assert result.is_violated is is_violated


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
