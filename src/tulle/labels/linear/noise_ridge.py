"""How much to shrink each weight, from the noise and public counts alone.

Near the constant model the fit is, weight by weight, theta = theta* + (noise + sampling) / h
with h the sum of p (1 - p) x^2. Noise has the variance s^2, sampling of labels h. A ridge
r multiplies by h / (h + r), and the mean squared error over weights of variance t^2,
(r^2 t^2 + s^2 + h) / (h + r)^2, is least at r = (1 + s^2 / h) / t^2: rare features, with a
small h, shrink most. t^2 is found by maximum likelihood from the released sums: their
distance from the constant model has the variance s^2 + h + h^2 t^2. No label is read.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from tulle.labels.linear.label_sums import FeatureRows, LabelSums

FloatArray = NDArray[np.float64]

_WEIGHT_VARIANCES = np.geomspace(1e-4, 1e2, 241)
_CONSTANT_VARIANCE = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoiseRidge:
    """The ridge of each weight and the weights that it pulls towards."""

    ridges: FloatArray
    centre: FloatArray
    """The constant model: the log odds of the mean label, and zeros."""
    weight_variance: float
    """Estimated variance of the weights: t^2."""


def constant_model(sums: LabelSums, rows: FeatureRows) -> FloatArray:
    """Weights of the model that predicts the mean label everywhere. Zeros without a constant."""
    weights = np.zeros(len(sums.noisy_sums))
    if rows.constant is not None:
        column, entry = rows.constant
        # No nearer to 0 or 1 than the noise allows to say.
        least = min(max(sums.noise_stddev / abs(entry), 0.5), sums.num_rows / 2)
        total = float(np.clip(sums.noisy_sums[column] / entry, least, sums.num_rows - least))
        weights[column] = math.log(total / (sums.num_rows - total)) / entry
    return weights


def noise_ridge(sums: LabelSums, rows: FeatureRows) -> NoiseRidge:
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
