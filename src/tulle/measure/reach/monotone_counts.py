"""Histograms without negative buckets, by isotonic regression of their k+ sums.

A histogram is non-negative exactly if its sums from bucket k on fall with k and end above 0.
Cutting buckets at 0 instead would add noise to reach in every empty bucket; isotonic regression
changes a sum only where neighbouring ones contradict it, and so leaves reach mostly alone.
"""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def monotone_counts(counts: FloatArray) -> FloatArray:
    """The histograms, one a row, whose k+ sums are nearest to those given and in order.

    A sum over j buckets has j times the variance of one, and weighs 1 / j.
    """
    counts = np.asarray(counts, np.float64)
    if counts.size == 0:
        return counts.copy()
    tail_sums = np.cumsum(counts[:, ::-1], axis=1)
    weights = 1 / np.arange(1, counts.shape[1] + 1, dtype=np.float64)
    rising = np.stack([isotonic_regression(row, weights) for row in tail_sums])
    # Cutting at 0 after the regression is the projection onto both conditions.
    rising = np.maximum(rising, 0.0)
    fixed: FloatArray = np.diff(rising, axis=1, prepend=0.0)[:, ::-1]
    return np.maximum(fixed, 0.0)


def isotonic_regression(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The nearest rising sequence in weighted squares, by pooling adjacent violators."""
    means: list[float] = []
    masses: list[float] = []
    lengths: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, mass, length = value, weight, 1
        while means and means[-1] >= mean:
            earlier = masses.pop()
            mean = (means.pop() * earlier + mean * mass) / (earlier + mass)
            mass += earlier
            length += lengths.pop()
        means.append(mean)
        masses.append(mass)
        lengths.append(length)
    return np.repeat(means, lengths)
