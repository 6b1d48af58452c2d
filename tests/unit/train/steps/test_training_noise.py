"""Training noise takes its key from the source, repeats with it, and gives it to nobody."""

import copy
import os
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise, Words, release_rng
from tulle.train.steps import training_noise as noise_module
from tulle.train.steps.training_noise import TrainingNoise

LARGE = 300_000


class CountedWords:
    is_secure = False
    description = "a test"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def words(self, num_words: int) -> Words:
        self.asked.append(num_words)
        return np.arange(num_words, dtype=np.uint64)


def drawn(noise: TrainingNoise, size: int) -> Tensor:
    values = torch.zeros(size)
    noise.add_to(values, 1.0)
    return values


@pytest.mark.parametrize("size", [1, 1000, LARGE])
def test_the_same_source_gives_the_same_noise_and_another_gives_other_noise(size: int) -> None:
    first, again, other = (drawn(TrainingNoise(SeededNoise(s)), size) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert (first != other).float().mean() > 0.99


def test_noise_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for num_threads in (1, 3, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=num_threads: n)
        results.append(drawn(TrainingNoise(SeededNoise(1)), LARGE))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_no_stretch_of_a_large_tensor_is_repeated() -> None:
    values = drawn(TrainingNoise(SeededNoise(1)), LARGE).numpy()
    pairs = np.unique(values[:-1].astype(np.float64) * 2**40 + values[1:])
    assert len(pairs) > 0.99 * len(values)


def test_no_two_streams_begin_at_the_same_place() -> None:
    """Single and double precision included: from one place both would make the same noise."""
    words = np.arange(4, dtype=np.uint64)
    begins = [
        tuple(noise_module._counter(words, number, kind).tolist())
        for number in range(noise_module._NUM_STREAMS)
        for kind in (0, 1)
    ]
    assert len(set(begins)) == len(begins) == 2 * noise_module._NUM_STREAMS


def test_two_noises_of_one_source_are_unrelated() -> None:
    source = SeededNoise(1)
    first, second = (drawn(TrainingNoise(source), 1000) for _ in range(2))
    assert (first != second).all()


def test_the_operating_system_gives_a_new_key_each_time() -> None:
    first, second = (drawn(TrainingNoise(release_rng()), 1000) for _ in range(2))
    assert (first != second).float().mean() > 0.99


def test_the_key_takes_256_bits_and_later_noise_none() -> None:
    source = CountedWords()
    noise = TrainingNoise(source)
    drawn(noise, 10)
    drawn(noise, LARGE)
    assert source.asked == [4]


def test_each_word_of_the_source_changes_the_noise() -> None:
    class OneBitAway(CountedWords):
        def __init__(self, changed: int) -> None:
            super().__init__()
            self.changed = changed

        def words(self, num_words: int) -> Words:
            words = super().words(num_words).copy()
            words[self.changed] ^= np.uint64(1 << 63)
            return words

    noises = [drawn(TrainingNoise(CountedWords()), 100)]
    noises += [drawn(TrainingNoise(OneBitAway(changed)), 100) for changed in range(4)]
    for index, first in enumerate(noises):
        for second in noises[index + 1 :]:
            assert (first != second).float().mean() > 0.9


def test_noise_is_secure_if_its_source_is() -> None:
    assert TrainingNoise(release_rng()).is_secure
    assert not TrainingNoise(SeededNoise(0)).is_secure
    assert TrainingNoise(SeededNoise(7)).description == (
        "fixed seed 7, expanded by Philox (fast, not cryptographic)"
    )


@pytest.mark.parametrize("spread", [copy.copy, copy.deepcopy, pickle.dumps])
def test_noise_can_be_neither_copied_nor_saved(spread: object) -> None:
    with pytest.raises(RunStateError, match="must not be copied or saved"):
        spread(TrainingNoise(release_rng()))  # type: ignore[operator]


def test_printing_noise_says_nothing() -> None:
    assert repr(TrainingNoise(SeededNoise(5))) == str(TrainingNoise(SeededNoise(6)))


def test_a_forked_process_cannot_add_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    noise, values = TrainingNoise(release_rng()), torch.zeros(3)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(RunStateError, match="another process"):
        noise.add_to(values, 1.0)
    assert values.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.complex64])
def test_values_of_other_types_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ConfigError, match="float32 or float64"):
        TrainingNoise(SeededNoise(1)).add_to(torch.zeros(3, dtype=dtype), 1.0)


def test_a_device_of_an_unknown_generator_is_refused() -> None:
    with pytest.raises(ConfigError, match="not on 'meta'"):
        TrainingNoise(SeededNoise(1)).add_to(torch.zeros(3, device="meta"), 1.0)


def test_an_expanded_tensor_whose_entries_share_memory_is_refused() -> None:
    one = torch.zeros(1, 4)
    with pytest.raises(ConfigError, match="own memory"):
        TrainingNoise(SeededNoise(1)).add_to(one.expand(3, 4), 1.0)
    assert one.eq(0).all()


def test_scalars_and_empty_tensors_have_their_place() -> None:
    noise = TrainingNoise(SeededNoise(1))
    scalar, empty = torch.zeros(()), torch.zeros(0, 4)
    noise.add_to(scalar, 1.0)
    noise.add_to(empty, 1.0)
    assert float(scalar) != 0


def test_noise_reaches_a_leaf_that_asks_for_gradients() -> None:
    for leaf in (torch.zeros(4, 3), torch.zeros(3, 4).T):
        leaf.requires_grad_()
        TrainingNoise(SeededNoise(1)).add_to(leaf, 1.0)
        assert (leaf.detach() != 0).all()


def test_noise_drawn_on_a_device_goes_on_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    # The generator of the CPU stands in for that of a device.
    monkeypatch.setattr(noise_module, "_CHUNK_ON_DEVICE", 16)
    values = torch.full((40,), 5.0)
    noise_module._add_on_device(values, 2.0, torch.Generator().manual_seed(3))
    stream = torch.Generator().manual_seed(3)
    normals = [torch.empty(size).normal_(generator=stream) for size in (16, 16, 8)]
    assert torch.allclose(values, 5.0 + 2.0 * torch.cat(normals))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_noise_on_a_gpu_has_its_own_key_and_the_stated_scale() -> None:
    source = CountedWords()
    noise = TrainingNoise(source)
    first, second = (torch.zeros(200, 200, device="cuda") for _ in range(2))
    noise.add_to(first, 1.5)
    noise.add_to(second.T, 1.5)
    assert source.asked == [4, 1]
    for values in (first, second):
        assert float(values.std()) == pytest.approx(1.5, rel=0.03)
    assert abs(float((first * second).mean())) < 0.07
