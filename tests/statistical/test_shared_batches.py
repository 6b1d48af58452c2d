"""Batches that several processes draw together have the law of those of one process."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from statistical import faulty_shared_batches as faulty
from statistical.sampler_checks import (
    FALSE_ALARM,
    Table,
    assert_cyclic,
    assert_poisson,
    assert_subsets_follow,
    assert_truncated_poisson,
)
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.runs.records import StopRequest
from tulle.train.steps.processes.batches import RowShard, SharedBatches, own_shard
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together

NUM_ROWS, STEPS = 120, 2500
POISSON = Poisson(num_rows=NUM_ROWS, sampling_prob=0.25, steps=STEPS)
TRUNCATED = TruncatedPoisson(
    num_rows=NUM_ROWS,
    sampling_prob=0.25,
    max_batch_size=32,
    steps=STEPS,
    accept_costly_truncation=True,
)
TINY = TruncatedPoisson(
    num_rows=5, sampling_prob=0.5, max_batch_size=3, steps=4000, accept_costly_truncation=True
)


def own_key(rank: int) -> NoiseSource:
    return SeededNoise(rank + 1)


def right_shard(sampler: Any, rank: int, size: int) -> RowShard:
    return own_shard(sampler, rank=rank, size=size, units=None)


def draw_together(
    sampler: Any,
    size: int,
    *,
    batches: type[SharedBatches] = SharedBatches,
    key: Callable[[int], NoiseSource] = own_key,
    shard_of: Callable[[Any, int, int], RowShard] = right_shard,
    num_rows: int | None = None,
) -> Table:
    """Steps by rows: who was in the batch of all processes together."""

    def draw(processes: ThreadProcesses) -> Table:
        shard = shard_of(sampler, processes.rank, processes.size)
        mine = batches(shard, processes, key(processes.rank), StopRequest())
        table = np.zeros((sampler.steps, num_rows or sampler.num_rows), np.bool_)
        for line in table:
            line[shard.rows[mine.draw().indices]] = True
        return table

    tables = run_together(size, draw)
    return np.logical_or.reduce(tables)


@pytest.mark.parametrize("size", [2, 3])
def test_coins_of_all_processes_are_independent_and_of_the_stated_chance(size: int) -> None:
    assert_poisson(draw_together(POISSON, size), 0.25)


@pytest.mark.parametrize("size", [2, 3])
def test_a_full_batch_is_cut_uniformly_over_all_processes(size: int) -> None:
    assert_truncated_poisson(draw_together(TRUNCATED, size), 0.25, 32)


def test_groups_take_turns_as_in_one_process() -> None:
    sampler = CyclicPoisson(num_rows=NUM_ROWS, sampling_prob=0.1, num_groups=3, steps=3 * STEPS)
    table = draw_together(sampler, 2)
    groups = sampler.groups.groups_of(np.arange(NUM_ROWS))
    assert_cyclic(table, groups, sampler.group_sampling_prob)


def test_users_come_whole_and_independently() -> None:
    users = np.repeat(np.arange(NUM_ROWS), np.arange(NUM_ROWS) % 3 + 1)
    sampler = UserSampling(num_users=NUM_ROWS, sampling_prob=0.25, steps=STEPS, max_rows_per_user=3)

    def shard_of(some: Any, rank: int, size: int) -> RowShard:
        return own_shard(some, rank=rank, size=size, units=users)

    table = draw_together(sampler, 2, shard_of=shard_of, num_rows=users.size)
    is_first = np.append(True, np.diff(users) > 0)
    assert_poisson(table[:, is_first], 0.25)
    assert np.array_equal(table, table[:, is_first][:, users])


def test_every_subset_of_a_few_rows_has_the_chance_of_one_process() -> None:
    tiny = Poisson(num_rows=5, sampling_prob=0.5, steps=2000)
    assert_subsets_follow(draw_together(tiny, 2), 0.5)


@pytest.mark.parametrize("size", [2, 3])
def test_every_subset_of_a_cut_batch_has_the_chance_of_one_process(size: int) -> None:
    assert_cut_subsets(draw_together(TINY, size))


def assert_cut_subsets(table: Table) -> None:
    """All subsets have the chances that `TINY` gives them in one process."""
    rows, most, prob = TINY.num_rows, TINY.max_batch_size, TINY.sampling_prob
    sizes = np.array([code.bit_count() for code in range(2**rows)])
    chances = prob**sizes * (1 - prob) ** (rows - sizes)
    full = stats.binom.sf(most - 1, rows, prob) / math.comb(rows, most)
    chances = np.where(sizes < most, chances, np.where(sizes == most, full, 0.0))
    found = np.bincount(table @ (1 << np.arange(rows)), minlength=2**rows)
    assert not found[chances == 0].any()
    expected = len(table) * chances[chances > 0]
    statistic = float(((found[chances > 0] - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(statistic, expected.size - 1) > FALSE_ALARM


FAULTS: dict[str, Callable[[], None]] = {
    "each cuts its own": lambda: assert_truncated_poisson(
        draw_together(TRUNCATED, 2, batches=faulty.EachCutsItsOwn), 0.25, 32
    ),
    "the leader goes first": lambda: assert_cut_subsets(
        draw_together(TINY, 2, batches=faulty.TheLeaderGoesFirst)
    ),
    "first rows stay": lambda: assert_truncated_poisson(
        draw_together(TRUNCATED, 2, batches=faulty.FirstRowsStay), 0.25, 32
    ),
    "each cuts its own, few rows": lambda: assert_cut_subsets(
        draw_together(TINY, 2, batches=faulty.EachCutsItsOwn)
    ),
    "same key": lambda: assert_poisson(
        draw_together(POISSON, 2, key=faulty.same_key_everywhere), 0.25
    ),
    "row on two processes": lambda: assert_poisson(
        draw_together(POISSON, 2, shard_of=faulty.a_row_on_two_processes), 0.25
    ),
    "row on no process": lambda: assert_poisson(
        draw_together(POISSON, 2, shard_of=faulty.contiguous_but_short), 0.25
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_changes_the_law_is_caught(fault: str) -> None:
    with pytest.raises(AssertionError):
        FAULTS[fault]()
