"""Logistic regression fitted to one release of noisy label sums.

Everything here is post-processing: one release serves any number of ridges, subsets of columns and
repairs of the sums, at no further cost.

How much to shrink each weight follows from the noise and public counts. Near the constant model the
fit is, weight by weight, theta = theta* + (noise + sampling) / h with h the sum of p (1 - p) x^2.
Noise has the variance s^2, sampling of labels h. A ridge r multiplies by h / (h + r), and the mean
squared error over weights of variance t^2, (r^2 t^2 + s^2 + h) / (h + r)^2, is least at
r = (1 + s^2 / h) / t^2: rare features, with a small h, shrink most. t^2 is found by maximum
likelihood from the released sums: their distance from the constant model has the variance
s^2 + h + h^2 t^2. No label is read.

Noise can make sums that no labels give: more conversions than rows, or fields that disagree about
the total. A fit to such sums has no lower bound without a ridge. The box keeps each sum within its
own limits; the projection finds the nearest sums X^T q with q in [0, 1] for each row, which also
settles fields against one another.
"""

import dataclasses
import enum
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.lab.linear_labels.label_sums import FeatureRows, Layout, NoisyLabelSums
from tulle.lab.linear_labels.logistic_fit import LogisticProblem, fit_weights, sigmoid
from tulle.privacy.events import Event
from tulle.privacy.fields import check_count, check_finite

FloatArray = NDArray[np.float64]

_WEIGHT_VARIANCES = np.geomspace(1e-4, 1e2, 241)
"""Variances of weights among which the likeliest is taken, in steps of 6%."""
_CONSTANT_VARIANCE = 1.0
"""Variance of the constant, which is set and not estimated."""


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
    """What is done about sums that no labels make."""
    tolerance: float = 0.1
    """Size of the gradient at which a fit ends, see `fit_weights`. The noise moves the loss by
    much more than a hundredth of a nat, so that a smaller one costs time and nothing else."""

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
    """What the columns are."""
    weights: FloatArray
    """One a column; of one-hot fields the constant first, then field after field."""
    ridges: FloatArray
    """How much each weight was shrunk."""
    event: Event
    """What the release cost, on which this model and all others fitted to it rest."""

    def predict_logits(self, features: Any) -> FloatArray:
        """Log odds of a conversion; `features` are ids [rows, fields], or a matrix."""
        return self.layout.rows(features).dot(self.weights)

    def predict_probs(self, features: Any) -> FloatArray:
        """Probability of a conversion for each row."""
        return sigmoid(self.predict_logits(features))


def fit_linear_model(
    sums: NoisyLabelSums, rows: FeatureRows, config: LinearFitConfig | None = None
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoiseRidge:
    """The ridge of each weight and the weights that it pulls towards."""

    ridges: FloatArray
    centre: FloatArray
    """The constant model: the log odds of the mean label, and zeros."""
    weight_variance: float
    """Estimated variance of the weights: t^2."""


def constant_model(sums: NoisyLabelSums, rows: FeatureRows) -> FloatArray:
    """Weights of the model that predicts the mean label everywhere. Zeros without a constant."""
    weights = np.zeros(len(sums.noisy_sums))
    if rows.constant is not None:
        column, entry = rows.constant
        # No nearer to 0 or 1 than the noise allows to say.
        least = min(max(sums.noise_stddev / abs(entry), 0.5), sums.num_rows / 2)
        total = float(np.clip(sums.noisy_sums[column] / entry, least, sums.num_rows - least))
        weights[column] = math.log(total / (sums.num_rows - total)) / entry
    return weights


def noise_ridge(sums: NoisyLabelSums, rows: FeatureRows) -> NoiseRidge:
    """The ridge that follows from the noise. A function of the release and public features."""
    centre = constant_model(sums, rows)
    probs = 1 / (1 + np.exp(-rows.dot(centre)))
    information = rows.square_sums(probs * (1 - probs))
    distance = sums.noisy_sums - rows.sums(probs)
    is_free = information > 0
    is_constant = np.zeros(len(centre), np.bool_)
    if rows.constant is not None:
        is_constant[rows.constant[0]] = True
    used = is_free & ~is_constant
    variance = _weight_variance(distance[used], information[used], sums.noise_stddev)
    variances = np.where(is_constant, _CONSTANT_VARIANCE, variance)
    shrunk = 1 + sums.noise_stddev**2 / np.where(is_free, information, 1.0)
    ridges = np.where(is_free, shrunk, 1.0) / variances
    return NoiseRidge(ridges=ridges, centre=centre, weight_variance=variance)


def _weight_variance(distance: FloatArray, information: FloatArray, stddev: float) -> float:
    """The most likely variance of a normal weight, of a grid with steps of 6%."""
    squares = distance**2
    known = stddev**2 + information
    scores = [
        -np.sum(np.log(total) + squares / total)
        for variance in _WEIGHT_VARIANCES
        for total in [known + information**2 * variance]
    ]
    return float(_WEIGHT_VARIANCES[int(np.argmax(scores))])


def clip_to_box(sums: NoisyLabelSums) -> FloatArray:
    """Each sum within its least and largest value."""
    return np.clip(sums.noisy_sums, sums.least_sums, sums.most_sums)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ProjectedSums:
    """Sums that some soft labels make, and how near they are to the nearest ones."""

    sums: FloatArray
    distance_gap: float
    """Most by which half the squared distance can exceed the least possible."""
    num_passes: int


def project_on_labels(
    sums: NoisyLabelSums, rows: FeatureRows, *, max_passes: int = 200, tolerance: float = 1e-3
) -> ProjectedSums:
    """The sums X^T q, q in [0, 1], next to the noisy ones.

    Frank-Wolfe: only the sums are kept, not q, and each pass over the rows adds the labels
    that point at the noisy sums best. The gap that it stops at is a certificate (Jaggi 2013).

    Args:
      sums: The release.
      rows: The features of the same table; equal rows may be put together.
      max_passes: Most passes over the rows.
      tolerance: The gap to stop at, relative to the expected square of the noise.
    """
    check_count("max_passes", max_passes)
    enough = tolerance * 0.5 * sums.noise_stddev**2 * len(sums.noisy_sums)
    rate = _mean_label(sums, rows)
    current = rows.sums(np.full(_num_entries(rows), rate))
    gap, num_passes = np.inf, 0
    while num_passes < max_passes:
        num_passes += 1
        excess = current - sums.noisy_sums
        best = rows.sums((rows.dot(excess) < 0).astype(np.float64))
        direction = best - current
        gap = float(-excess @ direction)
        length = float(direction @ direction)
        if gap <= enough or length == 0:
            break
        current = current + min(1.0, gap / length) * direction
    return ProjectedSums(sums=current, distance_gap=max(0.0, gap), num_passes=num_passes)


def _num_entries(rows: FeatureRows) -> int:
    return len(rows.dot(np.zeros(rows.layout.num_columns)))


def _mean_label(sums: NoisyLabelSums, rows: FeatureRows) -> float:
    """The constant label that fits the noisy sums best: a good place to start."""
    ones = rows.sums(np.ones(_num_entries(rows)))
    return float(np.clip(ones @ sums.noisy_sums / max(float(ones @ ones), 1e-300), 0.0, 1.0))


def _repaired_sums(sums: NoisyLabelSums, rows: FeatureRows, repair: Repair) -> FloatArray:
    if repair is Repair.PROJECTION:
        return project_on_labels(sums, rows).sums
    if repair is Repair.BOX:
        return clip_to_box(sums)
    # A column that is zero in every row has a known sum, whatever the noise says.
    is_known = sums.least_sums == sums.most_sums
    return np.where(is_known, sums.most_sums, sums.noisy_sums)


def _check_same_table(sums: NoisyLabelSums, rows: FeatureRows) -> None:
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
