"""The greedy fill of many auctions at once, in whole words.

Rows are auctions with equally many candidates in a public order. Nothing here leaves 64-bit
integers. A candidate that takes all 2^64 words is kept as 2^64 - 1: the draw gives the last
word to the fullest.
"""

import numpy as np

from tulle.mechanisms.entropy import Words
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.select.auctions import FloatArray
from tulle.select.floors.greedy_fill import cap_factor, infeasible_floors

_MOST = np.uint64(WORD_VALUES - 1)
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


def fill_rows(floors: Words, raw_scores: FloatArray, *, epsilon: float) -> Words:
    """[rows, candidates], words that lead to each, the best scores at their caps.

    Args:
      floors: [rows, candidates], words that lead to each at least. Public.
      raw_scores: [rows, candidates], finite.
      epsilon: Largest log-likelihood ratio of a choice.

    Privacy:
      Not noised: as sensitive as the scores. As `fill`, and with the same words.
    """
    left = _words_to_fill(floors, epsilon)
    order = np.argsort(-raw_scores, axis=1, kind="stable")
    words = np.take_along_axis(floors, order, axis=1)
    room = cap_words(words, epsilon) - words
    for column in range(words.shape[1]):
        given = np.minimum(left, room[:, column])
        words[:, column] += given
        left -= given
    # What the caps leave over depends on the floors alone; one word where 2^64 is not kept.
    if np.any(left > (words.max(axis=1) == _MOST)):
        raise infeasible_floors(epsilon, _least_total(floors))
    filled = np.empty_like(words)
    np.put_along_axis(filled, order, words, axis=1)
    return filled


def cap_words(floors: Words, epsilon: float) -> Words:
    """Most words above each floor: floor * cap_factor / 2^64, rounded down, cut at 2^64 - 1."""
    whole, rest = divmod(cap_factor(epsilon), WORD_VALUES)
    fraction = _high_half(np.uint64(rest), floors)
    whole_words = np.uint64(min(whole, WORD_VALUES - 1))
    is_all = floors > (_MOST - fraction) // whole_words
    return np.where(is_all, _MOST, whole_words * floors + fraction)


def _high_half(factor: np.uint64, words: Words) -> Words:
    """The product of two words over 2^64, rounded down, by halves of 32 bits."""
    factor_high, factor_low = factor >> _HALF, factor & _LOW
    words_high, words_low = words >> _HALF, words & _LOW
    middle = factor_high * words_low + (factor_low * words_low >> _HALF)
    other_middle = factor_low * words_high + (middle & _LOW)
    product: Words = factor_high * words_high + (middle >> _HALF) + (other_middle >> _HALF)
    return product


def _words_to_fill(floors: Words, epsilon: float) -> Words:
    """[rows], 2^64 less all floors."""
    left = np.full(len(floors), _MOST)
    for column in range(floors.shape[1]):
        if np.any(floors[:, column] > left):
            raise infeasible_floors(epsilon, float((floors / WORD_VALUES).sum(axis=1).max()))
        left -= floors[:, column]
    if np.any(left == _MOST):
        raise infeasible_floors(epsilon, 0.0)
    return left + np.uint64(1)


def _least_total(floors: Words) -> float:
    return float((floors / WORD_VALUES).sum(axis=1).min())
