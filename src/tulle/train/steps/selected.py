"""A private step on few table rows: noisy counts decide which, and only these get noise.

This is DP-AdaFEST (Ghazi et al. 2023, arXiv 2311.08357). For each unit, the counts of the table
rows that it reads and its clipped gradient are one vector, and the sum of these vectors gets
Gaussian noise. A step then releases only a part of the noisy sum: which rows have a noisy count
above a threshold, the noisy gradients of these rows, and those of all parameters outside tables.
Noise on the part that is not released need not be drawn.
"""

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import Gradient, RowGradient, TableReads
from tulle.train.models.tower_model import TowerModel
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import Optimizer
from tulle.train.settings.step_noise import IndependentNoise, SelectedRows
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.private_step import (
    BatchUnits,
    Monitored,
    PrivateStep,
    StepSettings,
    trained_parameters,
)
from tulle.train.steps.row_selection import RowSelector, SelectionNoise, count_rows, places_of
from tulle.train.steps.training_noise import TrainingNoise


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SelectedRelease:
    """What one step releases, with its noise in it."""

    gradients: list[Gradient]
    """Gradients of each trained parameter; of a table only its selected rows. The next step
    writes over those outside tables."""
    monitored: Monitored | None
    """Noisy mean loss and clipped share; None if they are not monitored."""


class SelectedStep(PrivateStep):
    """Private steps that update selected rows of tables, and all other parameters.

    A row that is not selected keeps its weights and its state. So the time of a step depends on its
    batch and the selected rows alone, also under Adam, RMSprop and Yogi. It is another mechanism
    than dense noise with the same event, not a faster way to the same models.

    Privacy:
      Unit: a row, or a user if batches come with `BatchUnits`. Its vector has counts of norm 1
      and a gradient of norm clip_norm at most. Event: one Gaussian with the settings'
      `noise_multiplier` on a sampled batch. Weights and state are computed from noisy values
      alone, and so is which of them change: both are private after every step. Relies on: the
      batch is a fresh draw of the plan's sampler.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: Optimizer,
        noise: TrainingNoise,
        rng: NoiseSource,
    ) -> None:
        """Splits the noise of `settings` and starts from the present weights.

        Args:
          model: The model, which is trained in place.
          settings: What every step does; its mechanism must be `SelectedRows`.
          optimizer: Settings of any optimizer.
          noise: Source of the noise on counts and gradients.
          rng: Source of the coins that select rows which nobody reads. Sensitive: never log or
            save its state.
        """
        split = _split(settings)
        # Counts and gradients have noise multipliers of their own, which together cost what one
        # Gaussian with that of the settings costs. The monitor is part of the gradient's vector.
        of_gradients = dataclasses.replace(
            settings, noise_multiplier=split.gradient_multiplier, mechanism=IndependentNoise()
        )
        super().__init__(model, of_gradients, IndependentGradientNoise(noise))
        self._tables = selected_tables(model, settings.towers)
        for name in self._tables:
            del self._sums[name]
        num_rows = {name: len(values) for name, values in self._tables.items()}
        self._selector = RowSelector(num_rows, split, noise, rng)
        self._row_noise = noise
        self._row_sums: dict[str, RowGradient] = {}
        trained = trained_parameters(model, settings.towers)
        self._optimizer = ParameterUpdates(trained, optimizer)
        # Tables are settled after every step, too. They are left out, because checking the size of
        # all of their weights that often would take the time that selection saves. Saving the
        # weights checks all of them.
        self.settled = [values for name, values in trained.items() if name not in self._tables]
        self.noise_description = (
            f"{noise.description}; rows that nobody reads are selected by exact coins from "
            f"{rng.description}"
        )

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """Takes one step: count, select, clip, sum, add noise, update.

        Args:
          batch: Rows of the batch and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: Units of the rows if users are clipped; None if each row is a unit.
          rate: Learning rate of the step.
        """
        released = self.release_rows(batch, weights, units)
        self._optimizer.update(released.gradients, rate=rate)
        return released.monitored

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state."""
        return self._optimizer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state."""
        self._optimizer.load_state(state)

    def release_rows(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None = None
    ) -> SelectedRelease:
        """The noisy mean gradient of selected rows and other parameters, and the noisy monitor.

        Args:
          batch: Rows of the batch and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: Units of the rows if users are clipped, whose batches are never padded; None if
            each row is a unit.
        """
        # Rows are selected by noisy counts alone, before gradients are summed. Clipping is over
        # all parameters, selected or not: counts and gradient are one vector of bounded norm,
        # whatever is selected.
        selected = self._select(batch, weights, units)
        self._row_sums = {
            name: RowGradient(
                name=name, rows=rows, values=table.new_zeros(len(rows), table.shape[1])
            )
            for name, table in self._tables.items()
            for rows in [selected[name]]
        }
        released = self.release(batch, weights, units)
        return SelectedRelease(
            gradients=[*released.gradients, *self._noisy_rows()], monitored=released.monitored
        )

    def _select(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None
    ) -> dict[str, Tensor]:
        reads = self._model.reads(batch.public_ids, batch.sensitive_ids)
        of_table = {read.table: read for read in reads.tables}
        # A truncated model does not read its sensitive tables. Their counts are 0, and noise may
        # still select some of their rows.
        nothing = batch.public_ids.new_empty(reads.num_rows, 0)
        trained = [
            of_table.get(name, TableReads(table=name, rows=nothing)) for name in self._tables
        ]
        return self._selector.select(count_rows(trained, weights, units))

    def _accumulate(self, gradient: Gradient) -> None:
        sums = self._row_sums.get(gradient.name)
        if sums is None or not isinstance(gradient, RowGradient):
            super()._accumulate(gradient)
            return
        # What a row that is not selected would add is dropped: it is not part of the release.
        places, is_selected = places_of(gradient.rows, sums.rows)
        sums.values.index_add_(0, places[is_selected], gradient.values[is_selected])

    def _noisy_rows(self) -> list[RowGradient]:
        released = list(self._row_sums.values())
        for gradient in released:
            self._row_noise.add_to(gradient.values, self._settings.noise_stddev)
            gradient.values.div_(self._settings.expected_size)
        self._row_sums = {}
        return released


def selected_tables(model: TowerModel, towers: frozenset[str]) -> dict[str, Tensor]:
    """The tables of these towers, by name."""
    trained = trained_parameters(model, towers)
    tables = {name: trained[name] for name in sorted(model.tables & trained.keys())}
    if not tables:
        raise ConfigError(
            "row selection needs a trained table, and none is; use IndependentNoise(), which "
            "spends nothing on counts."
        )
    return tables


def _split(settings: StepSettings) -> SelectionNoise:
    if not isinstance(settings.mechanism, SelectedRows):
        raise ConfigError(
            f"mechanism={settings.mechanism} selects no rows; it must be SelectedRows()."
        )
    return SelectionNoise(noise_multiplier=settings.noise_multiplier, selection=settings.mechanism)
