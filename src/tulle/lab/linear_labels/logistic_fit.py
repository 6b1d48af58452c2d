"""The minimum of logistic regression's loss when labels are known by their sums alone.

Loss: sum over rows of log(1 + exp(theta . x)) - theta . z + ridge / 2 (theta - centre)^2.
Convex; Newton steps, exact for up to a few thousand weights, and by conjugate gradients
that only multiply rows with vectors for more. Every operation is deterministic.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, RunStateError
from tulle.lab.linear_labels.label_sums import FeatureRows

FloatArray = NDArray[np.float64]

EXACT = 1e-8
"""A tolerance at which floats have nothing more to say."""
_MOST_DENSE = 4096
"""Most weights whose curvature is kept as a matrix: 128 MiB."""
_MAX_STEPS = 100
"""Newton steps after which a fit gives up."""
_MAX_INNER_STEPS = 400
"""Steps of conjugate gradients for one Newton step; an inexact one is shortened and goes on."""
_MAX_HALVINGS = 40
"""Halvings of a step, after which it is too short to matter."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LogisticProblem:
    """Rows, the sums that stand for their labels, and the ridge."""

    rows: FeatureRows
    sums: FloatArray
    ridges: FloatArray
    """One a column, each > 0."""
    centre: FloatArray
    """Weights that the ridge pulls to."""

    def __post_init__(self) -> None:
        if not np.all(self.ridges > 0) or not np.all(np.isfinite(self.ridges)):
            raise ConfigError(
                "ridge must be > 0 and finite for every weight: with noise the sums may be ones "
                "that no labels make, and the loss then has no lower bound. Use a small ridge, "
                "or leave it to the noise."
            )

    def value(self, weights: FloatArray) -> float:
        """The loss."""
        logits = self.rows.dot(weights)
        pulled = weights - self.centre
        rows = float(np.sum(self.rows.row_weights * np.logaddexp(0.0, logits)))
        return rows - float(weights @ self.sums) + 0.5 * float(self.ridges @ pulled**2)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The slope of the loss in every weight."""
        expected = self.rows.sums(sigmoid(self.rows.dot(weights)))
        return expected - self.sums + self.ridges * (weights - self.centre)


def fit_weights(problem: LogisticProblem, *, tolerance: float = EXACT) -> FloatArray:
    """The weights with the least loss.

    Args:
      problem: The loss.
      tolerance: Bound on the gradient, each entry in units of the root of its curvature. At its
        end a fit is about tolerance^2 / 2 above the least loss of all rows together.

    Raises:
      RunStateError: No convergence within 100 Newton steps.
    """
    weights = problem.centre.copy()
    gradient = problem.gradient(weights)
    for _ in range(_MAX_STEPS):
        probs = sigmoid(problem.rows.dot(weights))
        curvature = probs * (1 - probs)
        scale = problem.rows.square_sums(curvature) + problem.ridges
        size = float(np.sqrt(np.sum(gradient**2 / scale)))
        if size <= tolerance:
            return weights
        step = _exact_step(problem, curvature, gradient)
        if step is None:
            multiply = functools.partial(_curve, problem, curvature)
            step = _conjugate_gradients(multiply, -gradient, scale, min(0.1, size**0.5))
        weights, gradient = _shortened(problem, weights, gradient, step)
    raise RunStateError(
        f"the fit did not converge in {_MAX_STEPS} steps; raise the ridge, or leave it to the "
        "noise."
    )


def sigmoid(logits: FloatArray) -> FloatArray:
    """1 / (1 + exp(-logits)) without overflow."""
    small = np.exp(-np.abs(logits))
    result: FloatArray = np.where(logits >= 0, 1.0, small) / (1 + small)
    return result


def _exact_step(
    problem: LogisticProblem, curvature: FloatArray, gradient: FloatArray
) -> FloatArray | None:
    """The Newton step; None for too many weights, or if rounding spoils the matrix."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    if len(gradient) > _MOST_DENSE:
        return None
    matrix = problem.rows.products(curvature)
    matrix[np.diag_indices_from(matrix)] += problem.ridges
    try:
        return np.asarray(cho_solve(cho_factor(matrix, overwrite_a=True), -gradient))
    except LinAlgError:
        return None


def _curve(problem: LogisticProblem, curvature: FloatArray, vector: FloatArray) -> FloatArray:
    """The second derivative times a vector."""
    return problem.rows.sums(curvature * problem.rows.dot(vector)) + problem.ridges * vector


def _conjugate_gradients(
    multiply: Callable[[FloatArray], FloatArray],
    target: FloatArray,
    scale: FloatArray,
    tolerance: float,
) -> FloatArray:
    """Solves multiply(x) = target to a relative error, scaled by the diagonal."""
    solution = np.zeros_like(target)
    residual = target.copy()
    scaled = residual / scale
    direction = scaled.copy()
    size = float(residual @ scaled)
    enough = tolerance**2 * size
    for _ in range(_MAX_INNER_STEPS):
        image = multiply(direction)
        length = size / float(direction @ image)
        solution += length * direction
        residual -= length * image
        scaled = residual / scale
        size, previous = float(residual @ scaled), size
        if size <= enough:
            break
        direction = scaled + size / previous * direction
    return solution


def _shortened(
    problem: LogisticProblem, weights: FloatArray, gradient: FloatArray, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A step that does not raise the loss, and the gradient after it."""
    slope = float(gradient @ step)
    value = problem.value(weights)
    slack = 1e-12 * (1 + abs(value))
    length = 1.0
    for _ in range(_MAX_HALVINGS):
        moved = weights + length * step
        moved_gradient = problem.gradient(moved)
        # Still downhill at its end, a step has not passed the minimum of a convex loss.
        if float(moved_gradient @ step) <= 0:
            break
        if problem.value(moved) <= value + 1e-4 * length * slope + slack:
            break
        length /= 2
    return moved, moved_gradient
