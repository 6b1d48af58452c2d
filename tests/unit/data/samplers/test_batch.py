"""What samplers take and give, and the stream of words that they draw from."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

from tulle.data.samplers.batch import (
    Batch,
    SamplingStream,
    check_first_step,
    check_noise,
    check_sampling_prob,
    padded_batch,
    sampling_generator,
    unpadded_batch,
)
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.privacy.events import (
    Composed,
    Gaussian,
    PoissonSampled,
    Repeated,
    TruncatedPoissonSampled,
)

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


NOISE = Gaussian(noise_multiplier=1.0)


@pytest.mark.parametrize("prob", [0, -0.1, 1.1, 1e-13, math.nan, math.inf, "half", None, True])
def test_chances_that_cannot_be_drawn_are_refused(prob: Any) -> None:
    with pytest.raises(ConfigError, match="sampling_prob="):
        check_sampling_prob("sampling_prob", prob)


@pytest.mark.parametrize("step", [-1, 11, 1.0, True, None])
def test_a_first_step_outside_the_run_is_refused(step: Any) -> None:
    with pytest.raises(ConfigError, match="first_step="):
        check_first_step(step, 10)


def test_first_and_last_steps_are_fine() -> None:
    check_first_step(0, 10)
    check_first_step(10, 10)


@pytest.mark.parametrize(
    "noise",
    [
        None,
        1.0,
        PoissonSampled(sampling_prob=0.1, event=NOISE),
        Repeated(
            event=TruncatedPoissonSampled(
                sampling_prob=0.1, num_rows=10, max_batch_size=5, event=NOISE
            ),
            count=3,
        ),
        Composed((NOISE, PoissonSampled(sampling_prob=0.1, event=NOISE))),
    ],
)
def test_noise_that_is_sampled_already_is_refused(noise: Any) -> None:
    with pytest.raises(ConfigError, match="noise="):
        check_noise(noise)


def test_several_releases_of_one_batch_are_fine() -> None:
    check_noise(Composed((NOISE, Repeated(event=NOISE, count=2))))


def test_the_same_source_gives_the_same_words_and_another_gives_others() -> None:
    first, again, other = (SamplingStream(SeededNoise(s)).words(100) for s in (1, 1, 2))
    assert first.dtype == np.uint64
    assert np.array_equal(first, again)
    assert not np.intersect1d(first, other).size


def test_two_streams_of_one_source_are_unrelated() -> None:
    source = SeededNoise(1)
    first, second = (SamplingStream(source).words(100) for _ in range(2))
    assert not np.intersect1d(first, second).size


def test_the_operating_system_gives_a_new_key_each_time() -> None:
    first, second = (SamplingStream(release_rng()).words(100) for _ in range(2))
    assert not np.intersect1d(first, second).size


def test_key_and_start_are_all_the_words_that_were_drawn() -> None:
    drawn = SeededNoise(5).words(6)
    state = sampling_generator(SeededNoise(5)).bit_generator.state["state"]
    assert np.array_equal(state["key"], drawn[:2])
    assert np.array_equal(state["counter"], drawn[2:])


def test_a_stream_is_secure_if_its_source_is() -> None:
    assert SamplingStream(release_rng()).is_secure
    assert not SamplingStream(SeededNoise(0)).is_secure
    assert SamplingStream(SeededNoise(7)).description == "Philox keyed from fixed seed 7"


@pytest.mark.parametrize("spread", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_can_be_neither_copied_nor_saved(spread: object) -> None:
    with pytest.raises(RunStateError, match="must not be copied or saved"):
        spread(SamplingStream(release_rng()))  # type: ignore[operator]


def test_printing_a_stream_shows_no_word_of_its_key() -> None:
    key = SeededNoise(5).words(6)
    text = repr(SamplingStream(SeededNoise(5)))
    assert not any(str(word) in text or f"{word:x}" in text for word in key.tolist())


def test_a_subset_is_sorted_and_has_no_item_twice() -> None:
    stream = SamplingStream(SeededNoise(0))
    for size in (0, 1, 10, 50):
        subset = stream.subset(50, size)
        assert subset.dtype == np.int64
        assert subset.size == size
        assert (np.diff(subset) > 0).all()
