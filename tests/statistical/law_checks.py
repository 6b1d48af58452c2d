"""Checks that many independent runs of a random process have a stated mean and covariance.

For samples [numbers seen, runs]. Over all seeds a check refuses the right law with a
chance of at most 1e-9.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]

FALSE_ALARM = 1e-9


def worst_score_against(sample: Values, mean: Values, covariance: Values) -> float:
    """The largest error of a sample's first two moments, over what the checks allow."""
    centred = sample - mean[:, None]
    scores = [_score(row, np.zeros_like(row)) for row in centred]
    for left, right in _pairs(len(sample)):
        products = centred[left] * centred[right] - covariance[left, right]
        scores.append(_score(products, np.zeros_like(products)))
    return max(scores) / _limit(len(scores))


def worst_score_between(first: Values, second: Values) -> float:
    """The largest difference of two samples' first two moments, over what the checks allow."""
    scores = [_score(*rows) for rows in zip(first, second, strict=True)]
    centred = [sample - sample.mean(1, keepdims=True) for sample in (first, second)]
    for left, right in _pairs(len(first)):
        scores.append(_score(*(sample[left] * sample[right] for sample in centred)))
    return max(scores) / _limit(len(scores))


def _pairs(size: int) -> list[tuple[int, int]]:
    return [(left, right) for left in range(size) for right in range(left, size)]


def _score(first: Values, second: Values) -> float:
    """The difference of two means in standard errors."""
    error = math.sqrt(first.var() / first.size + second.var() / second.size)
    difference = abs(float(first.mean() - second.mean()))
    return 0.0 if difference == 0 else difference / max(error, 1e-12)


def _limit(num_scores: int) -> float:
    # Two sides; and at 7 standard errors the skew of a mean of 100,000 products of normals
    # makes a normal tail too light by less than a factor 10.
    return float(stats.norm.isf(FALSE_ALARM / num_scores / 20))
