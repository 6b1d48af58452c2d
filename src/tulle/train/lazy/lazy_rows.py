"""An embedding table whose rows get their noise when they are read, and not before.

Dense DP-SGD adds noise to every row in every step. Nobody sees a row between two reads,
and given all reads so far its unseen noise is Gaussian, with moments that an `AgeTable`
knows. Drawing it at the next read gives all weights that are ever read, and all that are
flushed, the joint law of the dense run, up to the rounding of floats. Only weights are
read, so a row needs one normal a coordinate: what is known about its momentum is kept as a
mean and a variance, as a Kalman filter does.

Privacy: between flushes the memory of a table holds raw gradients (in its mean momentum)
and tells which rows were read when. It must not leave the process.
"""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import check_finite
from tulle.train.lazy.age_table import AgeTable

MOMENTUM = "momentum"

# Entries in one go: few enough to stay in the cache, enough to draw noise with many threads.
_PIECE_ON_CPU = 1 << 20
_PIECE_ON_DEVICE = 1 << 24
_SMALLEST = 1e-200
_DTYPES = (torch.float32, torch.float64)


class Normals(Protocol):
    """Where noise comes from: `TrainingNoise`."""

    def add_to(self, values: Tensor, stddev: float) -> None:
        """Adds stddev * N(0, 1) in place, independent for each entry and each call."""


class LazyRows:
    """One table under SGD with momentum, exact in law and cheap in rows that nobody reads.

    In each step: `catch_up` the rows of the batch, read their weights, `add_gradient` to
    them, and then end the step of the age table, once for all tables that share it.

    Privacy:
      Adds the noise of every step of the run to every row, as the dense step does, so unit
      and event are the caller's: noise_stddev = noise_multiplier * clip_norm / expected_size.
      What is private: the weights right after `flush`, and what `release_state` returns.
      What is not: weights before a flush (which rows are stale tells which were read), and
      the inner state after one. Its mean momentum has less noise in it than the momentum of
      the dense run; with a small rate it is almost the raw gradient.
    """

    def __init__(
        self, weights: Tensor, ages: AgeTable, *, noise: Normals, noise_stddev: float
    ) -> None:
        """Rows are exact at the present step of `ages`, and have no momentum yet.

        Args:
          weights: [rows, dim], changed in place.
          ages: The clock and the moments of its ages, on the device of the weights.
          noise: Source of the noise.
          noise_stddev: Of the noise on each entry of one step's mean gradient.
        """
        _check_table(weights, noise_stddev)
        self._weights, self._ages = weights, ages
        self._noise, self._stddev = noise, noise_stddev
        # Mean of momentum times its share that stays, given all weights that were read.
        self._mean = torch.zeros_like(weights)
        # Variance of the same over noise_stddev^2; one number for all entries of a row.
        self._variance = weights.new_zeros(len(weights))
        self._exact_at = torch.full(
            (len(weights),), ages.step, dtype=torch.int32, device=weights.device
        )
        self._step_of_gradients = -1
        self._spaces: dict[str, Tensor] = {}

    def catch_up(self, rows: Tensor) -> None:
        """Gives these rows the noise and the moves of all steps they missed.

        Afterwards their weights may be read in the present step, by training or evaluation.
        Extra reads change the law of nothing.

        Args:
          rows: Distinct rows of the table, int64.
        """
        rows = self._late(rows)
        if not len(rows):
            return
        for some in torch.split(rows, self._rows_at_a_time()):
            mean = self._space("mean", len(some))
            torch.index_select(self._mean, 0, some, out=mean)
            ages = self._ages.step - self._exact_at.index_select(0, some)
            moves = self._moves(self._variance.index_select(0, some), ages)
            change = self._change(moves, mean)
            if moves.lost is not None:
                weights = self._weights.index_select(0, some)
                change.addcmul_(weights, moves.lost, value=-1)
            # Adding a change needs no look at the weights, which a copy would.
            self._weights.index_add_(0, some, change)
            self._mean.index_copy_(0, some, mean)
            self._variance.index_copy_(0, some, moves.variance)
        self._exact_at.index_fill_(0, rows, self._ages.step)

    def add_gradient(self, rows: Tensor, values: Tensor) -> None:
        """Takes the gradient of the present step for rows that were caught up in it.

        The weights do not move yet: the step's own move and its own noise come with the
        next catch-up, as those of all later steps do.

        Args:
          rows: Distinct rows, int64.
          values: [rows, dim]: the clipped sum over the expected size, without noise.

        Privacy:
          `values` are raw and stay so in memory until the next catch-up or flush.
        """
        if values.shape != (len(rows), self._weights.shape[1]):
            raise ConfigError(
                f"a gradient of {len(rows)} rows has the shape {tuple(values.shape)}; it must be "
                f"{(len(rows), self._weights.shape[1])}."
            )
        self._check_caught_up(rows)
        self._mean.index_add_(0, rows, values)
        self._step_of_gradients = self._ages.step

    def flush(self) -> None:
        """Catches up all rows: the table then has the law of the dense run's.

        Privacy:
          The weights may leave the process now. Nothing else may.
        """
        size = self._rows_at_a_time()
        for start in range(0, len(self._weights), size):
            some = slice(start, start + size)
            weights, variance = self._weights[some], self._variance[some]
            moves = self._moves(variance, self._ages.step - self._exact_at[some])
            change = self._change(moves, self._mean[some])
            if moves.lost is not None:
                change.addcmul_(weights, moves.lost, value=-1)
            weights.add_(change)
            variance.copy_(moves.variance)
        self._exact_at.fill_(self._ages.step)

    def release_state(self) -> dict[str, Tensor]:
        """Flushes, draws the momentum and returns it: the state of the dense optimizer.

        The run goes on from what was drawn, as it would after loading it.

        Returns:
          `momentum`, of the shape of the table and not shared; nothing without momentum.

        Privacy:
          Weights and momentum together have the law of the dense run's, which are computed
          from noisy gradients alone. They may leave the process, and with them a run can go on.
        """
        if self._step_of_gradients == self._ages.step:
            raise RunStateError(
                "the state of a table was asked for in the middle of a step, when it holds raw "
                "gradients; end the step of the age table first."
            )
        self.flush()
        if not self._ages.momentum:
            return {}
        size = self._rows_at_a_time()
        for start in range(0, len(self._weights), size):
            some = slice(start, start + size)
            mean, variance = self._mean[some], self._variance[some]
            normals = self._normals(len(mean))
            mean.addcmul_(normals, variance.sqrt().mul_(self._stddev).unsqueeze(1))
        self._variance.zero_()
        momentum = self._mean / self._ages.momentum
        # What is kept is what was written: a resumed run starts from the same numbers.
        torch.mul(momentum, self._ages.momentum, out=self._mean)
        return {MOMENTUM: momentum}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what `release_state` returned, at the present step of the age table.

        The weights are loaded by whoever owns them, before or after. Nothing changes if
        anything in the state is wrong.
        """
        self.check_state(state)
        if self._ages.momentum:
            self._mean.copy_(state[MOMENTUM]).mul_(self._ages.momentum)
        else:
            self._mean.zero_()
        self._variance.zero_()
        self._exact_at.fill_(self._ages.step)
        self._step_of_gradients = -1

    def check_state(self, state: Mapping[str, Tensor]) -> None:
        """Raises `RunStateError` for what `load_state` would refuse."""
        expected = {MOMENTUM} if self._ages.momentum else set()
        if state.keys() != expected:
            raise RunStateError(
                f"the state of a table has the entries {sorted(state)}; it must have "
                f"{sorted(expected)}. Resume with the run's own settings."
            )
        own = self._mean
        for momentum in state.values():
            if momentum.shape != own.shape or momentum.dtype != own.dtype:
                raise RunStateError(
                    f"the momentum of a table is {momentum.dtype} of shape "
                    f"{tuple(momentum.shape)}; the table needs {own.dtype} of shape "
                    f"{tuple(own.shape)}."
                )

    def _late(self, rows: Tensor) -> Tensor:
        """Those that are not exact yet; where parts of a batch share rows, most are."""
        # On a GPU their number would have to be waited for. Age 0 changes nothing there.
        if rows.device.type != "cpu":
            return rows
        return rows[self._exact_at.index_select(0, rows) != self._ages.step]

    def _check_caught_up(self, rows: Tensor) -> None:
        # On a GPU the answer would have to be waited for. A row that is late gets all of its
        # noise there too, but its gradient counts from its last read on.
        if rows.device.type != "cpu":
            return
        if not bool((self._exact_at.index_select(0, rows) == self._ages.step).all()):
            raise RunStateError(
                "a gradient came for rows that were not caught up in this step; call "
                "catch_up() before their weights are read."
            )

    def _moves(self, variance: Tensor, ages: Tensor) -> "_Moves":
        """One step of a Kalman filter that sees the weight, in float64."""
        aged = self._ages.moments(ages)
        variance = variance.double()
        carried = aged.drift * variance
        weight_deviation = aged.weight_variance.addcmul_(aged.drift, carried).sqrt_()
        shared = aged.covariance.addcmul_(aged.memory, carried, value=-1)
        # Where the weight did not move (no step, or rates of 0) it tells nothing: 0 / 0 is 0.
        learned = shared.div_(weight_deviation.clamp(min=_SMALLEST))
        left = aged.momentum_variance.addcmul_(aged.memory.square(), variance)
        left.addcmul_(learned, learned, value=-1).clamp_(min=0)
        return _Moves(
            lost=None if aged.kept is None else self._column(1 - aged.kept),
            minus_drift=self._column(aged.drift.neg_()),
            memory=self._column(aged.memory),
            weight_noise=self._column(weight_deviation.mul_(self._stddev)),
            mean_noise=self._column(learned.mul_(self._stddev)),
            variance=left.to(self._weights.dtype),
        )

    def _change(self, moves: "_Moves", mean: Tensor) -> Tensor:
        """Moves the mean in place; returns the change of the weights, before decay."""
        normals = self._normals(len(mean))
        change = self._space("change", len(mean))
        torch.mul(mean, moves.minus_drift, out=change)
        change.addcmul_(normals, moves.weight_noise)
        mean.mul_(moves.memory).addcmul_(normals, moves.mean_noise)
        return change

    def _normals(self, num_rows: int) -> Tensor:
        normals = self._space("normals", num_rows).zero_()
        self._noise.add_to(normals, 1.0)
        return normals

    def _column(self, values: Tensor) -> Tensor:
        return values.to(self._weights.dtype).unsqueeze(1)

    def _space(self, name: str, num_rows: int) -> Tensor:
        """Memory for some rows, the same every time: fresh pages are slow."""
        space = self._spaces.get(name)
        if space is None or len(space) < num_rows:
            space = self._weights.new_empty(num_rows, self._weights.shape[1])
            self._spaces[name] = space
        return space[:num_rows]

    def _rows_at_a_time(self) -> int:
        limit = _PIECE_ON_CPU if self._weights.device.type == "cpu" else _PIECE_ON_DEVICE
        return max(1, limit // max(1, self._weights.shape[1]))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Moves:
    """What happens to each row; all entries of a row go the same way."""

    lost: Tensor | None
    """Share of the weight that decay takes."""
    minus_drift: Tensor
    memory: Tensor
    weight_noise: Tensor
    mean_noise: Tensor
    variance: Tensor


def _check_table(weights: Tensor, noise_stddev: float) -> None:
    if weights.dim() != 2 or weights.dtype not in _DTYPES or not weights.is_contiguous():
        raise ConfigError(
            f"lazy noise needs a contiguous table [rows, dim] of float32 or float64, not "
            f"{weights.dtype} of shape {tuple(weights.shape)}."
        )
    if check_finite("noise_stddev", noise_stddev) < 0:
        raise ConfigError(f"noise_stddev={noise_stddev} must be >= 0.")
