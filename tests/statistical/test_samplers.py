"""Batches have the law that their event is accounted for."""

import numpy as np
import pytest

from statistical.sampler_checks import (
    assert_cyclic,
    assert_fixed_size,
    assert_poisson,
    assert_subsets_follow,
    assert_truncated_poisson,
    inclusion_table,
)
from tulle.data.samplers.batch import SamplingStream
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.fixed_size import FixedSize
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson, truncate
from tulle.data.samplers.user_sampling import UserSampling, group_rows
from tulle.mechanisms.entropy import SeededNoise

NUM_ROWS, STEPS = 300, 3000


@pytest.mark.parametrize("sampling_prob", [0.1, 0.5, 0.9])
def test_poisson_batches_are_independent_coins_of_the_stated_chance(sampling_prob: float) -> None:
    sampler = Poisson(num_rows=NUM_ROWS, sampling_prob=sampling_prob, steps=STEPS)
    assert_poisson(inclusion_table(sampler.batches(SeededNoise(1)), NUM_ROWS), sampling_prob)


def test_truncated_batches_with_room_are_poisson_batches() -> None:
    sampler = TruncatedPoisson.with_headroom(num_rows=NUM_ROWS, max_batch_size=80, steps=STEPS)
    table = inclusion_table(sampler.batches(SeededNoise(2)), NUM_ROWS)
    assert_poisson(table, sampler.sampling_prob)


@pytest.mark.parametrize("max_batch_size", [25, 30, 36])
def test_truncated_batches_without_room_are_cut_uniformly(max_batch_size: int) -> None:
    sampler = TruncatedPoisson(
        num_rows=NUM_ROWS,
        sampling_prob=0.1,
        max_batch_size=max_batch_size,
        steps=STEPS,
        accept_costly_truncation=True,
    )
    table = inclusion_table(sampler.batches(SeededNoise(3)), NUM_ROWS)
    assert_truncated_poisson(table, 0.1, max_batch_size)


def test_truncation_keeps_every_subset_equally_often() -> None:
    stream = SamplingStream(SeededNoise(4))
    kept = [truncate(np.arange(5), 2, stream) for _ in range(10_000)]
    counts = np.bincount([int(first * 5 + second) for first, second in kept], minlength=25)
    # Ten subsets of 1000 expected each; 7 deviations are 3e-12.
    assert np.count_nonzero(counts) == 10
    assert np.abs(counts[counts > 0] - 1000).max() < 7 * np.sqrt(10_000 * 0.1 * 0.9)


def test_cyclic_batches_are_poisson_batches_of_the_group_whose_turn_it_is() -> None:
    sampler = CyclicPoisson(num_rows=600, sampling_prob=0.05, num_groups=3, steps=6000)
    table = inclusion_table(sampler.batches(SeededNoise(5)), 600)
    assert_cyclic(table, sampler.groups.groups_of(np.arange(600)), sampler.group_sampling_prob)


def test_fixed_size_batches_are_uniform_and_drawn_anew() -> None:
    sampler = FixedSize(num_rows=NUM_ROWS, batch_size=30, steps=STEPS)
    assert_fixed_size(inclusion_table(sampler.batches(SeededNoise(6)), NUM_ROWS), 30)


def test_users_are_independent_coins_of_the_stated_chance() -> None:
    sampler = UserSampling(num_users=300, sampling_prob=0.1, steps=STEPS, max_rows_per_user=3)
    unit_ids = np.repeat(np.arange(300), np.arange(300) % 3 + 1)
    batches = sampler.batches(SeededNoise(7), user_rows=group_rows(unit_ids))
    table = inclusion_table(batches, unit_ids.size)
    is_first = np.append(True, np.diff(unit_ids) > 0)
    assert_poisson(table[:, is_first], 0.1)
    assert np.array_equal(table, table[:, is_first][:, unit_ids])


@pytest.mark.parametrize("sampling_prob", [0.3, 0.6])
def test_every_subset_of_a_few_rows_has_its_chance(sampling_prob: float) -> None:
    sampler = Poisson(num_rows=4, sampling_prob=sampling_prob, steps=10_000)
    table = inclusion_table(sampler.batches(SeededNoise(8)), 4)
    assert_subsets_follow(table, sampling_prob)


def test_large_data_give_the_stated_size_and_spread_over_all_rows() -> None:
    num_rows, sampling_prob, steps = 36_000_000, 16384 / 36_000_000, 20
    sampler = Poisson(num_rows=num_rows, sampling_prob=sampling_prob, steps=steps)
    rows = np.concatenate([batch.indices for batch in sampler.batches(SeededNoise(9))])
    expected = steps * 16384
    assert abs(rows.size - expected) < 6.5 * np.sqrt(expected)
    counts = np.bincount(rows // 1_000_000, minlength=36)
    assert np.abs(counts - expected / 36).max() < 7 * np.sqrt(expected / 36)
    assert rows.max() > num_rows - 10_000
