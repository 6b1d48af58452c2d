"""Integer counts plus integer noise, without overflow."""

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import DataError
from tulle.mechanisms.exact import IntArray

MAX_COUNT = 2**62
"""Largest raw count in size; noise is always smaller, so sums fit int64."""


def checked_counts(raw_counts: ArrayLike) -> IntArray:
    """The counts as int64. Floats and counts near overflow are refused.

    Privacy:
      Releases nothing: the error shows none of the counts.
    """
    counts = np.asarray(raw_counts)
    if counts.dtype.kind not in "iu" and counts.size:
        raise DataError(
            f"raw_counts have dtype {counts.dtype}, but must be integers below 2^63; "
            "for real numbers use release_laplace() or release_gaussian()."
        )
    if counts.size and (int(counts.max()) > MAX_COUNT or int(counts.min()) < -MAX_COUNT):
        raise DataError(
            f"raw_counts must lie within +-{MAX_COUNT} for exact sums; count in larger steps."
        )
    return counts.astype(np.int64)
