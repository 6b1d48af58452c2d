"""An embedding table whose rows get their noise when they are read, and not before.

Dense DP-SGD adds noise to every row in every step. Nobody sees a row between two reads, and given
all reads so far its unseen noise is Gaussian, with moments that an `AgeTable` knows. Drawing it at
the next read gives all weights that are ever read, and all that are flushed, the joint distribution
of the dense run, up to the rounding of floats. Only weights are read, never momentum, so a row
needs one normal for each coordinate: what is known about its momentum is kept as a mean and a
variance, as in a Kalman filter.

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
from tulle.train.models.tower_model import zeros_like_table
from tulle.train.steps.age_table import AgeTable, RowMoves, row_moves
from tulle.train.steps.compiled_kernels import compiled_kernels

MOMENTUM = "momentum"
"""Name of the momentum in the state of a table."""

# Few enough entries to stay in the cache, and enough to draw noise with many threads.
_PIECE_ON_CPU = 1 << 20
"""Entries of a table that are moved together on a CPU."""
_PIECE_ON_DEVICE = 1 << 24
"""Entries of a table that are moved together on another device."""
_DTYPES = (torch.float32, torch.float64)


class Normals(Protocol):
    """A source of normal noise, such as `TrainingNoise`."""

    def fill(self, values: Tensor, stddev: float) -> None:
        """Overwrites values with stddev * N(0, 1), independent for each entry and each call."""


class LazyRows:
    """One table under SGD with momentum, with the dense run's distribution at a lower cost.

    Rows that nobody reads cost nothing. In each step: `catch_up` the rows of the batch, read their
    weights, `add_gradient` to them, and then end the step of the age table, once for all tables
    that share it.

    Privacy:
      Every row gets the noise of every step of the run, as in the dense step, so unit
      and event are the caller's: noise_stddev = noise_multiplier * clip_norm / expected_size.
      What is private: the weights right after `flush`, and what `release_state` returns.
      What is not: weights before a flush (which rows are stale tells which were read), and
      the inner state after one. Its mean momentum has less noise in it than the momentum of
      the dense run; with a small rate it is almost the raw gradient.
    """

    def __init__(
        self, weights: Tensor, ages: AgeTable, *, noise: Normals, noise_stddev: float
    ) -> None:
        """Starts from rows that are exact at the present step of `ages` and have no momentum.

        Args:
          weights: [rows, dim]: the weights of the table, changed in place.
          ages: The clock of steps, and the moments of what rows of each age have missed, on the
            device of the weights.
          noise: Source of the noise.
          noise_stddev: Standard deviation of the noise on each entry of one step's mean gradient.
        """
        _check_table(weights, noise_stddev)
        self._weights, self._ages = weights, ages
        self._noise, self._stddev = noise, noise_stddev
        # Mean of (momentum coefficient * momentum), given all weights that were read so far.
        self._mean = zeros_like_table(weights)
        # Variance of the same, divided by noise_stddev^2. It does not depend on gradients, so one
        # number does for all entries of a row.
        self._variance = weights.new_zeros(len(weights))
        self._exact_at = torch.full(
            (len(weights),), ages.step, dtype=torch.int32, device=weights.device
        )
        self._step_of_gradients = -1
        self._unwritten: _Unwritten | None = None
        self._kernels = compiled_kernels() if _is_plain(weights) else None
        self._spaces: dict[str, Tensor] = {}

    def catch_up(self, rows: Tensor) -> None:
        """Gives these rows the noise and the moves of all steps that they missed.

        Afterwards their weights may be read in the present step, by training or evaluation.
        Extra reads do not change any distribution.

        Args:
          rows: Distinct rows of the table, int64.
        """
        self._write_means()  # Those of the last catch-up, before rows are gathered.
        rows, ages = self._late(rows)
        if not len(rows):
            return
        means = self._space("mean", len(rows))
        size = self._rows_at_a_time()
        pieces = (torch.split(tensor, size) for tensor in (rows, ages, means))
        for some, their_ages, mean in zip(*pieces, strict=True):
            moves = self._moves(self._variance.index_select(0, some), their_ages)
            self._move(some, moves, mean)
            self._variance.index_copy_(0, some, moves.variance)
        self._exact_at.index_fill_(0, rows, self._ages.step)  # Once, if two parts read a row.
        # The means are written to the table later, together with the gradient of the same rows:
        # one pass over scattered memory instead of two.
        self._unwritten = _Unwritten(rows=rows, means=means, step=self._ages.step)

    def add_gradient(self, rows: Tensor, values: Tensor, scale: float = 1.0) -> None:
        """Takes the gradient of the present step for rows that were caught up in it.

        The weights do not move yet: the step's own move and its own noise come with the
        next catch-up, as those of all later steps do.

        Args:
          rows: Distinct rows, int64.
          values: [rows, dim]: the clipped sum, without noise.
          scale: Factor of the values: 1 / expected batch size.

        Privacy:
          `values` are raw and stay so in memory until the next catch-up or flush.
        """
        if values.shape != (len(rows), self._weights.shape[1]):
            raise ConfigError(
                f"a gradient of {len(rows)} rows has the shape {tuple(values.shape)}; it must be "
                f"{(len(rows), self._weights.shape[1])}."
            )
        waiting = self._unwritten  # Same tensor below: comparing rows would cost what it saves.
        if waiting is not None and waiting.rows is rows and waiting.step == self._ages.step:
            self._write_means(values, scale)
        else:
            self._check_caught_up(rows)
            self._write_means()
            self._mean.index_add_(0, rows, values, alpha=scale)
        self._step_of_gradients = self._ages.step

    def flush(self) -> None:
        """Catches up all rows: the table then has the distribution of the dense run's.

        Privacy:
          The weights may leave the process now. Nothing else may.
        """
        self._write_means()
        size = self._rows_at_a_time()
        for start in range(0, len(self._weights), size):
            some = slice(start, start + size)
            weights, variance = self._weights[some], self._variance[some]
            moves = self._moves(variance, self._ages.step - self._exact_at[some])
            change = self._change(moves, self._mean[some])
            if moves.lost is not None:
                change.addcmul_(weights, moves.lost, value=-1)  # 1 - lost could round to 1.
            weights.add_(change)
            variance.copy_(moves.variance)
        self._exact_at.fill_(self._ages.step)

    def release_state(self) -> dict[str, Tensor]:
        """Flushes, draws the momentum and returns it: the state of the dense optimizer.

        The run goes on from what was drawn, as it would after loading it.

        Returns:
          `momentum`, of the shape of the table, in memory of its own; an empty dict for an
          optimizer without momentum.

        Privacy:
          Weights and momentum together have the distribution of the dense run's, which are
          computed from noisy gradients alone. They may leave the process, and with them a run
          can go on.
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
        # Momentum is known as N(mean, variance * noise_stddev^2). What leaves must be a draw: the
        # mean alone has less noise than the dense run's momentum.
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

        The owner of the weights loads them, before or after. Nothing changes if anything in the
        state is wrong.
        """
        self.check_state(state)
        self._unwritten = None  # Means that wait are of the run that is left behind.
        if self._ages.momentum:
            self._mean.copy_(state[MOMENTUM]).mul_(self._ages.momentum)
        else:
            self._mean.zero_()
        self._variance.zero_()  # What was loaded is a draw: nothing about it is unknown.
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

    def _write_means(self, gradient: Tensor | None = None, scale: float = 1.0) -> None:
        """Writes the means that the last catch-up left, and a gradient of the same rows if given.

        Args:
          gradient: [rows, dim]: clipped sums of these rows; None if there are none.
          scale: Factor of the gradient.
        """
        waiting, self._unwritten = self._unwritten, None
        if waiting is None:
            return
        rows, means = waiting.rows, waiting.means
        if self._kernels is not None and (gradient is None or _is_plain(gradient)):
            self._kernels.write_rows(self._mean, rows, means, gradient, scale)
            return
        if gradient is not None:
            means.add_(gradient, alpha=scale)
        self._mean.index_copy_(0, rows, means)

    def _late(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that are not exact yet, and the number of steps that each has missed.

        Where the parts of a batch share rows, most are exact already.
        """
        ages = self._ages.step - self._exact_at.index_select(0, rows)
        # On a GPU, selecting them would wait for their number. A row of age 0 is left as it is.
        if rows.device.type != "cpu" or bool(ages.all()):
            return rows, ages
        is_late = ages != 0
        return rows[is_late], ages[is_late]

    def _check_caught_up(self, rows: Tensor) -> None:
        # On a GPU the check would wait for the answer. A late row still gets all of its noise
        # there, so privacy does not depend on the check; only its gradient would count from its
        # last read on.
        if rows.device.type != "cpu":
            return
        if not bool((self._exact_at.index_select(0, rows) == self._ages.step).all()):
            raise RunStateError(
                "a gradient came for rows that were not caught up in this step; call "
                "catch_up() before their weights are read."
            )

    def _moves(self, variance: Tensor, ages: Tensor) -> RowMoves:
        moments = self._ages.moments(ages)
        return row_moves(moments, variance, self._stddev, self._weights.dtype)

    def _move(self, rows: Tensor, moves: RowMoves, mean: Tensor) -> None:
        """Moves the weights of rows in place, and writes their new means to `mean`.

        Args:
          rows: Distinct rows of the table.
          moves: Coefficients of the move of each row.
          mean: [rows, dim]: memory that gets the new means.
        """
        if self._kernels is not None:
            normals = self._normals(len(rows))
            coefficients = moves.coefficients
            self._kernels.move_rows(self._weights, self._mean, rows, coefficients, normals, mean)
            return
        torch.index_select(self._mean, 0, rows, out=mean)
        change = self._change(moves, mean)
        if moves.lost is not None:
            change.addcmul_(self._weights.index_select(0, rows), moves.lost, value=-1)
        # Adding a change in place needs no copy of the weights.
        self._weights.index_add_(0, rows, change)

    def _change(self, moves: RowMoves, mean: Tensor) -> Tensor:
        """Moves the mean in place; returns the change of the weights, before decay."""
        # The same normals move weights and mean: what is learnt about the momentum from the new
        # weights is exactly what a Kalman filter would infer from reading them.
        normals = self._normals(len(mean))
        change = self._space("change", len(mean))
        torch.mul(mean, moves.minus_drift, out=change)
        change.addcmul_(normals, moves.weight_noise)
        mean.mul_(moves.memory).addcmul_(normals, moves.mean_noise)
        return change

    def _normals(self, num_rows: int) -> Tensor:
        normals = self._space("normals", num_rows)
        self._noise.fill(normals, 1.0)
        return normals

    def _space(self, name: str, num_rows: int) -> Tensor:
        """Memory for some rows, which is used again in every step: fresh pages are slow."""
        space = self._spaces.get(name)
        if space is None or len(space) < num_rows:
            space = self._weights.new_empty(num_rows, self._weights.shape[1])
            self._spaces[name] = space
        return space[:num_rows]

    def _rows_at_a_time(self) -> int:
        limit = _PIECE_ON_CPU if self._weights.device.type == "cpu" else _PIECE_ON_DEVICE
        return max(1, limit // max(1, self._weights.shape[1]))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Unwritten:
    """Mean momenta that are up to date here and not in the table yet."""

    rows: Tensor
    """Rows of the table that they belong to."""
    means: Tensor
    """[rows, dim]: their mean momenta."""
    step: int
    """Step in which they are up to date."""


def _is_plain(values: Tensor) -> bool:
    """True for a tensor that the compiled kernels take: contiguous float32 on a CPU."""
    is_float = values.dtype == torch.float32
    return values.device.type == "cpu" and is_float and values.is_contiguous()


def _check_table(weights: Tensor, noise_stddev: float) -> None:
    if weights.dim() != 2 or weights.dtype not in _DTYPES or not weights.is_contiguous():
        raise ConfigError(
            f"lazy noise needs a contiguous table [rows, dim] of float32 or float64, not "
            f"{weights.dtype} of shape {tuple(weights.shape)}."
        )
    if check_finite("noise_stddev", noise_stddev) < 0:
        raise ConfigError(f"noise_stddev={noise_stddev} must be >= 0.")
