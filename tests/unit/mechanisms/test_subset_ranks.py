"""Label vectors and their numbers go back and forth without loss."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.subset_ranks import (
    MOST_VECTORS,
    check_vector_count,
    count_vectors,
    rank_vectors,
    unrank_vectors,
)


def vectors_within(num_rows: int, max_ones: int) -> list[tuple[int, ...]]:
    everything = itertools.product((0, 1), repeat=num_rows)
    return [vector for vector in everything if sum(vector) <= max_ones]


@pytest.mark.parametrize("num_rows", range(1, 9))
@pytest.mark.parametrize("max_ones", range(1, 9))
def test_every_vector_has_one_number_and_every_number_one_vector(
    num_rows: int, max_ones: int
) -> None:
    vectors = vectors_within(num_rows, max_ones)
    ranks = rank_vectors(vectors, max_ones)
    assert sorted(ranks.tolist()) == list(range(len(vectors)))
    assert count_vectors(num_rows, max_ones) == len(vectors)
    assert unrank_vectors(ranks, num_rows, max_ones).tolist() == [list(v) for v in vectors]


def test_fewer_ones_come_first_and_no_one_is_number_zero() -> None:
    vectors = unrank_vectors(np.arange(count_vectors(6, 3)), 6, 3)
    assert vectors[0].sum() == 0
    assert (np.diff(vectors.sum(axis=1).astype(int)) >= 0).all()


def test_one_conversion_is_numbered_by_its_row() -> None:
    vectors = np.concatenate([np.zeros((1, 7), int), np.eye(7, dtype=int)])
    assert rank_vectors(vectors, 1).tolist() == list(range(8))


@settings(max_examples=60)
@given(data=st.data(), max_ones=st.integers(1, 5))
def test_large_units_go_back_and_forth(data: st.DataObject, max_ones: int) -> None:
    longest = {1: 5000, 2: 3000, 3: 1500, 4: 500, 5: 200}[max_ones]
    num_rows = data.draw(st.integers(1, longest))
    most = count_vectors(num_rows, max_ones) - 1
    ranks = [*data.draw(st.lists(st.integers(0, most), max_size=20)), 0, most]
    vectors = unrank_vectors(ranks, num_rows, max_ones)
    assert vectors.sum(axis=1).max() <= max_ones
    assert rank_vectors(vectors, max_ones).tolist() == ranks


def test_the_largest_numbers_are_exact() -> None:
    # binom(92681, 2) + 92681 + 1 is the last count below 2^32.
    assert count_vectors(92_681, 2) <= MOST_VECTORS < count_vectors(92_682, 2)
    most = count_vectors(92_681, 2) - 1
    vectors = unrank_vectors([most, most - 1], 92_681, 2)
    assert np.flatnonzero(vectors[0]).tolist() == [92_679, 92_680]
    assert rank_vectors(vectors, 2).tolist() == [most, most - 1]


@pytest.mark.parametrize(("num_rows", "max_ones"), [(92_682, 2), (3000, 3), (33, 33), (40, 999)])
def test_more_vectors_than_can_be_told_apart_are_refused(num_rows: int, max_ones: int) -> None:
    with pytest.raises(ConfigError, match="lower max_conversions or cap the rows"):
        check_vector_count(num_rows, max_ones)


def test_all_vectors_of_32_rows_are_just_within_the_limit() -> None:
    assert check_vector_count(32, 32) == check_vector_count(32, 500) == 2**32
    assert check_vector_count(5, 2) == 1 + 5 + math.comb(5, 2)


def test_vectors_beyond_the_cap_and_numbers_beyond_the_last_are_refused() -> None:
    with pytest.raises(DataError, match="max_ones=1"):
        rank_vectors([[1, 1, 0]], 1)
    for bad in ([4], [-1]):
        with pytest.raises(DataError, match="no number of a vector"):
            unrank_vectors(bad, 3, 1)


def test_no_vectors_give_no_numbers() -> None:
    assert rank_vectors(np.zeros((0, 4), int), 2).tolist() == []
    assert unrank_vectors([], 4, 2).shape == (0, 4)
