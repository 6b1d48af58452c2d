"""Probabilities as whole numbers of 64-bit words, and the draw with one word an auction.

A probability below 2^-40 would be less than 2^24 words. Above it, rounding down moves no
probability by more than a share of 2^-24, and what a row then lacks or has too much goes to its
largest entry, which is at least 1 / n: with the relative error of 1e-11 that computed probabilities
may have, the log ratio of two rows grows by less than 2^-23 for up to 1,000 candidates. A mechanism
whose probabilities keep epsilon - ROUNDING_EPSILON therefore keeps epsilon when drawn.
"""

import math
from collections.abc import Iterable

import numpy as np

from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.select.auctions import FloatArray, IntArray, SizeGroup

WordGroup = tuple[SizeGroup, Words | None]
"""Auctions with their finalists and the words of each; none where there is one finalist alone."""
ROUNDING_EPSILON = 2.0**-22
"""Part of epsilon that is left to rounding to whole words, which adds less than half of it to a log
ratio."""
LEAST_PROB = 2.0**-40
"""Least probability that is drawn: it has 2^24 words, so rounding moves it by 2^-24 of itself."""
MOST_LOG_DISTANCE = -math.log(LEAST_PROB)
"""Logarithm of one over the least probability."""
MOST_CANDIDATES = 1_000
"""Most candidates for which computed probabilities are known to be good enough; see above."""


def words_of(probs: FloatArray) -> Words:
    """[rows, candidates], whole words of each; every row adds up to 2^64, which is 0 in uint64.

    Args:
      probs: [rows, candidates], at least 2 candidates, each probability >= LEAST_PROB.
    """
    words = (probs * float(WORD_VALUES)).astype(np.uint64)
    rows = np.arange(len(words))
    # Modulo 2^64 the missing words, few or many too much, are minus the sum.
    words[rows, probs.argmax(axis=1)] -= words.sum(axis=1)
    return words


def probs_of(groups: Iterable[WordGroup], num_candidates: int) -> FloatArray:
    """[candidates], the probabilities of the draw as the nearest floats; 0 where there are no
    words."""
    probs = np.zeros(num_candidates)
    for group, words in groups:
        probs[group.places] = 1.0 if words is None else words / float(WORD_VALUES)
    return probs


def draw_places(groups: Iterable[WordGroup], num_auctions: int, *, rng: NoiseSource) -> IntArray:
    """[auctions], the place drawn for each, with one word an auction.

    Args:
      groups: Auctions with the words of their finalists.
      num_auctions: Number of all auctions.
      rng: Source of the words. Sensitive: never log or save its state.

    Privacy:
      Unit: one decision of a device, replace. Each choice has its whole number of words out of
      2^64. Event: that of the mechanism that made the words. Relies on: fresh words of `rng`.
    """
    chosen = np.empty(num_auctions, np.int64)
    for group, words in groups:
        columns = np.zeros(len(group.auctions), np.int64)
        if words is not None:
            columns = draw_rows(words, rng.words(len(words)))
        chosen[group.auctions] = group.places[np.arange(len(columns)), columns]
    return chosen


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
