"""Randomized labels, DP-SGD and both in turn on the same rows, by the public configs of training.

A reduced run has small tables, layers and batches, so that it takes the steps that DP-SGD needs
in seconds; what it shares with the paper is the method, not the size. The optimizer is Adam in
both, and clip norm and rates are not tuned.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tulle.errors import DataError
from tulle.lab.reproduction.log_rows import LogRows
from tulle.lab.reproduction.published import OwnFigure
from tulle.lab.reproduction.reproducing import ReproductionSettings

if TYPE_CHECKING:
    from tulle.quality.metrics import QualityMetrics
    from tulle.train.fitting import FitResult
    from tulle.train.methods.method import Method
    from tulle.train.settings.models import AnyModel
    from tulle.train.settings.phases import BudgetSplit, LabelPhase, PrivatePhase, PublicTower
    from tulle.train.settings.units import UnitLevel

DELTA = 1e-7
"""The same for every method, so that losses are compared at one guarantee."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """Epochs and batches."""

    private_epochs: float
    plain_epochs: float = 1.0
    private_batch: int = 16_384
    plain_batch: int = 1_024


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateTraining:
    """One model on one log; every method sees the same rows.

    Privacy:
      Every run has the guarantee of its config but for the fixed seed, which makes none of
      them a private release.
    """

    rows: LogRows
    settings: ReproductionSettings
    model: "AnyModel"
    size: TrainingSize
    unit: "UnitLevel | None" = None
    """None: each row on its own."""

    def without_privacy(self) -> "QualityMetrics":
        """The baseline."""
        from tulle.train import NonPrivateConfig, PlainPhase

        phase = PlainPhase(epochs=self.size.plain_epochs, batch_size=self._plain_batch)
        seed = self.settings.seed
        return self._run(NonPrivateConfig(model=self.model, phase=phase, initial_seed=seed))

    def randomized_labels(self, epsilon: float) -> "QualityMetrics":
        """All of epsilon on labels; sensitive columns are left out."""
        from tulle.train import RandomizedLabelsConfig

        config = RandomizedLabelsConfig(
            initial_seed=self.settings.seed,
            model=self.model,
            label_phase=self._label_phase(),
            unit=self._unit(),
        )
        return self._run(config.calibrate(epsilon=epsilon))

    def dp_sgd(self, epsilon: float) -> "QualityMetrics":
        """All of epsilon on private steps over all columns."""
        from tulle.train import DpSgdConfig

        config = DpSgdConfig(
            initial_seed=self.settings.seed,
            model=self.model,
            private_phase=self._private_phase(2e-3),
            unit=self._unit(),
        )
        return self._run(config.calibrate(epsilon=epsilon, delta=DELTA))

    def two_phase(
        self,
        epsilon: float,
        *,
        split: "BudgetSplit | None" = None,
        public_tower: "PublicTower | None" = None,
    ) -> "QualityMetrics":
        """The papers' Hybrid: labels first, then private steps from there on.

        Args:
          epsilon: Epsilon of both phases together.
          split: Split of epsilon over the phases; None for min(0.6 epsilon, 3) on labels.
          public_tower: Whether private steps train it on; None for yes.
        """
        from tulle.train import HybridConfig, PaperSplit

        phase = self._private_phase(1e-3)
        if public_tower is not None:
            phase = dataclasses.replace(phase, public_tower=public_tower)
        config = HybridConfig(
            initial_seed=self.settings.seed,
            model=self.model,
            label_phase=self._label_phase(),
            private_phase=phase,
            split=split or PaperSplit(),
            unit=self._unit(),
        )
        return self._run(config.calibrate(epsilon=epsilon, delta=DELTA))

    def _run(self, config: "Method") -> "QualityMetrics":
        from tulle.train.fitting import fit
        from tulle.train.run_context import RunOptions

        options = RunOptions(seed=self.settings.seed)
        return tested(fit(self.rows.train, config, test=self.rows.test, options=options))

    def _label_phase(self) -> "LabelPhase":
        from tulle.train import LabelPhase

        return LabelPhase(epochs=self.size.plain_epochs, batch_size=self._plain_batch)

    def _private_phase(self, learning_rate: float) -> "PrivatePhase":
        from tulle.train import Adam, PrivatePhase

        return PrivatePhase(
            epochs=self.size.private_epochs,
            batch_size=min(self.size.private_batch, self.rows.train.num_rows // 4),
            optimizer=Adam(learning_rate=learning_rate),
        )

    def _unit(self) -> "UnitLevel":
        from tulle.train import ExampleLevel

        return self.unit or ExampleLevel()

    @property
    def _plain_batch(self) -> int:
        return min(self.size.plain_batch, self.rows.train.num_rows // 4)


_CHANCE = 0.45
"""An AUC loss above it is next to that of a coin, 0.5."""


def tested(result: "FitResult") -> "QualityMetrics":
    """The figures on test rows."""
    if result.metrics is None:
        raise DataError("a run was not tested; give it test rows.")
    return result.metrics


def auc_loss(metrics: "QualityMetrics") -> OwnFigure:
    """1 - AUC."""
    return OwnFigure(value=metrics.auc_loss, error=metrics.auc_loss_standard_error)


def relative_loss(metrics: "QualityMetrics", baseline: "QualityMetrics") -> OwnFigure:
    """AUC loss above the baseline's in per cent.

    The baseline is tested on the same rows, and its own error moves all relative losses alike.
    """
    return OwnFigure(
        value=100 * (metrics.auc_loss / baseline.auc_loss - 1),
        error=100 * metrics.auc_loss_standard_error / baseline.auc_loss,
    )


def at_chance(runs: Mapping[str, "QualityMetrics"]) -> dict[str, str]:
    """Runs whose model learned next to nothing, with that for a reason not to compare them.

    Such a run is too small for its noise and says nothing about a method at the paper's size.
    """
    return {
        name: f"{name}: so few rows teach next to nothing under so much noise"
        for name, metrics in runs.items()
        if metrics.auc_loss > _CHANCE
    }
