"""The point of {G a : 0 <= a <= 1} that is nearest to a vector, by accelerated gradient steps.

Only inner products come in: with K = G^T G and b = G^T v the distance of G a to v is
a^T K a / 2 - a^T b up to what does not depend on a. Where a step would overshoot, the
acceleration starts again (O'Donoghue and Candes 2015).
"""

import math

import torch
from torch import Tensor

_POWER_STEPS = 20
_LENGTH_MARGIN = 1.1
_CHECKED_EVERY = 10


def project_on_box(
    gram: Tensor, products: Tensor, start: Tensor, *, max_iterations: int, tolerance: float = 1e-4
) -> Tensor:
    """Coefficients in [0, 1] of the nearest point. The point is unique, they need not be.

    Args:
      gram: [n, n]: inner products of the n vectors.
      products: [n]: their inner products with what is projected.
      start: [n]: coefficients to start from, in [0, 1].
      max_iterations: Steps at most.
      tolerance: It ends when at most this share of what the start leaves to gain is left.

    Privacy:
      Post-processing: what comes in must be public or noisy.
    """
    curvature = _largest_eigenvalue(gram)
    enough = tolerance * optimality_gap(gram, products, start)
    here, ahead, momentum = start.clone(), start.clone(), 1.0
    if not curvature > 0:
        return here
    for step in range(max_iterations):
        there = (ahead - (gram @ ahead - products) / curvature).clamp_(0, 1)
        moved = there - here
        if float((ahead - there) @ moved) > 0:
            momentum = 1.0
        longer = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = there + moved * ((momentum - 1) / longer)
        here, momentum = there, longer
        is_checked = step % _CHECKED_EVERY == _CHECKED_EVERY - 1
        if is_checked and optimality_gap(gram, products, here) <= enough:
            break
    return here


def optimality_gap(gram: Tensor, products: Tensor, coefficients: Tensor) -> float:
    """Upper bound on how far half the squared distance is above its minimum (Frank and Wolfe).

    Args:
      gram: [n, n]: inner products of the vectors.
      products: [n]: inner products of the vectors with the target.
      coefficients: [n]: present coefficients, each from 0 to 1.
    """
    slopes = gram @ coefficients - products
    gains = torch.where(slopes > 0, coefficients * slopes, (coefficients - 1) * slopes)
    return float(gains.sum())


def _largest_eigenvalue(gram: Tensor) -> float:
    """A little above the largest eigenvalue, and never above the largest row sum."""
    vector = gram.diagonal().clamp(min=0).sqrt()
    length = vector.new_zeros(())
    for _ in range(_POWER_STEPS):
        vector = vector / vector.norm().clamp(min=torch.finfo(vector.dtype).tiny)
        vector = gram @ vector
        length = vector.norm()
    row_sums = gram.abs().sum(1)
    return min(float(length) * _LENGTH_MARGIN, float(row_sums.max()))
