"""The rows of one table on a device, with noise that waits until a row is read.

As lazy/lazy_rows.py, in a form that can be recorded and replayed: nothing depends on how
many rows are late. A row's noise is drawn by its number and the step, so that it does not
depend on the order in which a GPU works.

Privacy: between flushes the memory of a table holds raw gradients (in its mean momentum)
and tells which rows were read when. It must not leave the process.
"""

from typing import Protocol

import torch
from torch import Tensor

from tulle.errors import RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.steps.gpu.device_ages import DeviceAges
from tulle.train.steps.gpu.device_keys import KeyHolder, device_key, fill_normals
from tulle.train.steps.gpu.row_ops import add_rows, catch_up_listed, claim_late_rows

_ROWS_AT_A_TIME = 1 << 22


class RowSums(Protocol):
    """Something that the gradients of a table are added to."""

    def add_gradient(self, grads: Tensor, reads: Tensor, factors: Tensor, scale: Tensor) -> None:
        """Adds scale * factor * gradient to every row that was read.

        Args:
          grads: [batch, at least reads * dim]: gradients by each value that was read.
          reads: [batch, reads]: rows of the table that were read.
          factors: [batch]: factor that clips the gradient of each row of the batch. A row of
            factor 0 adds nothing, whatever its gradients are.
          scale: [1]: factor of all gradients.
        """
        ...


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
          factors: [batch]: factor that clips the gradient of each row of the batch.
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
