"""Ways to share out a batch that are wrong on purpose. The checks must catch each one."""

from typing import Any

import numpy as np

from tulle.data.samplers.batch import IntArray
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.steps.processes.batches import RowShard, SharedBatches, own_shard


class EachCutsItsOwn(SharedBatches):
    """Every process has room for its share of the batch, full or not elsewhere."""

    def _truncated(self, came: IntArray, counts: list[int]) -> IntArray:
        limit = (self._shard.max_batch_size or 0) // len(counts)
        if came.size <= limit:
            return came
        return came[self._stream.subset(came.size, limit)]


class TheLeaderGoesFirst(SharedBatches):
    """What does not fit is taken from the last process."""

    def _truncated(self, came: IntArray, counts: list[int]) -> IntArray:
        before = sum(counts[: self._processes.rank])
        room = max(0, (self._shard.max_batch_size or 0) - before)
        return came if came.size <= room else came[self._stream.subset(came.size, room)]


class FirstRowsStay(SharedBatches):
    """Each process keeps as many as it should, but always its first rows."""

    def _truncated(self, came: IntArray, counts: list[int]) -> IntArray:
        return came[: super()._truncated(came, counts).size]


def same_key_everywhere(_rank: int) -> NoiseSource:
    """All processes toss the same coins, each for its own rows."""
    return SeededNoise(1)


def a_row_on_two_processes(sampler: Any, rank: int, size: int) -> RowShard:
    """The second process also tosses a coin for the first row."""
    shard = own_shard(sampler, rank=rank, size=size, units=None)
    if rank == 1:
        shard.rows[0] = 0  # type: ignore[index]
    return shard


def contiguous_but_short(sampler: Any, rank: int, size: int) -> RowShard:
    """The last row is nobody's."""
    shard = own_shard(sampler, rank=rank, size=size, units=None)
    if rank == size - 1:
        shard.rows = np.append(shard.rows[:-1], shard.rows[-2])  # type: ignore[misc]
    return shard
