"""Batches that are drawn on a device have the law that their event is accounted for.

Checked on the twin of the kernel that draws their words, which is equal to it bit by bit.
"""

import dataclasses
import math
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from statistical import faulty_device_steps as faulty
from statistical.sampler_checks import (
    Table,
    assert_poisson,
    assert_subsets_follow,
    assert_truncated_poisson,
    inclusion_table,
)
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.steps.gpu.place import DeviceBatches
from unit.train.steps.gpu.device_steps import CPU

NUM_ROWS, STEPS = 300, 3000
CUT = TruncatedPoisson(
    num_rows=NUM_ROWS,
    sampling_prob=0.1,
    max_batch_size=33,
    steps=STEPS,
    accept_costly_truncation=True,
)
ROOMY = TruncatedPoisson.with_headroom(num_rows=NUM_ROWS, max_batch_size=80, steps=STEPS)


def batches_of(
    sampler: TruncatedPoisson,
    kind: type[DeviceBatches] = DeviceBatches,
    *,
    seed: int = 1,
    at_a_time: int = 30,
) -> Iterator[SimpleNamespace]:
    batches = kind(sampler, rng=SeededNoise(seed), device=CPU)
    for _ in range(sampler.steps // at_a_time):
        rows, weights = batches.draw(at_a_time)
        for own_rows, own_weights in zip(rows.numpy(), weights.numpy(), strict=True):
            yield SimpleNamespace(indices=own_rows, weights=own_weights)


def table_of(
    sampler: TruncatedPoisson, kind: type[DeviceBatches] = DeviceBatches, seed: int = 1
) -> Table:
    return inclusion_table(batches_of(sampler, kind, seed=seed), sampler.num_rows)


@pytest.mark.parametrize("prob", [0.1, 0.2, 0.6])
def test_batches_with_room_are_independent_coins_of_the_stated_chance(prob: float) -> None:
    sampler = TruncatedPoisson(
        num_rows=NUM_ROWS, sampling_prob=prob, max_batch_size=NUM_ROWS, steps=STEPS
    )
    assert_poisson(table_of(sampler), prob)


def test_batches_with_headroom_are_poisson_batches() -> None:
    assert_poisson(table_of(ROOMY, seed=2), ROOMY.sampling_prob)


@pytest.mark.parametrize("max_batch_size", [25, 30, 36])
def test_batches_without_room_are_cut_uniformly(max_batch_size: int) -> None:
    sampler = dataclasses.replace(CUT, max_batch_size=max_batch_size)
    assert_truncated_poisson(table_of(sampler, seed=3), 0.1, max_batch_size)


@pytest.mark.parametrize("prob", [0.3, 0.6])
def test_every_subset_of_a_few_rows_has_its_chance(prob: float) -> None:
    sampler = TruncatedPoisson(num_rows=4, sampling_prob=prob, max_batch_size=4, steps=9000)
    assert_subsets_follow(table_of(sampler, seed=4), prob)


def test_a_full_batch_is_every_subset_equally_often() -> None:
    sampler = TruncatedPoisson(
        num_rows=5,
        sampling_prob=0.9,
        max_batch_size=2,
        steps=9000,
        accept_costly_truncation=True,
    )
    table = table_of(sampler, seed=5)
    full = table[table.sum(1) == 2]
    counts = np.bincount(full @ (1 << np.arange(5)))
    counts = counts[counts > 0]
    # Ten subsets; 7 deviations are 3e-12.
    assert len(counts) == 10
    expected = len(full) / 10
    assert np.abs(counts - expected).max() < 7 * math.sqrt(0.9 * expected)


def test_padding_is_row_0_of_weight_0_and_no_row_comes_twice() -> None:
    for sampler in (CUT, ROOMY):
        for batch in batches_of(sampler):
            is_row = batch.weights == 1
            assert len(batch.indices) == sampler.max_batch_size
            assert not batch.weights[~is_row].any()
            assert not batch.indices[~is_row].any()
            rows = batch.indices[is_row]
            assert len(set(rows.tolist())) == len(rows)
            assert not len(rows) or 0 <= rows.min() <= rows.max() < sampler.num_rows


def test_it_does_not_matter_how_many_batches_are_drawn_at_once() -> None:
    few, lots = (batches_of(CUT, at_a_time=size) for size in (3, 100))
    for _, one, other in zip(range(200), few, lots, strict=False):
        assert np.array_equal(one.indices, other.indices)
        assert np.array_equal(one.weights, other.weights)


def test_other_keys_give_other_batches() -> None:
    one, other = (table_of(CUT, seed=seed) for seed in (6, 7))
    shared = float((one & other).sum())
    expected = one.sum() * other.sum() / one.size
    assert abs(shared - expected) < 7 * math.sqrt(expected)


BATCH_FAULTS = [
    faulty.FixedSizeBatches,
    faulty.LowestRowsStay,
    faulty.TheSameBatchAgain,
    faulty.FivePercentTooOften,
]


@pytest.mark.parametrize("kind", BATCH_FAULTS)
def test_wrong_batches_are_caught(kind: type[DeviceBatches]) -> None:
    with pytest.raises(AssertionError, match="stated law"):
        assert_truncated_poisson(table_of(CUT, kind, seed=8), 0.1, CUT.max_batch_size)


def test_batches_of_all_rows_are_refused() -> None:
    sampler = TruncatedPoisson(num_rows=5, sampling_prob=1.0, max_batch_size=5, steps=1)
    with pytest.raises(ConfigError, match="sampling_prob=1"):
        DeviceBatches(sampler, rng=SeededNoise(1), device=CPU)


def test_large_data_give_the_stated_size_and_spread_over_all_rows() -> None:
    num_rows, steps = 36_000_000, 20
    sampler = TruncatedPoisson.with_headroom(num_rows=num_rows, max_batch_size=16384, steps=steps)
    rows = np.concatenate(
        [b.indices[b.weights > 0] for b in batches_of(sampler, seed=9, at_a_time=5)]
    )
    expected = steps * sampler.expected_size
    assert abs(rows.size - expected) < 6.5 * math.sqrt(expected)
    counts = np.bincount(rows // 1_000_000, minlength=36)
    assert np.abs(counts - expected / 36).max() < 7 * math.sqrt(expected / 36)
    assert rows.max() > num_rows - 10_000


def test_the_last_rows_of_a_batch_that_is_cut_come_as_often_as_the_first() -> None:
    """Far more rows toss heads than fit, and all of them must be drawn."""
    sampler = TruncatedPoisson(
        num_rows=1_000_000,
        sampling_prob=0.01,
        max_batch_size=100,
        steps=100,
        accept_costly_truncation=True,
    )
    rows = np.concatenate([batch.indices for batch in batches_of(sampler, at_a_time=10)])
    assert rows.size == 10_000
    for share in (np.mean(rows >= 990_000), np.mean(rows < 10_000)):
        # 100 rows are expected; 6.5 deviations.
        assert abs(share - 0.01) < 6.5 * math.sqrt(0.01 / 10_000)
