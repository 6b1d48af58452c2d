"""Lazy updates that are wrong on purpose. Comparing trained models must catch each one.

Rows and ages are right here: the faults are in how a step and a checkpoint use them.
"""

from collections.abc import Mapping

from torch import Tensor

from tulle.train.models.contributions import BatchReads, Gradient, RowGradient
from tulle.train.steps.host import LazyStep
from tulle.train.steps.lazy_rows import MOMENTUM, LazyRows
from tulle.train.steps.private_step import PrivateStep


class AddsTheSum(LazyStep):
    """The gradient of a table is not divided by the expected size."""

    def _accumulate(self, gradient: Gradient) -> None:
        if isinstance(gradient, RowGradient) and gradient.name in self._rows:
            self._rows[gradient.name].add_gradient(gradient.rows, gradient.values)
        else:
            PrivateStep._accumulate(self, gradient)


class ReadsStaleRows(LazyStep):
    """Rows are brought up to date after the forward pass."""

    def _prepare(self, reads: BatchReads) -> None:
        pass

    def _accumulate(self, gradient: Gradient) -> None:
        if isinstance(gradient, RowGradient) and gradient.name in self._rows:
            self._rows[gradient.name].catch_up(gradient.rows)
        super()._accumulate(gradient)


class NoiseOfTheSum(LazyStep):
    """Rows get the noise of the sum, where they need that of the mean."""

    def _begin(self, step: int) -> None:
        super()._begin(step)
        stddev = self._settings.noise_stddev
        self._rows = {
            name: LazyRows(values, self._ages, noise=self._row_noise, noise_stddev=stddev)
            for name, values in self._tables.items()
        }


class LeavesRowsBehind(LazyStep):
    """A checkpoint is written without a flush."""

    def state(self) -> dict[str, Tensor]:
        state = self._dense.state()
        for name, rows in self._rows.items():
            state[f"{MOMENTUM}.{name}"] = rows._mean / self._sgd.momentum
        return state


class ForgetsMomentum(LazyStep):
    """A resumed run starts with the momentum of a new one."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        super().load_state(state)
        self._begin(step=int(state["num_steps"]))


class EndsStepsTwice(LazyStep):
    """The clock of the rows runs twice as fast as the run."""

    def take(self, *arguments: object) -> object:  # type: ignore[override]
        monitored = super().take(*arguments)  # type: ignore[arg-type]
        self._ages.end_step(float(arguments[3]))  # type: ignore[arg-type]
        return monitored
