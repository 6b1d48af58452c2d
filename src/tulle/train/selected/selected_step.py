"""A private step on few table rows: counts decide which, and only these get noise.

DP-AdaFEST (Ghazi et al. 2023, arXiv 2311.08357). Counts of rows and clipped gradients are
one vector of a unit. With noise on all of it, what a step releases would be the selected
rows, their noisy gradients, and those of all parameters outside tables; noise that nobody
sees is not drawn.
"""

import dataclasses

from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.examples import ExampleBatch
from tulle.train.gradient_noise import IndependentGradientNoise
from tulle.train.gradients import Gradient, RowGradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.monitor import Monitored
from tulle.train.noise import TrainingNoise
from tulle.train.private_step import BatchUnits, PrivateStep, StepSettings, trained_parameters
from tulle.train.selected.row_selection import (
    RowSelector,
    SelectionNoise,
    count_rows,
    places_of,
)
from tulle.train.step_noise import IndependentNoise, SelectedRows
from tulle.train.table_reads import TableReads


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SelectedRelease:
    """What one step gives away, with its noise in it."""

    gradients: list[Gradient]
    """Of each trained parameter; of a table only its selected rows. The next step writes over
    those outside tables."""
    monitored: Monitored | None


class SelectedStep(PrivateStep):
    """Noisy clipped gradients of selected rows, and of all parameters outside tables.

    Privacy:
      Unit: a row, or a user if batches come with `BatchUnits`. Its vector has counts of norm 1
      and a gradient of norm clip_norm at most. Event: one Gaussian with the settings'
      `noise_multiplier` on a sampled batch. Relies on: the batch is a fresh draw of the
      plan's sampler.
    """

    def __init__(
        self, model: TowerModel, settings: StepSettings, noise: TrainingNoise, rng: NoiseSource
    ) -> None:
        """Splits the noise of `settings`, whose mechanism must be `SelectedRows`.

        Args:
          model: Has its gradients taken.
          settings: Of the step as a whole.
          noise: Of counts and gradients.
          rng: Coins of rows that nobody reads. Sensitive: never log or save its state.
        """
        split = _split(settings)
        # Monitor and gradients share one vector, and so one noise multiplier.
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

    def release_rows(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None = None
    ) -> SelectedRelease:
        """The noisy mean gradient of selected rows and other parameters, and the noisy monitor.

        Args:
          batch: Rows of the batch and of its padding. May be empty.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          units: For clipped users; rows are never padded then.
        """
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
        # In the truncated form nobody reads the sensitive tables.
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
