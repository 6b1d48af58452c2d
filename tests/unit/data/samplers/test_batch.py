"""A batch is padded with rows of weight zero and does not show who is in it."""

import numpy as np
import pytest

from tulle.data.samplers.batch import Batch, padded_batch, unpadded_batch
from tulle.errors import ConfigError

ROWS = np.array([3, 5, 8])


def test_padding_points_at_row_zero_with_weight_zero() -> None:
    batch = padded_batch(ROWS, 5, 2.5)
    assert batch.indices.tolist() == [3, 5, 8, 0, 0]
    assert batch.weights.tolist() == [1, 1, 1, 0, 0]
    assert batch.indices.dtype == np.int64
    assert batch.weights.dtype == np.float32
    assert batch.num_sampled == 3
    assert batch.expected_size == 2.5


def test_row_zero_itself_has_weight_one() -> None:
    batch = padded_batch(np.array([0]), 2, 1.0)
    assert batch.weights.tolist() == [1, 0]


def test_a_batch_without_padding_is_as_long_as_its_rows() -> None:
    assert unpadded_batch(ROWS, 2.5).weights.tolist() == [1, 1, 1]
    assert unpadded_batch(ROWS[:0], 2.5).num_sampled == 0


def test_printing_a_batch_shows_neither_rows_nor_their_number() -> None:
    text = repr(padded_batch(ROWS, 7, 2.5))
    assert text == "Batch(expected_size=2.5)"


def test_vectors_of_different_length_are_refused() -> None:
    with pytest.raises(ConfigError, match="same length"):
        Batch(indices=ROWS, weights=np.ones(2, np.float32), expected_size=1.0)
