"""The batch of a step, drawn by all processes together.

Each process tosses the coins of its own rows. Where more rows come than fit, the leader
draws which places of all that came stay free: how many each process keeps is then
multivariate hypergeometric, and each keeps a uniform subset, as if one process had drawn it.
"""

import numpy as np
import torch

from tulle.data.samplers.batch import Batch, IntArray
from tulle.data.samplers.sampling_rng import SamplingStream
from tulle.data.samplers.user_sampling import UserBatch
from tulle.mechanisms.entropy import NoiseSource
from tulle.runs.interruption import StopRequest
from tulle.train.distributed.processes import LEADER, Processes
from tulle.train.distributed.row_shards import RowShard


class SharedBatches:
    """This process's part of each batch, step after step.

    Privacy:
      Unit and event: those of the plan's sampler, for the parts of all processes together.
      Relies on: each process has an `rng` of its own, and every row is in one shard. How many
      rows came is known to the processes of the run, and to nobody else.
    """

    def __init__(
        self, shard: RowShard, processes: Processes, rng: NoiseSource, stop: StopRequest
    ) -> None:
        """Takes the key of its coins from `rng`. Sensitive: never log or save its state.

        Who asks one process to stop asks all: `stop` is set in each of them.
        """
        self._shard, self._processes, self._stop = shard, processes, stop
        self._stream = SamplingStream(rng)
        self._step = 0

    def begin(self, first_step: int) -> None:
        """Batches are of this step of the plan on."""
        self._step = first_step

    def draw(self) -> Batch | UserBatch:
        """The next part. All processes draw theirs at the same time."""
        came = self._shard.toss(self._step, self._stream)
        self._step += 1
        answers = self._processes.gather_numbers([came.size, int(self._stop.requested)])
        if any(asked for _, asked in answers):
            self._stop.requested = True
        return self._shard.batch(self._truncated(came, [count for count, _ in answers]))

    def _truncated(self, came: IntArray, counts: list[int]) -> IntArray:
        limit = self._shard.max_batch_size
        if limit is None or sum(counts) <= limit:
            return came
        kept = torch.zeros(len(counts), dtype=torch.int64)
        if self._processes.rank == LEADER:
            kept.copy_(torch.from_numpy(kept_by_each(counts, limit, self._stream)))
        self._processes.spread(kept)
        return came[self._stream.subset(came.size, int(kept[self._processes.rank]))]


def kept_by_each(counts: list[int], limit: int, stream: SamplingStream) -> IntArray:
    """How many of a uniform subset of `limit` fall to each of some parts of these sizes."""
    places = stream.subset(sum(counts), limit)
    ends = np.cumsum(counts)
    return np.diff(np.searchsorted(places, ends), prepend=0)
