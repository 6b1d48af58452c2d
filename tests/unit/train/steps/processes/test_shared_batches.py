"""Parts of a batch. That their law is that of one process is in tests/statistical."""

import numpy as np
import pytest

from tulle.data.samplers.sampling_rng import SamplingStream
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.records import StopRequest
from tulle.train.steps.processes.batches import SharedBatches, kept_by_each, own_shard
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together

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
