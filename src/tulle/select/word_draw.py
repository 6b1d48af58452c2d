"""The candidate that a drawn word leads to, where each has some of the 2^64 words."""

import numpy as np

from tulle.mechanisms.entropy import Words
from tulle.select.auctions import IntArray


def draw_rows(words: Words, drawn: Words) -> IntArray:
    """[rows], the candidate that each drawn word leads to.

    Args:
      words: [rows, candidates], 2^64 in each row; one candidate that has all of them is kept as
        2^64 - 1, and gets the last word as the fullest.
      drawn: [rows], uniform.

    Privacy:
      Unit: one decision of a device, replace. Each candidate has exactly its words out of 2^64.
      Event: that of the mechanism that made the words. Relies on: fresh words for every draw.
    """
    chosen: IntArray = words.argmax(axis=1)
    is_open = np.ones(len(drawn), np.bool_)
    left = drawn.copy()
    for column in range(words.shape[1]):
        is_hit = is_open & (left < words[:, column])
        chosen[is_hit] = column
        is_open &= ~is_hit
        left -= words[:, column]  # below zero only where it is not looked at again
    return chosen
