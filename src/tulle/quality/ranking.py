"""How well predictions rank: the AUC loss with DeLong's standard error."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.quality.estimate import Estimate
from tulle.quality.predictions import FloatArray


def auc_loss(positives: NDArray[Any], negatives: NDArray[Any]) -> Estimate:
    """1 - AUC and its standard error, which is infinite if a class has one row only.

    DeLong et al. 1988 in the form of Sun and Xu 2014, eq. 5-8: the structural
    components of all pairs come from mid-ranks within the classes and overall.

    Args:
      positives: Scores of the rows with label 1, at least one.
      negatives: Scores of the rows with label 0, at least one.
    """
    m, n = len(positives), len(negatives)
    ranks = _mid_ranks(np.concatenate([positives, negatives]))
    wins_of_positives = (ranks[:m] - _mid_ranks(positives)) / n
    losses_of_negatives = (ranks[m:] - _mid_ranks(negatives)) / m
    loss = float(losses_of_negatives.mean())
    if min(m, n) == 1:
        return Estimate(value=loss, standard_error=math.inf)
    variance = wins_of_positives.var(ddof=1) / m + losses_of_negatives.var(ddof=1) / n
    return Estimate(value=loss, standard_error=math.sqrt(variance))


def weight_below(scores: NDArray[Any], weights: FloatArray) -> FloatArray:
    """For each row, the weight of all rows with lower scores and half of that with equal ones."""
    _, group = np.unique(scores, return_inverse=True)
    totals = np.bincount(group, weights=weights)
    below: FloatArray = np.cumsum(totals) - totals / 2
    return below[group]


def _mid_ranks(values: NDArray[Any]) -> FloatArray:
    """Ranks from 1; equal values have the mean of their places."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    mid_ranks: FloatArray = np.cumsum(counts) - (counts - 1) / 2
    return mid_ranks[group]
