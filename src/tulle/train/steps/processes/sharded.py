"""Private steps of several processes on tables that they share out by rows.

Each process has a part of the tables, of their momentum and of their lazy noise: tables that
are too large for one memory fit into several, and each row is caught up by one process.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import Gradient, RowGradient
from tulle.train.models.tower_model import TowerModel, zeros_like_table
from tulle.train.parameter_updates import ParameterUpdates, check_entry
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.lazy_rows import MOMENTUM
from tulle.train.steps.private_step import BatchUnits, StepRelease, trained_parameters
from tulle.train.steps.processes.processes import LEADER, Processes, spread_all
from tulle.train.steps.processes.shared_steps import SharedStep
from tulle.train.steps.processes.tables import (
    FetchedRows,
    FetchedTables,
    ShardedRows,
    num_own_rows,
    share_out,
)
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise

_NUM_STEPS = "num_steps"


class ShardedStep(SharedStep):
    """Tables get their noise when rows are read, at their owners; SGD with momentum.

    Its state is that of one process, lazy or dense, so a run may go on in any of these ways.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: SGD,
        noise: TrainingNoise,
        processes: Processes,
    ) -> None:
        if not settings.mechanism.can_be_lazy:
            raise ConfigError("lazy noise is independent noise; use that, or another optimizer.")
        self._whole_model = model
        trained = trained_parameters(model, settings.towers)
        self._tables = {name: trained[name] for name in sorted(model.tables & trained.keys())}
        self._dense = {name: trained[name] for name in trained if name not in self._tables}
        self._fetching = FetchedTables(model, frozenset(self._tables))
        super().__init__(self._fetching, settings, IndependentGradientNoise(noise), processes)
        for name in self._tables:
            del self._sums[name]
        self._row_sums: dict[str, Tensor] = {}
        self._sgd, self._row_noise = optimizer, noise
        self.noise_description = noise.description
        if self._leads:
            self._optimizer = ParameterUpdates(self._dense, optimizer)
        self._momentum: dict[str, Tensor] = {}
        self._num_steps = 0
        self._num_rows = {name: len(values) for name, values in self._tables.items()}
        self.settled = list(self._dense.values())
        if not self._leads:
            for values in self._tables.values():
                # Nobody reads the whole table here; its memory is what sharing out saves.
                values.set_(values.new_empty(0, values.shape[1]))  # type: ignore[call-overload]

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, at the leader. Nothing changes if anything in it is wrong."""
        own = {f"{MOMENTUM}.{name}": name for name in self._tables} if self._sgd.momentum else {}
        for key, name in own.items():
            check_entry(key, state.get(key), self._tables[name])
        if self._optimizer is not None:
            self._optimizer.load_state({key: state[key] for key in state if key not in own})
        self._momentum = {name: state[key] for key, name in own.items()}
        self._num_steps = int(state[_NUM_STEPS])

    def share(self) -> None:
        """The leader's weights and momentum come to all, of tables to the owners of rows."""
        head = torch.tensor([self._num_steps, int(bool(self._momentum))])
        self._processes.spread(head)
        self._num_steps, has_momentum = head.tolist()
        parameters = self._whole_model.parameters
        everywhere = [parameters[name] for name in parameters if name not in self._tables]
        spread_all(everywhere, self._processes)
        self._begin()
        for name, table in self._tables.items():
            own = self._own[name]
            share_out(table if self._leads else None, own, self._processes)
            if has_momentum:
                momentum = torch.empty_like(own)
                share_out(self._momentum.get(name), momentum, self._processes)
                self._rows[name].load_momentum(momentum)
        self._momentum = {}

    def _update(self, gradients: list[Gradient], rate: float) -> None:
        super()._update(gradients, rate)
        self._ages.end_step(rate)
        self._num_steps += 1

    def state(self) -> dict[str, Tensor]:
        """The state of one process, at the leader, with all weights of the model in place."""
        state = {} if self._optimizer is None else self._optimizer.state()
        for name, rows in self._rows.items():
            momentum = rows.collect(self._tables[name] if self._leads else None)
            if momentum is not None:
                state[f"{MOMENTUM}.{name}"] = momentum
        self._ages.forget_past()
        return state

    def release(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None = None
    ) -> StepRelease:
        """Releases the noisy gradient of one batch; all processes must call it together.

        Args:
          batch: Rows of this process and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: Units of the rows if users are clipped; None if each row is a unit.

        Privacy:
          The same as for `PrivateStep.release`, for the batch of all processes together.
        """
        fetched = self._fetch(batch)
        self._fetching.hold(fetched)
        self._row_sums = {name: torch.zeros_like(rows.values) for name, rows in fetched.items()}
        released = super().release(batch, weights, units)
        for name, table in self._rows.items():
            # In the order of names, which all processes share: exchanges are matched by their order
            # alone.
            table.give_back(self._row_sums[name], self._settings.expected_size)
        self._row_sums = {}
        self._fetching.hold({})
        return released

    @property
    def _leads(self) -> bool:
        return self._processes.rank == LEADER

    def _begin(self) -> None:
        device = next(iter(self._whole_model.parameters.values())).device
        self._ages = AgeTable(
            momentum=self._sgd.momentum,
            weight_decay=self._sgd.weight_decay,
            step=self._num_steps,
            device=device,
        )
        # The owner of a row is the only one that adds its noise, so that it adds all of it.
        stddev = self._settings.noise_stddev / self._settings.expected_size
        self._own = {
            name: zeros_like_table(
                values.new_empty(
                    num_own_rows(self._num_rows[name], self._processes), values.shape[1]
                )
            )
            for name, values in self._tables.items()
        }
        self._rows = {
            name: ShardedRows(
                own, self._ages, self._processes, noise=self._row_noise, noise_stddev=stddev
            )
            for name, own in self._own.items()
        }

    def _fetch(self, batch: ExampleBatch) -> dict[str, FetchedRows]:
        """What the whole batch reads. Parts of it would not come in equal numbers."""
        if not self._rows:
            return {}
        reads = self._whole_model.reads(batch.public_ids, batch.sensitive_ids)
        nothing = torch.zeros(0, dtype=torch.int64, device=batch.public_ids.device)
        rows = dict.fromkeys(self._rows, nothing)
        rows |= {
            read.table: read.in_order.rows for read in reads.tables if read.table in self._rows
        }
        leaving = {name: table.leaving(rows[name]) for name, table in self._rows.items()}
        # One message for all tables: how many rows this process wants of each.
        wanted = self._processes.gather_numbers(
            [count for name in self._rows for count in leaving[name]]
        )
        size, rank = self._processes.size, self._processes.rank
        fetched = {}
        for number, (name, table) in enumerate(self._rows.items()):
            arriving = [counts[number * size + rank] for counts in wanted]
            values = table.fetch(rows[name], leaving[name], arriving)
            fetched[name] = FetchedRows(rows=rows[name], values=values)
        return fetched

    def _accumulate(self, gradient: Gradient) -> None:
        sums = self._row_sums.get(gradient.name)
        if sums is None or not isinstance(gradient, RowGradient):
            super()._accumulate(gradient)
            return
        sums.index_add_(0, gradient.rows, gradient.values)
