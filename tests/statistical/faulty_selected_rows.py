"""Row selection that is wrong on purpose. `test_selected_rows` must catch each one.

Each class takes the place of `SelectedStep`, each function that of `count_rows`. The list
grows with every bug.
"""

import dataclasses
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from tulle.mechanisms.entropy import NoiseSource
from tulle.train.models.contributions import RowGradient, TableReads
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.optimizers import Optimizer
from tulle.train.steps.private_step import BatchUnits
from tulle.train.steps.selected import (
    COUNT_STEPS,
    RowCounts,
    RowSelector,
    SelectedStep,
    SelectionNoise,
    count_rows,
    places_of,
)
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise


class _Selecting(SelectedStep):
    """A step with a selector of its own."""

    selector: type[RowSelector] = RowSelector
    split: type[SelectionNoise] = SelectionNoise

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: Optimizer,
        noise: TrainingNoise,
        rng: NoiseSource,
    ) -> None:
        super().__init__(model, settings, optimizer, noise, rng)
        right = self._selector._split
        split = self.split(noise_multiplier=right.noise_multiplier, selection=right.selection)
        self._selector = self.selector(self._selector._num_rows, split, noise, rng)


class ThresholdOnRawCounts(_Selecting):
    """Compares counts that have no noise yet."""

    class selector(RowSelector):  # noqa: N801
        def _is_high(self, counts: Tensor) -> Tensor:
            return counts.double() / COUNT_STEPS > self._split.least_count


class UnreadRowsAreNeverSelected(_Selecting):
    """A row that is selected was read by somebody, for sure."""

    class selector(RowSelector):  # noqa: N801
        def _unread(self, counted: RowCounts) -> Tensor:
            return counted.rows[:0]


class UnreadRowsAreSelectedTooRarely(_Selecting):
    """Takes the chance of a normal beyond the threshold on both sides, halved once too often."""

    class split(SelectionNoise):  # noqa: N801
        @property
        def unread_prob(self) -> float:
            return super().unread_prob / 2


class ReadRowsGetASecondChance(_Selecting):
    """Coins of rows that are read are not thrown away."""

    class selector(RowSelector):  # noqa: N801
        def _select_from(self, counted: RowCounts) -> Tensor:
            nothing = dataclasses.replace(counted, rows=counted.rows[:0])
            chosen = counted.rows[self._is_high(counted.counts)]
            return torch.cat([chosen, self._unread(nothing)]).unique()


class CountsHaveTheNoiseOfTheWholeStep(_Selecting):
    """Counts as if all of the privacy were theirs."""

    class split(SelectionNoise):  # noqa: N801
        @property
        def count_stddev(self) -> float:
            return self.noise_multiplier


class GradientsHaveTheNoiseOfTheWholeStep(SelectedStep):
    """Gradients as if counts cost nothing."""

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: Optimizer,
        noise: TrainingNoise,
        rng: NoiseSource,
    ) -> None:
        super().__init__(model, settings, optimizer, noise, rng)
        multiplier = settings.noise_multiplier
        self._settings = dataclasses.replace(self._settings, noise_multiplier=multiplier)


class SelectedRowsHaveNoNoise(SelectedStep):
    """Takes the noise of the counts for enough."""

    def _noisy_rows(self) -> list[RowGradient]:
        for gradient in self._row_sums.values():
            gradient.values.div_(self._settings.expected_size)
        return list(self._row_sums.values())


class OnlyReadRowsHaveNoise(SelectedStep):
    """Adds noise where there is a gradient."""

    def _noisy_rows(self) -> list[RowGradient]:
        was_read = {name: sums.values != 0 for name, sums in self._row_sums.items()}
        released = super()._noisy_rows()
        for gradient in released:
            gradient.values.mul_(was_read[gradient.name])
        return released


class NoiseOfTheCountsIsUsedAgain(_Selecting):
    """Gradients of rows that were read get the noise of their counts, in their own scale."""

    class selector(RowSelector):  # noqa: N801
        def _select_from(self, counted: RowCounts) -> Tensor:
            normals = torch.zeros(len(counted.rows), dtype=torch.float64)
            self._noise.add_to(normals, 1.0)
            noisy = counted.counts / COUNT_STEPS + self._split.count_stddev * normals
            chosen = counted.rows[noisy > self._split.least_count]
            self.normals = normals
            self.rows = counted.rows
            return torch.cat([chosen, self._unread(counted)]).sort().values

    def _noisy_rows(self) -> list[RowGradient]:
        raw = {name: sums.values.clone() for name, sums in self._row_sums.items()}
        released = super()._noisy_rows()
        size, stddev = self._settings.expected_size, self._settings.noise_stddev
        for gradient in released:
            places, was_read = places_of(gradient.rows, self._selector.rows)
            again = stddev * self._selector.normals[places[was_read]].float()[:, None]
            gradient.values[was_read] = (raw[gradient.name][was_read] + again) / size
        return released


class RowsOutsideTheSelectionAreKept(SelectedStep):
    """Rows that were read are updated whether they are selected or not."""

    def _select(self, *batch: object) -> dict[str, Tensor]:
        selected = super()._select(*batch)
        reads = self._model.reads(batch[0].public_ids, batch[0].sensitive_ids)
        return {
            read.table: torch.cat([selected[read.table], read.rows.flatten()]).unique()
            for read in reads.tables
            if read.table in selected
        }


def every_read_is_counted(
    reads: Sequence[TableReads], weights: Tensor, units: BatchUnits | None
) -> list[RowCounts]:
    """A row that an example reads twice counts twice."""
    as_features = [
        dataclasses.replace(read, rows=read.rows[:, [place]])
        for read in reads
        for place in range(read.rows.shape[1])
    ]
    return _added_up(count_rows(as_features, weights, units))


def each_table_is_counted_alone(
    reads: Sequence[TableReads], weights: Tensor, units: BatchUnits | None
) -> list[RowCounts]:
    """The counts of each table have a norm of 1."""
    return [counted for read in reads for counted in count_rows([read], weights, units)]


def users_are_counted_as_their_examples(
    reads: Sequence[TableReads], weights: Tensor, units: BatchUnits | None
) -> list[RowCounts]:
    """Each example of a user adds a vector of norm 1."""
    return (
        count_rows(reads, torch.ones_like(weights), None)
        if units
        else count_rows(reads, weights, units)
    )


def padding_is_counted(
    reads: Sequence[TableReads], weights: Tensor, units: BatchUnits | None
) -> list[RowCounts]:
    return count_rows(reads, torch.ones_like(weights), units)


def _added_up(counted: Sequence[RowCounts]) -> list[RowCounts]:
    def add(one: RowCounts, other: RowCounts) -> RowCounts:
        rows, places = torch.cat([one.rows, other.rows]).unique(return_inverse=True)
        counts = torch.zeros_like(rows)
        counts.index_add_(0, places, torch.cat([one.counts, other.counts]))
        return RowCounts(table=one.table, rows=rows, counts=counts)

    names = dict.fromkeys(counts.table for counts in counted)
    return [
        functools.reduce(add, (counts for counts in counted if counts.table == name))
        for name in names
    ]
