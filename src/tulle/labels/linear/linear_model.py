"""Logistic regression fitted to one release of noisy label sums.

Everything here is post-processing: one release serves any number of ridges, subsets of
columns and repairs of the sums, at no further cost.
"""

import dataclasses
import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.labels.linear.feasible_sums import clip_to_box, project_on_labels
from tulle.labels.linear.label_sums import FeatureRows, LabelSums, Layout
from tulle.labels.linear.logistic_fit import LogisticProblem, fit_weights, sigmoid
from tulle.labels.linear.noise_ridge import constant_model, noise_ridge
from tulle.privacy.events import Event
from tulle.privacy.fields import check_finite

FloatArray = NDArray[np.float64]


class Repair(enum.Enum):
    """What is done about sums that no labels make."""

    NOTHING = "nothing"
    BOX = "box"
    """Each sum is put within its own limits."""
    PROJECTION = "projection"
    """The nearest sums that soft labels make; several passes over the rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearFitConfig:
    """Settings of a fit. Choose them without looking at raw labels."""

    ridge: float | None = None
    """Half the factor of the squared weights in the loss; None lets it follow from the noise."""
    repair: Repair = Repair.BOX
    tolerance: float = 0.1
    """Where a fit ends, see `fit_weights`. The noise moves the loss by much more than a
    hundredth of a nat, so that a smaller one costs time and nothing else."""

    def __post_init__(self) -> None:
        if not check_finite("tolerance", self.tolerance) > 0:
            raise ConfigError(f"tolerance={self.tolerance} must be > 0, e.g. 0.1.")
        if not isinstance(self.repair, Repair):
            raise ConfigError(f"repair={self.repair!r} must be a Repair, e.g. Repair.BOX.")
        if self.ridge is not None and not check_finite("ridge", self.ridge) > 0:
            raise ConfigError(
                f"ridge={self.ridge} must be > 0: noise can make sums that no labels make, and "
                "the loss then has no lower bound. Leave it out to let it follow from the noise."
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """Weights that were fitted to noisy label sums. May be published."""

    layout: Layout
    weights: FloatArray
    """One a column; of one-hot fields the constant first, then field after field."""
    ridges: FloatArray
    event: Event
    """What the release cost, on which this model and all others fitted to it rest."""

    def predict_logits(self, features: Any) -> FloatArray:
        """Log odds of a conversion; `features` are ids [rows, fields], or a matrix."""
        return self.layout.rows(features).dot(self.weights)

    def predict_probs(self, features: Any) -> FloatArray:
        """The chance of a conversion for each row."""
        return sigmoid(self.predict_logits(features))


def fit_linear_model(
    sums: LabelSums, rows: FeatureRows, config: LinearFitConfig | None = None
) -> LinearModel:
    """Fits a logistic regression.

    Args:
      sums: The release.
      rows: The features of the same table; equal rows may be put together.
      config: Ridge and repair.

    Privacy:
      None is spent: reads the release and public features.
    """
    config = config or LinearFitConfig()
    _check_same_table(sums, rows)
    repaired = _repaired_sums(sums, rows, config.repair)
    if config.ridge is None:
        fitted = noise_ridge(sums, rows)
        ridges, centre = fitted.ridges, fitted.centre
    else:
        centre = constant_model(sums, rows)
        ridges = np.full(len(centre), float(config.ridge))
    problem = LogisticProblem(rows=rows, sums=repaired, ridges=ridges, centre=centre)
    weights = fit_weights(problem, tolerance=config.tolerance)
    return LinearModel(layout=sums.layout, weights=weights, ridges=ridges, event=sums.event)


def _repaired_sums(sums: LabelSums, rows: FeatureRows, repair: Repair) -> FloatArray:
    if repair is Repair.PROJECTION:
        return project_on_labels(sums, rows).sums
    if repair is Repair.BOX:
        return clip_to_box(sums)
    # A column that is zero in every row has a known sum, whatever the noise says.
    is_known = sums.least_sums == sums.most_sums
    return np.where(is_known, sums.most_sums, sums.noisy_sums)


def _check_same_table(sums: LabelSums, rows: FeatureRows) -> None:
    if rows.layout != sums.layout or rows.num_rows != sums.num_rows:
        raise DataError(
            f"rows are not those of the release: {rows.num_rows} rows where it has "
            f"{sums.num_rows}, or other columns. Pass the features that were summed."
        )
    least, most = rows.sum_bounds()
    if not (np.allclose(least, sums.least_sums) and np.allclose(most, sums.most_sums)):
        raise DataError(
            "rows are not those of the release: their column counts differ. Pass the features "
            "that were summed."
        )
