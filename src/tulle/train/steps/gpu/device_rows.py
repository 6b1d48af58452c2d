"""The rows of one table on a device, with noise that waits until a row is read.

As lazy_rows.py and age_table.py, in a form that can be recorded once and replayed: the clock is a
number on the device, moments of missed steps lie by the step a row was last exact at and not by
its age, and nothing depends on how many rows are late. Every step adds to each moment terms that
are never negative, so nothing cancels. A row's noise is drawn by its number and the step, so that
it does not depend on the order in which a GPU works.

Privacy: between flushes the memory of a table holds raw gradients (in its mean momentum)
and tells which rows were read when. It must not leave the process.
"""

import math

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.fields import check_count
from tulle.train.settings.optimizers import check_memory, check_weight_decay
from tulle.train.steps.gpu.device_keys import KeyHolder, device_key, fill_normals
from tulle.train.steps.gpu.row_ops import add_rows, catch_up_listed, claim_late_rows, end_step

# The same as in age_table.py, so that both ways forget at the same age: smaller powers of the
# momentum count as 0.
_FORGOTTEN = 1e-18


class DeviceAges:
    """Moments of missed steps; see `AgeTable` for what they mean."""

    def __init__(
        self, *, momentum: float, weight_decay: float, max_steps: int, device: torch.device
    ) -> None:
        """Counts at most `max_steps` between two calls of `reset`."""
        check_memory("momentum", momentum)
        check_weight_decay(weight_decay)
        check_count("max_steps", max_steps)
        self.momentum, self.weight_decay, self.max_steps = momentum, weight_decay, max_steps
        # From this age on, memory is 0 and what depends on it changes no more.
        self.horizon = math.ceil(math.log(_FORGOTTEN) / math.log(momentum)) if momentum else 1
        powers = torch.pow(momentum, torch.arange(self.horizon + 1, dtype=torch.float64))
        powers[self.horizon :] = 0
        squares = powers.square()
        squares[0] = 0
        self.memory = powers.to(device)
        """Share of the momentum that is left, by age."""
        self.momentum_variance = torch.cumsum(squares, 0).to(device)
        """Variance of the momentum, by age."""
        self.decay = torch.full((1,), weight_decay, dtype=torch.float64, device=device)
        """The same on the device: kernels would take a number in single precision."""
        self.now = torch.zeros(1, dtype=torch.int32, device=device)
        zeros = torch.zeros(max_steps + 1, dtype=torch.float64, device=device)
        self.drift, self.weight_variance, self.covariance = zeros, zeros.clone(), zeros.clone()
        self.kept = torch.ones_like(zeros)
        self._num_ended = 0

    def end_step(self, rate: Tensor) -> None:
        """The present step is over; all rows are one step older.

        Args:
          rate: [1]: the learning rate of the step that ends, on the device.
        """
        end_step(self, rate)

    def expect(self, num_steps: int) -> None:
        """Refuses steps that there is no room for; steps themselves cannot be counted here."""
        if self._num_ended + num_steps > self.max_steps:
            raise ConfigError(
                f"{self._num_ended + num_steps} steps without a flush must be <= max_steps="
                f"{self.max_steps}; flush all rows in between."
            )
        self._num_ended += num_steps

    def reset(self) -> None:
        """Back to step 0, where all rows must be exact: right after they were flushed."""
        for values in (self.now, self.drift, self.weight_variance, self.covariance):
            values.zero_()
        self.kept.fill_(1.0)
        self._num_ended = 0


# Rows that a flush lists at once: 48 MiB for the list, however large the table is.
_ROWS_AT_A_TIME = 1 << 22


class DeviceRows(KeyHolder):
    """One table under SGD with momentum; see `LazyRows` for what it draws and what is private."""

    def __init__(
        self,
        weights: Tensor,
        ages: DeviceAges,
        *,
        noise_stddev: float,
        max_reads: int,
        rng: NoiseSource,
    ) -> None:
        """Starts from rows that are exact now and have no momentum.

        Args:
          weights: [rows, dim]: the weights of the table, changed in place.
          ages: The clock, at step 0.
          noise_stddev: Standard deviation of the noise on each entry of one step's mean gradient.
          max_reads: Largest number of reads in one step.
          rng: Source of the keys of the noise.
        """
        device, num_rows = weights.device, len(weights)
        self.weights, self.ages, self.noise_stddev = weights, ages, noise_stddev
        self.mean = torch.zeros_like(weights)
        self.variance = weights.new_zeros(num_rows)
        self.exact_at = torch.zeros(num_rows, dtype=torch.int32, device=device)
        self.owner = torch.full((num_rows,), -1, dtype=torch.int64, device=device)
        space = min(num_rows, max(max_reads, _ROWS_AT_A_TIME))
        self.listed = torch.zeros(space, dtype=torch.int64, device=device)
        self.listed_seen = torch.zeros(space, dtype=torch.int32, device=device)
        self.num_listed = torch.zeros(1, dtype=torch.int32, device=device)
        # Steps, flushes and states count their draws apart: under one key, two draws of the same
        # number would be the same normals.
        self._key, self._flush_key, self._state_key = (device_key(rng, device) for _ in range(3))
        self._num_flushes = torch.zeros(1, dtype=torch.int64, device=device)

    def catch_up(self, reads: Tensor, draw: Tensor) -> None:
        """Gives the rows that are read the noise and the moves of all steps they missed.

        Args:
          reads: [batch, reads]: rows of the table; the same one may come many times.
          draw: [1]: the number of this step, which no other step of the process has.
        """
        claim_late_rows(self, reads, draw=draw)
        catch_up_listed(self, key=self._key, draw=draw)

    def add_gradient(self, grads: Tensor, reads: Tensor, factors: Tensor, scale: Tensor) -> None:
        """Takes the gradients of the present step; weights move with the next catch-up.

        Args:
          grads: [batch, at least reads * dim]: gradients by each value that was read.
          reads: [batch, reads]: rows of the table that were read.
          factors: [batch]: factor that clips the gradient of each row of the batch. A row of
            factor 0 adds nothing, whatever its gradients are.
          scale: [1]: factor of all gradients.

        Privacy:
          Gradients are raw and stay so in memory until then.
        """
        add_rows(self.mean, grads, reads, factors, scale)

    def flush(self) -> None:
        """Catches up all rows. The clock goes back to 0 once all tables are flushed.

        Privacy:
          The weights may leave the process now. Nothing else may.
        """
        for start in range(0, len(self.weights), _ROWS_AT_A_TIME):
            some = self.exact_at[start : start + _ROWS_AT_A_TIME]
            torch.arange(start, start + len(some), out=self.listed[: len(some)])
            self.listed_seen[: len(some)] = some
            self.num_listed.fill_(len(some))
            # One number for all pieces: normals go by the row, and no row is in two pieces.
            catch_up_listed(self, key=self._flush_key, draw=self._num_flushes)
        self._num_flushes += 1
        self.exact_at.zero_()

    def release_momentum(self) -> Tensor | None:
        """Draws the momentum of rows that were flushed: the state of the dense optimizer.

        The run goes on from what was drawn, as it would after loading it.

        Privacy:
          Weights and momentum together have the distribution of the dense run's.
        """
        if not self.ages.momentum:
            return None
        deviations = self.variance.sqrt().mul_(self.noise_stddev)
        for start in range(0, len(self.weights), _ROWS_AT_A_TIME):
            mean = self.mean[start : start + _ROWS_AT_A_TIME]
            noise = torch.empty_like(mean)
            fill_normals(noise, key=self._state_key, draw=self._num_flushes)
            # Normals go by the place within a piece here, so each piece needs a number of its own.
            self._num_flushes += 1
            mean.addcmul_(noise, deviations[start : start + _ROWS_AT_A_TIME].unsqueeze(1))
        self.variance.zero_()
        momentum = self.mean / self.ages.momentum
        # What is kept is what was written: a resumed run starts from the same numbers.
        torch.mul(momentum, self.ages.momentum, out=self.mean)
        return momentum

    def load_momentum(self, momentum: Tensor | None) -> None:
        """Goes on from what `release_momentum` returned, with the clock at 0."""
        if self.ages.momentum == 0:
            self.mean.zero_()
        elif momentum is None or momentum.shape != self.mean.shape:
            raise RunStateError(
                "the momentum of a table is missing or of another shape; resume with the run's "
                "own settings."
            )
        else:
            self.mean.copy_(momentum).mul_(self.ages.momentum)
        self.variance.zero_()
        self.exact_at.zero_()
