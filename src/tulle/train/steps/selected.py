"""A private step on few table rows: noisy counts decide which, and only these get noise.

This is DP-AdaFEST (Ghazi et al. 2023, arXiv 2311.08357). For each unit, the counts of the table
rows that it reads and its clipped gradient are one vector, and the sum of these vectors gets
Gaussian noise. A step then releases only a part of the noisy sum: which rows have a noisy count
above a threshold, the noisy gradients of these rows, and those of all parameters outside tables.
Noise on the part that is not released need not be drawn.

Every unit adds the same amount to the count of each distinct row that it reads: 1 / sqrt(features),
which is public, or 1 / sqrt(its rows) for a user of more distinct rows than features. Counts are
whole multiples of 2^-30, rounded down for each unit before they are added, so sums are exact and
the norm of a unit's counts is at most 1 exactly. Rows that nobody reads have the count 0, so each
is selected with the probability that a normal exceeds the threshold, independently of all others:
such coins cost what the rows that they select cost, not what the table does. Coins of rows that
are read are thrown away, which leaves the others independent; those rows get normals of their own.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tulle.data.samplers.poisson import sample_rows
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import rounded_up
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import Gradient, RowGradient, SortedReads, TableReads
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.optimizers import Optimizer
from tulle.train.settings.step_noise import IndependentNoise, SelectedRows
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.host import DenseStep
from tulle.train.steps.private_step import BatchUnits, StepRelease, trained_parameters
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise

COUNT_STEPS = 1 << 30
"""Counts are whole numbers of this many steps to 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionNoise:
    """How the noise of a step is split between counts and gradients. All of it is public.

    Of a unit's vector the counts have a norm of at most 1 and the gradient one of at most the
    clip norm. With noise multipliers a and b for these, 1 / a^2 + 1 / b^2 =
    1 / noise_multiplier^2, both parts cost one Gaussian with `noise_multiplier`.
    """

    noise_multiplier: float
    """Noise multiplier of the whole step."""
    selection: SelectedRows

    @property
    def count_stddev(self) -> float:
        """Standard deviation of the noise on each count; rounded up, so that it costs no more."""
        return rounded_up(self.noise_multiplier / math.sqrt(self.selection.selection_share))

    @property
    def gradient_multiplier(self) -> float:
        """Noise on each entry of the gradients, over the clip norm."""
        return rounded_up(self.noise_multiplier / math.sqrt(1 - self.selection.selection_share))

    @property
    def least_count(self) -> float:
        """Rows with a noisy count above this are selected."""
        return self.selection.threshold * self.count_stddev

    @property
    def unread_prob(self) -> float:
        """The probability that a row that nobody reads is selected."""
        return math.erfc(self.selection.threshold / math.sqrt(2)) / 2  # 1 - cdf loses its digits.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowCounts:
    """How much the units of a batch read the rows of one table. Raw: it has no noise yet."""

    table: str
    rows: Tensor
    """int64, distinct, in order. All others have the count 0."""
    counts: Tensor
    """int64, in steps of 1 / COUNT_STEPS."""


def count_rows(
    reads: Sequence[TableReads], weights: Tensor, units: BatchUnits | None
) -> list[RowCounts]:
    """Counts of the rows that a batch reads, over tables that belong together.

    Args:
      reads: Reads of all trained tables.
      weights: [rows]: 1 for a row of the batch, 0 for padding, which adds nothing.
      units: Units of the rows if users are clipped, whose batches are never padded; None if each
        row is a unit.

    Privacy:
      Unit: a row, or a user with `units`. L2 sensitivity of all counts together, in units of
      COUNT_STEPS: 1 if a unit is added or removed; if it is replaced sqrt(2), as counts are
      not negative. What it returns is raw.
    """
    in_order = [read.in_order for read in reads]
    num_features = max(1, sum(read.rows.shape[1] for read in reads))
    if units is None:
        owners = torch.arange(len(weights), device=weights.device)
        is_first = [_first_reads(read, owners) for read in in_order]
        # By the public number of features: a row that is read twice only makes the norm smaller.
        amounts = (weights > 0) * int(_amounts(torch.tensor(num_features)))
    else:
        owners = units.segments
        is_first = [_first_reads(read, owners) for read in in_order]
        num_distinct = torch.zeros(units.num_segments, dtype=torch.int64, device=weights.device)
        for read, first in zip(in_order, is_first, strict=True):
            num_distinct.index_add_(0, owners[read.examples], first.long())
        amounts = _amounts(num_distinct.clamp_(min=num_features))
    return [
        RowCounts(
            table=table.table,
            rows=read.rows,
            counts=_sums_of_rows(read, amounts[owners[read.examples]] * first),
        )
        for table, read, first in zip(reads, in_order, is_first, strict=True)
    ]


class RowSelector:
    """Draws the selected rows of each step.

    Privacy:
      Unit, sensitivity: those of `count_rows`. Event: one Gaussian with noise multiplier
      count_stddev, of which the selected rows are a function.
    """

    def __init__(
        self,
        num_rows: Mapping[str, int],
        split: SelectionNoise,
        noise: TrainingNoise,
        rng: NoiseSource,
    ) -> None:
        """Takes the tables with their public numbers of rows.

        Args:
          num_rows: Number of rows of each table, by name.
          split: Noise and threshold of counts.
          noise: Noise on the counts of rows that are read.
          rng: Source of the coins of all other rows. Sensitive: never log or save its state.
        """
        self._num_rows, self._split = dict(num_rows), split
        self._noise, self._rng = noise, rng

    def select(self, counted: Sequence[RowCounts]) -> dict[str, Tensor]:
        """The selected rows of each table: distinct, in order.

        Args:
          counted: Counts of one batch, of every table.

        Privacy:
          What it returns may be shown, with the cost of the event.
        """
        of_table = {counts.table: counts for counts in counted}
        return {name: self._select_from(of_table[name]) for name in self._num_rows}

    def _select_from(self, counted: RowCounts) -> Tensor:
        chosen = counted.rows[self._is_high(counted.counts)]
        others = self._unread(counted)
        return torch.cat([chosen, others]).sort().values

    def _is_high(self, counts: Tensor) -> Tensor:
        noisy_counts = counts.double().div_(COUNT_STEPS)  # Exact; float32 would round them.
        self._noise.add_to(noisy_counts, self._split.count_stddev)
        return noisy_counts > self._split.least_count

    def _unread(self, counted: RowCounts) -> Tensor:
        """Selected rows among those without a count."""
        num_rows = self._num_rows[counted.table]
        drawn = sample_rows(num_rows, self._split.unread_prob, rng=self._rng)
        rows = torch.from_numpy(drawn).to(counted.rows.device)
        _, is_counted = places_of(rows, counted.rows)
        return rows[~is_counted]


def places_of(rows: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Places of rows among others that are distinct and in order, and whether they are there."""
    if not len(among):
        return torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    places = torch.searchsorted(among, rows).clamp_(max=len(among) - 1)
    return places, among[places] == rows


def _amounts(num_rows: Tensor) -> Tensor:
    """What a unit adds to each of so many rows, in steps, so that its norm is at most 1.

    A step less than COUNT_STEPS makes up for the rounding of root and quotient.
    """
    return torch.floor((COUNT_STEPS - 1) / num_rows.double().sqrt()).long()


def _first_reads(reads: SortedReads, owners: Tensor) -> Tensor:
    """True for each read, in the order of rows, that is the first of its row by its owner."""
    whose = owners[reads.examples]
    is_first = torch.ones_like(whose, dtype=torch.bool)
    # Reads of a row are in the order of the batch, where rows of a unit are side by side.
    is_first[1:] = whose[1:] != whose[:-1]
    is_first[reads.starts] = True
    return is_first


def _sums_of_rows(reads: SortedReads, added: Tensor) -> Tensor:
    running = torch.nn.functional.pad(added.cumsum(0), (1, 0))
    ends = torch.cat([reads.starts[1:], reads.starts.new_full((1,), len(added))])
    return running[ends[: len(reads.starts)]] - running[reads.starts]


class SelectedStep(DenseStep):
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
        super().__init__(model, of_gradients, optimizer, IndependentGradientNoise(noise))
        self._tables = selected_tables(model, settings.towers)
        for name in self._tables:
            del self._sums[name]  # A dense sum would get noise in every row of the table.
        num_rows = {name: len(values) for name, values in self._tables.items()}
        self._selector = RowSelector(num_rows, split, noise, rng)
        self._row_noise = noise
        self._row_sums: dict[str, RowGradient] = {}
        # Tables are settled after every step, too. They are left out, because checking the size of
        # all of their weights that often would take the time that selection saves. Saving the
        # weights checks all of them.
        trained = trained_parameters(model, settings.towers)
        self.settled = [values for name, values in trained.items() if name not in self._tables]
        self.noise_description = (
            f"{noise.description}; rows that nobody reads are selected by exact coins from "
            f"{rng.description}"
        )

    def release(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None = None
    ) -> StepRelease:
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
        released = super().release(batch, weights, units)
        return StepRelease(
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
        for gradient in released:  # Also rows that nobody read: without noise they would show it.
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
