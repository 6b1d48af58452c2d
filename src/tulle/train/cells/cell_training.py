"""Training of a model of cells: table after table, each by noisy sums over all rows."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.train.cells.candidate_table import CandidateTable
from tulle.train.cells.cell_model import CellModel, CellPart, CellTable, cells_of_rows
from tulle.train.cells.cell_settings import CellSettings
from tulle.train.cells.cell_sums import (
    LABEL_SENSITIVITY,
    ROW_SENSITIVITY,
    label_sums,
    row_sums,
)
from tulle.train.cells.column_values import ColumnValues, public_values, sensitive_values
from tulle.train.cells.noise_shares import NoiseShares
from tulle.train.cells.row_columns import RowColumns
from tulle.train.cells.share_allocation import allocate_shares
from tulle.train.cells.shrinkage import NoisyCells, posterior_changes
from tulle.train.cells.table_stages import TableStages
from tulle.train.examples import ExampleSet
from tulle.train.progress import Progress, SpeedMeter
from tulle.train.run_context import RunContext

if TYPE_CHECKING:
    from tulle.train.train_plan import TrainPlan

FloatArray = NDArray[np.float64]

PHASE = "cells"
_RATES = (1e-3, 0.6)
_WHOLE = 1 - 1e-9
"""Of the budget: what rounding may add must not go beyond it."""


def train_on_cells(examples: ExampleSet, plan: "TrainPlan", context: RunContext) -> CellModel:
    """Trains a model of cells as a plan says.

    Args:
      examples: All training rows.
      plan: Of a `CellsConfig`: settings and noise.
      context: Randomness, who watches, and who may ask to stop.

    Privacy:
      Unit, event and guarantee: those of the plan. The model is made of noisy sums alone.
      Every sum has a share of one Gaussian budget. Nothing leaves before the end.
    """
    settings, noise = getattr(plan.config, "cells", None), plan.noise_multiplier
    if not isinstance(settings, CellSettings) or noise is None:
        raise ConfigError(f"plan {plan.plan.name!r} is not of training on cells.")
    shares = NoiseShares(noise, rng=context.rng)
    training = _CellTraining(examples, settings, shares)
    stages = training.stages()
    meter = SpeedMeter()
    for step, stage in enumerate(stages, start=1):
        for table, share in training.allocated(stage, stages[step - 1 :]):
            if context.stop.requested:
                context.interrupt(PHASE, step - 1)
            training.fit_table(table, share)
        context.report(
            Progress(
                phase=PHASE,
                step=step,
                num_steps=len(stages),
                examples_per_second=meter.add(examples.num_rows),
                loss=None,
                epsilon=plan.plan.guarantee.epsilon,
            )
        )
    return training.finished_model()


class _CellTraining:
    """Log odds of the training rows, and the model so far. Sensitive: never log or save it."""

    def __init__(self, examples: ExampleSet, settings: CellSettings, shares: NoiseShares) -> None:
        if examples.labels is None:
            raise DataError("the training rows have no label column; name one in the schema.")
        self._settings, self._shares = settings, shares
        self._labels = examples.labels.astype(np.float64)
        self._columns = RowColumns(examples)
        self._features = examples.features
        self._reads_sensitive = False
        self._weights: dict[tuple[str, ...], tuple[tuple[CellPart, ...], FloatArray]] = {}
        self._tables = TableStages(settings, num_rows=examples.num_rows)
        self._public = self._public_columns()
        self._sensitive: list[ColumnValues] = []
        self._rate = self._first_rate()
        self._bias = math.log(self._rate / (1 - self._rate))
        self._log_odds = np.full(len(self._labels), self._bias)
        self._predictions = np.full(len(self._labels), self._rate)

    def stages(self) -> list[str]:
        """Names of the stages that these features allow."""
        roles = {feature.role for feature in self._features}
        names = ["public_values", "public_pairs"] if "public" in roles else []
        names += ["sensitive_values", "sensitive_pairs"] if "sensitive" in roles else []
        return [*names, "refined"]

    def allocated(self, stage: str, to_come: Sequence[str]) -> list[tuple[CandidateTable, float]]:
        """The tables of a stage with their shares, coarse ones first.

        What earlier stages left over is for those to come, this one included.
        """
        if stage == "sensitive_values":
            self._count_sensitive()
        tables = self._candidates(stage)
        wanted = {name: getattr(self._settings.stages, name) for name in to_come}
        part = wanted[stage] / max(sum(wanted.values()), 1e-12)
        share = part * (self._shares.left - self._reserved) * _WHOLE
        if not tables or share <= 0:
            return []
        given = allocate_shares(
            tables,
            share=share,
            most_untested=self._settings.most_untested_share,
            noise_variance=self._shares.stddev(1.0, self._sensitivity) ** 2,
            rate=self._rate,
        )
        chosen = [(table, some) for table, some in zip(tables, given, strict=True) if some > 0]
        return sorted(chosen, key=lambda pair: pair[0].num_cells)

    def fit_table(self, table: CandidateTable, share: float) -> None:
        """Releases the sums of a table and adds what they say to the model."""
        parts = table.parts
        columns = [self._columns.ids(part.role, part.column) for part in parts]
        cells = cells_of_rows(parts, columns)
        noisy = self._noisy_sums(cells, table.num_cells, share)
        changes = posterior_changes(noisy, least_evidence=self._settings.least_evidence)
        gain = 0.5 * float(np.maximum(noisy.predicted, 0) @ changes.log_odds**2)
        table.note(changes.spread, noisy.residual_stddev**2, self._rate, gain)
        if changes.spread == 0:
            return
        _, weights = self._weights.setdefault(table.names, (parts, np.zeros(table.num_cells)))
        weights += changes.log_odds
        self._log_odds += changes.log_odds[cells]
        self._predictions = _chances(self._log_odds)

    def finished_model(self) -> CellModel:
        """The model, after its overall level was set once more."""
        noisy = self._noisy_sums(
            np.zeros(len(self._labels), np.int64), 1, self._settings.level_share / 2
        )
        predicted = max(float(noisy.predicted[0]), 1.0)
        change = float(noisy.residuals[0]) / (predicted * (1 - self._rate))
        tables = tuple(
            CellTable(parts=parts, weights=weights.astype(np.float32))
            for parts, weights in self._weights.values()
        )
        return CellModel(bias=self._bias + max(-1.0, min(1.0, change)), tables=tables)

    @property
    def _sensitivity(self) -> float:
        return ROW_SENSITIVITY if self._reads_sensitive else LABEL_SENSITIVITY

    def _noisy_sums(self, cells: NDArray[np.int64], num_cells: int, share: float) -> NoisyCells:
        """Sums over cells with noise; predictions have none until a sensitive column is used."""
        stddev = self._shares.stddev(share, self._sensitivity)
        if self._reads_sensitive:
            raw = row_sums(cells, self._labels, self._predictions, num_cells)
            residuals, predicted = self._shares.release(
                raw, sensitivity=self._sensitivity, share=share
            )
        else:
            raw, predicted = label_sums(cells, self._labels, self._predictions, num_cells)
            residuals = self._shares.release(raw, sensitivity=self._sensitivity, share=share)
        return NoisyCells(
            residuals=residuals,
            predicted=predicted,
            residual_stddev=stddev,
            predicted_stddev=stddev if self._reads_sensitive else 0.0,
            rate=self._rate,
        )

    def _candidates(self, stage: str) -> list[CandidateTable]:
        if stage == "public_values":
            return self._tables.singles(self._public)
        if stage == "public_pairs":
            return self._tables.public_pairs(self._public)
        if stage == "sensitive_values":
            return self._tables.singles(self._sensitive)
        if stage == "sensitive_pairs":
            return self._tables.sensitive_pairs(self._sensitive, self._public)
        return self._tables.refined()

    @property
    def _reserved(self) -> float:
        """What counts and the last level need and have not had."""
        counts = 0.0 if self._reads_sensitive else self._count_share * self._num_sensitive
        return counts + self._settings.level_share / 2

    @property
    def _num_sensitive(self) -> int:
        return sum(feature.role == "sensitive" for feature in self._features)

    @property
    def _count_share(self) -> float:
        each = self._settings.count_share / max(self._num_sensitive, 1)
        return min(self._settings.most_count_share, each)

    def _first_rate(self) -> float:
        raw = np.array([self._labels.sum()])
        share = self._settings.level_share / 2
        noisy = self._shares.release(raw, sensitivity=LABEL_SENSITIVITY, share=share)
        return float(np.clip(noisy[0] / len(self._labels), *_RATES))

    def _public_columns(self) -> list[ColumnValues]:
        return [
            public_values(name, column, self._columns.raw_counts("public", column, num_ids))
            for column, (name, num_ids) in enumerate(self._named("public"))
        ]

    def _count_sensitive(self) -> None:
        """Counts values with noise. From here on predictions depend on sensitive columns."""
        self._reads_sensitive = True
        share = self._count_share
        stddev = self._shares.stddev(share, ROW_SENSITIVITY)
        for column, (name, num_ids) in enumerate(self._named("sensitive")):
            raw = self._columns.raw_counts("sensitive", column, num_ids).astype(np.float64)
            noisy = self._shares.release(raw, sensitivity=ROW_SENSITIVITY, share=share)
            self._sensitive += sensitive_values(name, column, noisy, stddev)

    def _named(self, role: str) -> list[tuple[str, int]]:
        return [(f.name, f.num_ids) for f in self._features if f.role == role]


def _chances(log_odds: FloatArray) -> FloatArray:
    chances: FloatArray = 1 / (1 + np.exp(-log_odds))
    return chances
