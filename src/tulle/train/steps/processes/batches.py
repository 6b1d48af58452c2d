"""Which rows each process owns, and how it tosses their coins.

Every row, or every user with all rows, is owned by one process. Coins are independent, so
it does not matter who tosses them: the batch of all processes together has the distribution of the
batch of one, whatever their number.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from tulle.data.samplers.batch import Batch, IntArray, SamplingStream, unpadded_batch
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson, sample_rows
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import (
    UserBatch,
    UserRows,
    UserSampling,
    batch_of_users,
    group_rows,
)
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource
from tulle.runs.records import StopRequest
from tulle.train.steps.processes.processes import LEADER, Processes


def own_shard(
    sampler: object, *, rank: int, size: int, units: NDArray[np.int64] | None
) -> "RowShard":
    """The shard of one process.

    Args:
      sampler: Sampler of the plan, which does not know how many processes there are.
      rank: Number of the process, from 0 on.
      size: Number of processes.
      units: Units of all training rows, for batches of users; None for batches of rows.

    Privacy:
      Unit and event: those of the sampler, for all shards together. Relies on: every rank
      below `size` tosses its own shard with a key of its own, once a step.
    """
    if isinstance(sampler, TruncatedPoisson | Poisson):
        return _PlainShard(sampler, rank, size)
    if isinstance(sampler, CyclicPoisson):
        return _CyclicShard(sampler, rank, size)
    if isinstance(sampler, UserSampling):
        if units is None:
            raise ConfigError("clipped users need data with a unit column.")
        return _UserShard(sampler, rank, size, units)
    raise ConfigError(
        f"batches of {type(sampler).__name__} cannot be drawn by several processes; train with one."
    )


class _PlainShard:
    """Rows rank, rank + size, rank + 2 size and so on."""

    def __init__(self, sampler: TruncatedPoisson | Poisson, rank: int, size: int) -> None:
        self.rows = np.arange(rank, sampler.num_rows, size)
        self.max_batch_size = (
            sampler.max_batch_size if isinstance(sampler, TruncatedPoisson) else None
        )
        self._sampler = sampler

    def toss(self, step: int, rng: NoiseSource) -> IntArray:  # noqa: ARG002
        return _toss(self.rows.size, self._sampler.sampling_prob, rng)

    def batch(self, chosen: IntArray) -> Batch:
        return unpadded_batch(chosen, self._sampler.expected_size)


class _CyclicShard:
    """Runs rank, rank + size, …: each has one row of every group, so all turns are shared out."""

    max_batch_size = None

    def __init__(self, sampler: CyclicPoisson, rank: int, size: int) -> None:
        self._sampler, self._rank, self._size = sampler, rank, size
        self._groups = sampler.groups
        runs = np.arange(rank, self._groups.num_runs, size)
        self._num_runs = runs.size
        rows = (runs[:, None] * sampler.num_groups + np.arange(sampler.num_groups)).reshape(-1)
        self.rows = rows[rows < sampler.num_rows]

    def toss(self, step: int, rng: NoiseSource) -> IntArray:
        sampler = self._sampler
        own_runs = _toss(self._num_runs, sampler.group_sampling_prob, rng)
        runs = own_runs * self._size + self._rank
        rows = self._groups.rows_of(step % sampler.num_groups, runs)
        own = (rows // sampler.num_groups - self._rank) // self._size
        return own * sampler.num_groups + rows % sampler.num_groups

    def batch(self, chosen: IntArray) -> Batch:
        return unpadded_batch(chosen, self._sampler.expected_size)


class _UserShard:
    """Users rank, rank + size, … in the order of their ids, each with all rows."""

    max_batch_size = None

    def __init__(
        self, sampler: UserSampling, rank: int, size: int, units: NDArray[np.int64]
    ) -> None:
        users = group_rows(units)
        _check_users(sampler, users)
        own = np.arange(rank, users.num_users, size)
        chosen = batch_of_users(own, users, sampler.expected_users)
        self.rows = chosen.indices
        lengths = np.bincount(chosen.segments, minlength=own.size)
        self._sampler = sampler
        self._users = UserRows(
            rows=np.arange(self.rows.size), starts=np.append(0, np.cumsum(lengths))
        )

    def toss(self, step: int, rng: NoiseSource) -> IntArray:  # noqa: ARG002
        return _toss(self._users.num_users, self._sampler.sampling_prob, rng)

    def batch(self, chosen: IntArray) -> UserBatch:
        return batch_of_users(chosen, self._users, self._sampler.expected_users)


RowShard = _PlainShard | _CyclicShard | _UserShard
"""The rows of one process, and the draw of those that enter a step.

`rows` are places among all examples, of which other processes have none. `toss` says which of them,
or of its users, come to a step, counted among its own: who comes is secret, since amplification by
sampling relies on it. `batch` makes the batch of those who came.
"""


def _toss(num_places: int, sampling_prob: float, rng: NoiseSource) -> IntArray:
    if num_places == 0:  # More processes than rows.
        return np.zeros(0, np.int64)
    return sample_rows(num_places, sampling_prob, rng=rng)


def _check_users(sampler: UserSampling, users: UserRows) -> None:
    if users.num_users != sampler.num_users:
        raise DataError(
            f"num_users={sampler.num_users} is not the number of users in the data; make the "
            "plan for these data."
        )
    if np.diff(users.starts).max() > sampler.max_rows_per_user:
        raise DataError(
            f"a user has more than max_rows_per_user={sampler.max_rows_per_user} rows; bound "
            "them first with tulle.data.contribution."
        )


class SharedBatches:
    """This process's part of each batch, step after step, drawn by all processes together.

    Each process tosses the coins of its own rows. Where more rows come than fit, the leader
    draws which places of all that came stay free: how many each process keeps is then
    multivariate hypergeometric, and each keeps a uniform subset, as if one process had drawn it.

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
        # All hear of it in the same exchange, so that all stop after the same step.
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
    """Number of rows of a uniform subset that fall to each of several parts.

    Args:
      counts: Number of rows of each part.
      limit: Size of the subset.
      stream: Source of randomness of the sampler.
    """
    places = stream.subset(sum(counts), limit)
    ends = np.cumsum(counts)
    return np.diff(np.searchsorted(places, ends), prepend=0)
