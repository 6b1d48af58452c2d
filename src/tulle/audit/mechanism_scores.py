"""Scores for outputs without an order: how much likelier each is on one input.

The ratios are learnt from some draws and used on others, so the score knows nothing of the
randomizer and a wrong one has no place to hide.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_LEARNING_SHARE = 4
"""One draw of so many teaches; the others are scored."""
_PSEUDO_COUNT = 0.5


def learnt_scores(
    outputs: NDArray[Any], neighbour_outputs: NDArray[Any]
) -> tuple[FloatArray, FloatArray]:
    """Estimated log-likelihood ratios of the draws that taught nothing.

    Args:
      outputs: Independent draws on one input: numbers, or one row a draw.
      neighbour_outputs: The same on its neighbour.

    Privacy:
      For inputs made up for an audit.
    """
    both = np.concatenate([outputs, neighbour_outputs])
    axis = 0 if both.ndim > 1 else None
    values, codes = np.unique(both, axis=axis, return_inverse=True)
    first, second = np.split(codes.reshape(-1), [len(outputs)])
    taught = [np.bincount(c[::_LEARNING_SHARE], minlength=len(values)) for c in (first, second)]
    ratios = np.log(taught[1] + _PSEUDO_COUNT) - np.log(taught[0] + _PSEUDO_COUNT)
    kept = [np.delete(codes, np.s_[::_LEARNING_SHARE]) for codes in (first, second)]
    return ratios[kept[0]], ratios[kept[1]]
