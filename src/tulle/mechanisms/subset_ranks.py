"""Numbers for label vectors with few ones, and the way back.

Vectors of a fixed length with at most C ones are numbered from 0: first those
with fewer ones, then by the combinatorial number system, in which ones at the
places p1 < p2 < … < pc have the number binom(p1, 1) + … + binom(pc, c). All of
it is integer arithmetic on whole columns, so millions of vectors take moments.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError

IntArray = NDArray[np.int64]
BitMatrix = NDArray[np.uint8]

MOST_VECTORS = 2**32
"""Largest number of vectors that are told apart: their numbers then fit a noise word by far."""


def count_vectors(num_rows: int, max_ones: int) -> int:
    """How many vectors of this length have at most `max_ones` ones."""
    return sum(math.comb(num_rows, ones) for ones in range(min(max_ones, num_rows) + 1))


def check_vector_count(num_rows: int, max_ones: int) -> int:
    """The number of vectors; refuses more than can be told apart."""
    # Past 33 ones there are too many whatever the length; the sum is never run through for long.
    num_vectors = count_vectors(num_rows, min(max_ones, 33))
    if num_vectors > MOST_VECTORS:
        raise ConfigError(
            f"num_rows={num_rows} with at most max_conversions={max_ones} conversions give more "
            f"than 2^32 label vectors; lower max_conversions or cap the rows of a unit."
        )
    return num_vectors


def rank_vectors(vectors: ArrayLike, max_ones: int) -> IntArray:
    """The number of each vector, a row of zeros and ones with at most `max_ones` ones."""
    bits = np.asarray(vectors).astype(np.bool_, copy=False)
    num_vectors, num_rows = bits.shape
    check_vector_count(num_rows, max_ones)
    owners, places, numbers = ones_of(bits)
    if numbers.size and numbers.max() >= max_ones:
        raise DataError(f"a vector has more than max_ones={max_ones} ones; cap it first.")
    offsets = _offsets(num_rows, max_ones)
    ranks = offsets[np.bincount(owners, minlength=num_vectors)]
    for index, column in enumerate(_binomials(num_rows, max_ones)):
        is_next = numbers == index
        ranks[owners[is_next]] += column[places[is_next]]
    return ranks


def unrank_vectors(ranks: ArrayLike, num_rows: int, max_ones: int) -> BitMatrix:
    """The vector of each number, one row of zeros and ones for each.

    Args:
      ranks: Numbers that `rank_vectors` gave.
      num_rows: Length of a vector.
      max_ones: Most ones of a vector.
    """
    checked = np.asarray(ranks, np.int64)
    if checked.size and not 0 <= checked.min() <= checked.max() < count_vectors(num_rows, max_ones):
        raise DataError("ranks have entries that are no number of a vector; use rank_vectors().")
    offsets = _offsets(num_rows, max_ones)
    num_ones = np.searchsorted(offsets, checked, side="right") - 1
    rest = checked - offsets[num_ones]
    vectors = np.zeros((checked.size, num_rows), np.uint8)
    columns = _binomials(num_rows, max_ones)
    for ones in range(len(columns), 0, -1):
        owners = np.flatnonzero(num_ones >= ones)
        # The last one stands at the place that remains; others at the largest that fits.
        places = (
            rest[owners]
            if ones == 1
            else np.searchsorted(columns[ones - 1], rest[owners], side="right") - 1
        )
        vectors[owners, places] = 1
        rest[owners] -= columns[ones - 1][places]
    return vectors


def ones_of(bits: NDArray[np.bool_]) -> tuple[IntArray, IntArray, IntArray]:
    """The ones of all vectors: the vector, the place, and how many ones come before it there."""
    owners, places = np.nonzero(bits)
    is_first = np.ones(owners.size, np.bool_)
    is_first[1:] = owners[1:] != owners[:-1]
    starts = np.flatnonzero(is_first)
    counts = np.diff(starts, append=owners.size)
    return owners, places, np.arange(owners.size) - np.repeat(starts, counts)


def _offsets(num_rows: int, max_ones: int) -> IntArray:
    """The first number of the vectors with 0, 1, … ones."""
    counts = [math.comb(num_rows, ones) for ones in range(min(max_ones, num_rows) + 1)]
    return np.cumsum([0, *counts[:-1]], dtype=np.int64)


def _binomials(num_rows: int, max_ones: int) -> list[IntArray]:
    """binom(place, ones) for every place, one column for each number of ones from 1 on."""
    columns = [np.arange(num_rows, dtype=np.int64)]
    while len(columns) < min(max_ones, num_rows):
        # binom(p, c + 1) is the sum of binom(q, c) over q < p.
        columns.append(np.concatenate([[0], np.cumsum(columns[-1])[:-1]]))
    return columns
