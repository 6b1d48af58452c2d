"""The sampling stream takes its key from the source and gives it to nobody."""

import copy
import pickle

import numpy as np
import pytest

from tulle.data.samplers.sampling_rng import SamplingStream, sampling_generator
from tulle.errors import RunStateError
from tulle.mechanisms.entropy import SeededNoise, release_rng


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
