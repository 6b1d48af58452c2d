"""How much likelier what was seen is with one label of a canary than with the other."""

import itertools

import numpy as np
from numpy.typing import NDArray

from tulle.audit.steps.engines import Turns

FloatArray = NDArray[np.float64]


def label_scores(
    sums: FloatArray, whitening: FloatArray, turns: Turns, noise_stddev: float
) -> FloatArray:
    """[runs]: the log likelihood ratio of label 1 against label 0.

    A canary adds 1 to the sum of a step that it is in, with label 1, and -1 with label 0. Over
    all batches that it may be in, what is seen has a mixture of normal laws.

    Args:
      sums: [looks, runs]: sums of the steps along the canaries in clip norms, times `whitening`.
      whitening: [looks, steps]: see `AuditedEngine.whitening`.
      turns: When a canary may be in a batch.
      noise_stddev: Of each look, in clip norms.
    """
    patterns = np.array(list(itertools.product([0, 1], repeat=len(turns.steps))))
    chances = np.prod(np.where(patterns == 1, turns.prob, 1 - turns.prob), axis=1)
    means = patterns[chances > 0] @ whitening[:, list(turns.steps)].T
    logs = np.log(chances[chances > 0])[:, None]

    def log_density(sign: int) -> FloatArray:
        distances = np.square(sums - sign * means[:, :, None]).sum(axis=1)
        density = np.logaddexp.reduce(logs - distances / (2 * noise_stddev**2), axis=0)
        return np.asarray(density, dtype=np.float64)

    return log_density(1) - log_density(-1)
