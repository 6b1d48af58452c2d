"""Which rows a Poisson batch has: independent coins, drawn only where they land heads.

The distance from one sampled row to the next is geometric, so drawing the
distances draws the coins of all rows at a cost that grows with the batch and not
with the data. Each distance is floor(scale * E) for a standard exponential E,
which exact.py draws with the law of ideal real arithmetic. So, given uniform
words, rows are independent and each has a probability of exactly 1 - exp(-1 / scale):
no float error of a binomial sampler, no rounding of a threshold.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import sample_geometric
from tulle.mechanisms.thresholds import exponential_bounds

IntArray = NDArray[np.int64]


def sample_rows(num_rows: int, sampling_prob: float, *, rng: NoiseSource) -> IntArray:
    """Draws each of 0 … num_rows - 1 with one probability, independently; in ascending order.

    Args:
      num_rows: Public.
      sampling_prob: The probability asked for. The one realised differs from it by a few
        units in the last place; account with `accounted_prob(sampling_prob)`.
      rng: Source of the coins. Sensitive: never log or save its state.

    Privacy:
      The rows drawn are secret: amplification by sampling relies on it.
    """
    if sampling_prob == 1:
        return np.arange(num_rows)
    scale = skip_scale(sampling_prob)
    parts: list[IntArray] = []
    start = 0
    while start < num_rows:
        # Almost always enough gaps for the rest of the rows. If not, the loop draws more: the law
        # of the rows does not depend on how many are drawn at once.
        expected = sampling_prob * (num_rows - start)
        num_gaps = math.ceil(expected + 4 * math.sqrt(expected)) + 4
        parts.append(rows_of_gaps(sample_geometric(scale, num_gaps, rng=rng), start, num_rows))
        start = int(parts[-1][-1]) + 1
    rows = np.concatenate(parts)
    return rows[: np.searchsorted(rows, num_rows)]


def rows_of_gaps(gaps: IntArray, start: int, num_rows: int) -> IntArray:
    """The rows that follow one another at these distances; some may lie past the end.

    A gap is the number of rows skipped. Those past the end are cut first, so that
    the sum cannot overflow.

    Args:
      gaps: Numbers of rows skipped before each row.
      start: First row that may be drawn.
      num_rows: Number of rows of the data, which no useful gap exceeds.
    """
    return start - 1 + np.cumsum(np.minimum(gaps, num_rows) + 1)


def skip_scale(sampling_prob: float) -> float:
    """The scale of the geometric distances, a float that is used as it is."""
    return -1 / math.log1p(-sampling_prob)


def accounted_prob(sampling_prob: float) -> float:
    """The least float that is certainly not below the realised probability of a row.

    The cost grows with the probability: a smaller one is a mixture of a larger one and
    of not looking at the row at all.
    """
    if sampling_prob == 1:
        return 1.0
    not_sampled, _ = exponential_bounds(-1 / Fraction(skip_scale(sampling_prob)))
    exact = 1 - not_sampled
    nearest = float(exact)
    return nearest if nearest >= exact else min(1.0, math.nextafter(nearest, 2.0))
