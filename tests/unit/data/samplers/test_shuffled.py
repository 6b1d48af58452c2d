"""Shuffled epochs claim nothing for the shuffle, and public orders hold every row once."""

import math

import numpy as np
import pytest
from scipy import stats

from tulle.accounting.accountant import pld_epsilon
from tulle.data.samplers.batch import Batch
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.shuffled import RowGroups, ShuffledBatches, ShuffledOrder
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import (
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    Repeated,
)
from tulle.privacy.units import Adjacency

NOISE = Gaussian(noise_multiplier=2.0)
SHUFFLED = ShuffledBatches(num_rows=23, batch_size=5, epochs=3)


def rows_of(batch: Batch) -> list[int]:
    return batch.indices[batch.weights > 0].tolist()


def test_every_epoch_holds_every_row_once() -> None:
    batches = list(SHUFFLED.batches(SeededNoise(0)))
    assert len(batches) == SHUFFLED.steps == 15
    for start in (0, 5, 10):
        epoch = batches[start : start + 5]
        assert sorted(row for batch in epoch for row in rows_of(batch)) == list(range(23))


def test_epochs_have_different_orders() -> None:
    batches = [rows_of(batch) for batch in SHUFFLED.batches(SeededNoise(0))]
    assert batches[:5] != batches[5:10] != batches[10:]


def test_a_run_that_goes_on_in_the_middle_of_an_epoch_repeats_no_row() -> None:
    whole = [rows_of(batch) for batch in SHUFFLED.batches(SeededNoise(0))]
    rest = [rows_of(batch) for batch in SHUFFLED.batches(SeededNoise(1), first_step=7)]
    assert rest == whole[7:]


def test_the_last_batch_of_an_epoch_is_padded() -> None:
    last = list(SHUFFLED.batches(SeededNoise(0)))[4]
    assert last.weights.tolist() == [1, 1, 1, 0, 0]
    assert last.indices[3:].tolist() == [0, 0]


def epochs_of(noise: Event) -> Event:
    return Repeated(event=FixedSizeSampled(batch_size=23, num_rows=23, event=noise), count=3)


def test_the_event_is_one_release_an_epoch_without_amplification() -> None:
    assert SHUFFLED.event(NOISE) == epochs_of(NOISE)
    composed = Composed((NOISE, Laplace(noise_multiplier=1.0)))
    assert SHUFFLED.event(composed) == epochs_of(composed)


def test_another_number_of_rows_is_another_order_so_adding_a_row_is_refused() -> None:
    with pytest.raises(UnsupportedEventError, match="FixedSizeSampled under add-remove"):
        pld_epsilon(SHUFFLED.event(NOISE), 1e-6, Adjacency.ADD_OR_REMOVE)


def test_the_cost_is_that_of_all_epochs_at_once_and_far_above_poisson() -> None:
    shuffled = ShuffledBatches(num_rows=10_000, batch_size=100, epochs=4)
    poisson = Poisson(num_rows=10_000, sampling_prob=0.01, steps=shuffled.steps)
    cost, claimed, at_once = (
        pld_epsilon(event, 1e-6, Adjacency.REPLACE)
        for event in (shuffled.event(NOISE), poisson.event(NOISE), Gaussian(noise_multiplier=1.0))
    )
    assert cost == pytest.approx(at_once, rel=1e-6)
    assert cost > 4 * claimed


def test_a_replaced_row_moves_one_sum_an_epoch_whatever_the_order() -> None:
    values = np.linspace(-1, 1, 23)
    for row in range(23):
        others = values.copy()
        others[row] = -others[row] if others[row] else 1.0
        moved = [
            float(batch.weights @ (values - others)[batch.indices]) != 0
            for batch in SHUFFLED.batches(SeededNoise(0))
        ]
        assert [sum(moved[start : start + 5]) for start in (0, 5, 10)] == [1, 1, 1]


def test_several_rows_a_unit_cost_as_if_all_were_in_one_batch() -> None:
    sampler = ShuffledBatches(num_rows=23, batch_size=5, epochs=3, max_rows_per_unit=4)
    assert sampler.event(NOISE) == epochs_of(Gaussian(noise_multiplier=0.5))
    # The squared distance that the accountant sums: no way to spread 4 rows has more.
    ways = [(4,), (3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    assert max(math.fsum(n**2 for n in way) for way in ways) == 4**2
    with pytest.raises(ConfigError, match="must be Gaussian for max_rows_per_unit=4"):
        sampler.event(Laplace(noise_multiplier=1.0))


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 24}, {"batch_size": 0}, {"epochs": 0}, {"order_seed": -1}]
)
def test_settings_without_meaning_are_refused(wrong: dict[str, int]) -> None:
    right = {"num_rows": 23, "batch_size": 5, "epochs": 3}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ShuffledBatches(**right | wrong)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 255, 256, 257, 5000])
def test_an_order_holds_every_row_once(num_rows: int) -> None:
    order = ShuffledOrder(num_rows=num_rows, seed=3, number=1)
    rows = order.rows_at(np.arange(num_rows))
    assert np.array_equal(np.sort(rows), np.arange(num_rows))


def test_orders_differ_by_seed_and_by_number_and_repeat_otherwise() -> None:
    positions = np.arange(1000)
    rows = [
        ShuffledOrder(num_rows=1000, seed=seed, number=number).rows_at(positions).tolist()
        for seed, number in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert rows[0] == rows[3]
    assert rows[0] != rows[1] != rows[2] != rows[0]


def test_an_order_is_the_same_in_every_version() -> None:
    rows = ShuffledOrder(num_rows=10, seed=0, number=0).rows_at(np.arange(10))
    assert rows.tolist() == [7, 4, 2, 6, 9, 3, 5, 0, 1, 8]


def test_neighbours_do_not_stay_together() -> None:
    order = ShuffledOrder(num_rows=1_000_003, seed=0, number=0)
    rows = order.rows_at(np.arange(200_000))
    for lag in (1, 2, 64, 1024):
        correlation = np.corrcoef(rows[:-lag], rows[lag:])[0, 1]
        assert abs(correlation) < 7 / np.sqrt(rows.size)


def test_rows_at_each_place_are_spread_evenly_over_orders() -> None:
    num_places, num_orders = 16, 800
    counts = np.zeros((num_places, 8))
    for seed in range(num_orders):
        order = ShuffledOrder(num_rows=256, seed=seed, number=0)
        counts[np.arange(num_places), order.rows_at(np.arange(num_places)) // 32] += 1
    expected = num_orders / 8
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(statistic, num_places * 7) > 1e-9


@pytest.mark.parametrize(("num_rows", "num_groups"), [(1, 1), (10, 3), (12, 4), (1000, 7)])
def test_groups_hold_every_row_once_and_have_the_same_size(num_rows: int, num_groups: int) -> None:
    groups = RowGroups(num_rows=num_rows, num_groups=num_groups, seed=5)
    members = [groups.rows_of(g, np.arange(groups.num_runs)) for g in range(num_groups)]
    assert np.array_equal(np.sort(np.concatenate(members)), np.arange(num_rows))
    assert max(map(len, members)) - min(map(len, members)) <= 1
    for group, rows in enumerate(members):
        assert (groups.groups_of(rows) == group).all()
        assert (np.diff(rows) > 0).all()


def test_more_rows_at_the_end_leave_the_groups_of_the_others() -> None:
    few, many = (RowGroups(num_rows=n, num_groups=5, seed=2) for n in (83, 84))
    rows = np.arange(83)
    assert np.array_equal(few.groups_of(rows), many.groups_of(rows))


def test_rows_are_spread_evenly_and_without_pattern_over_groups() -> None:
    groups = RowGroups(num_rows=80_000, num_groups=8, seed=0).groups_of(np.arange(80_000))
    turns = groups[::8]  # one row of each run: its group is uniform
    statistic = float(((np.bincount(turns, minlength=8) - 1250) ** 2 / 1250).sum())
    assert stats.chi2.sf(statistic, 7) > 1e-9
    pairs = np.bincount(turns[:-1] * 8 + turns[1:], minlength=64)
    expected = (turns.size - 1) / 64
    assert stats.chi2.sf(float(((pairs - expected) ** 2 / expected).sum()), 63) > 1e-9
