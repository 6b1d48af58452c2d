"""Parts of a batch. That their law is that of one process is in tests/statistical."""

import numpy as np
import pytest

from tulle.data.samplers.batch import Batch, SamplingStream
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.fixed_size import FixedSize
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserBatch, UserSampling
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.records import StopRequest
from tulle.train.steps.processes.batches import RowShard, SharedBatches, kept_by_each, own_shard
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together

NUM_ROWS = 23
USERS = np.array([7, 3, 7, 3, 9, 1, 1, 1, 5, 9, 4, 4, 8, 2, 6, 6, 6, 0, 10, 11, 12, 12, 13])
SAMPLERS = {
    "poisson": Poisson(num_rows=NUM_ROWS, sampling_prob=0.3, steps=10),
    "truncated": TruncatedPoisson(
        num_rows=NUM_ROWS,
        sampling_prob=0.3,
        max_batch_size=8,
        steps=10,
        accept_costly_truncation=True,
    ),
    "cyclic": CyclicPoisson(num_rows=NUM_ROWS, sampling_prob=0.1, num_groups=4, steps=10),
    "users": UserSampling(num_users=14, sampling_prob=0.3, steps=10, max_rows_per_user=3),
}


def shards(name: str, size: int) -> list[RowShard]:
    return [own_shard(SAMPLERS[name], rank=rank, size=size, units=USERS) for rank in range(size)]


def stream(seed: int = 0) -> SamplingStream:
    return SamplingStream(SeededNoise(seed))


@pytest.mark.parametrize("size", [1, 2, 3, 40])
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_row_has_one_owner(name: str, size: int) -> None:
    rows = np.concatenate([shard.rows for shard in shards(name, size)])
    assert sorted(rows) == list(range(NUM_ROWS))


@pytest.mark.parametrize("size", [1, 2, 3, 40])
@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_are_rows_of_their_owner(name: str, size: int) -> None:
    for shard in shards(name, size):
        for step in range(8):
            batch = shard.batch(shard.toss(step, stream(step)))
            assert np.isin(batch.indices, np.arange(shard.rows.size)).all()
            assert np.unique(batch.indices).size == batch.indices.size


def test_rows_come_only_in_the_turn_of_their_group() -> None:
    sampler = SAMPLERS["cyclic"]
    assert isinstance(sampler, CyclicPoisson)
    seen = set()
    for shard in shards("cyclic", 3):
        for step in range(200):
            rows = shard.rows[shard.batch(shard.toss(step, stream(step))).indices]
            assert (sampler.groups.groups_of(rows) == step % 4).all()
            seen |= set(rows.tolist())
    assert seen == set(range(NUM_ROWS))


def test_users_are_owned_with_all_their_rows() -> None:
    owners = [set(USERS[shard.rows]) for shard in shards("users", 3)]
    assert sum(len(users) for users in owners) == len(set.union(*owners)) == 14
    shard = shards("users", 3)[1]
    everybody = shard.batch(np.arange(len(owners[1])))
    assert isinstance(everybody, UserBatch)
    assert everybody.indices.size == shard.rows.size
    found = USERS[shard.rows[everybody.indices]]
    for segment in range(everybody.num_segments):
        mine = everybody.segments == segment
        assert np.unique(found[mine]).size == 1
        assert everybody.weights[mine].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["poisson", "truncated", "cyclic"])
def test_sums_are_divided_by_the_size_of_the_whole_batch(name: str) -> None:
    for shard in shards(name, 2):
        batch = shard.batch(shard.toss(0, stream()))
        assert isinstance(batch, Batch)
        assert batch.expected_size == SAMPLERS[name].expected_size


def test_users_are_counted_as_in_the_plan() -> None:
    for sampler, what in (
        (UserSampling(num_users=13, sampling_prob=0.3, steps=1, max_rows_per_user=3), "num_users"),
        (UserSampling(num_users=14, sampling_prob=0.3, steps=1, max_rows_per_user=2), "max_rows"),
    ):
        with pytest.raises(DataError, match=what):
            own_shard(sampler, rank=0, size=2, units=USERS)
    with pytest.raises(ConfigError, match="unit column"):
        own_shard(SAMPLERS["users"], rank=0, size=2, units=None)


def test_batches_that_depend_on_all_rows_at_once_are_refused() -> None:
    sampler = FixedSize(num_rows=10, batch_size=2, steps=1)
    with pytest.raises(ConfigError, match="FixedSize"):
        own_shard(sampler, rank=0, size=2, units=None)


SAMPLER = TruncatedPoisson(
    num_rows=50, sampling_prob=0.5, max_batch_size=20, steps=9, accept_costly_truncation=True
)


def batches_of(processes: ThreadProcesses, stop: StopRequest) -> SharedBatches:
    shard = own_shard(SAMPLER, rank=processes.rank, size=processes.size, units=None)
    return SharedBatches(shard, processes, SeededNoise(processes.rank), stop)


def test_all_processes_together_keep_no_more_rows_than_fit() -> None:
    def sizes(processes: ThreadProcesses) -> list[int]:
        batches = batches_of(processes, StopRequest())
        return [batches.draw().indices.size for _ in range(60)]

    totals = np.sum(run_together(3, sizes), axis=0)
    assert totals.max() == 20
    assert totals.min() < 20


@pytest.mark.parametrize("asked", [0, 1])
def test_who_asks_one_process_to_stop_asks_all(asked: int) -> None:
    def stopped(processes: ThreadProcesses) -> tuple[bool, bool]:
        stop = StopRequest()
        batches = batches_of(processes, stop)
        batches.draw()
        before = stop.requested
        stop.requested = processes.rank == asked
        batches.draw()
        return before, stop.requested

    assert run_together(2, stopped) == [(False, True)] * 2


def test_parts_of_a_subset_add_up() -> None:
    stream = SamplingStream(SeededNoise(0))
    for _ in range(50):
        kept = kept_by_each([5, 0, 7, 3], 9, stream)
        assert kept.sum() == 9
        assert (kept <= [5, 0, 7, 3]).all()
        assert (kept >= 0).all()
