"""AUC losses of trained models as figures of a run.

Standard errors are those of the test rows. They leave out how much another start of the weights
or other noise would change, which only more seeds can tell.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tulle.errors import DataError
from tulle.lab.reproduction.judging import OwnFigure

if TYPE_CHECKING:
    from tulle.quality.metrics import QualityMetrics
    from tulle.train.fitting import FitResult

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
