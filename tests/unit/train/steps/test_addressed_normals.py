"""Normals by address: the same address gives the same ones, different ones share nothing."""

import copy
import itertools
import os
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.train.steps.banded import AddressedNormals, device_offset

LARGE = (1 << 18) * 2 + 5


def drawn(
    normals: AddressedNormals,
    name: str = "a",
    step: int = 0,
    size: int = 40,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    values = torch.zeros(size, dtype=dtype)
    normals.add_to(values, name, [(step, 1.0)])
    return values


def test_an_address_always_gives_the_same_normals() -> None:
    normals = AddressedNormals(SeededNoise(1))
    first = drawn(normals, "a", 3)
    drawn(normals, "b", 3)
    drawn(normals, "a", 4)
    assert torch.equal(drawn(normals, "a", 3), first)


def test_normals_of_all_addresses_differ() -> None:
    normals = AddressedNormals(SeededNoise(1))
    found = [drawn(normals, name, step, LARGE) for name in "ab" for step in (0, 1, 2**40)]
    everything = torch.cat(found)
    # Two of a million single-precision normals are equal by chance now and then, not often.
    assert len(everything.unique()) > 0.9 * len(everything)
    chunks = [part for values in found for part in values.split(1 << 18)]
    starts = {tuple(part[:5].tolist()) for part in chunks}
    assert len(starts) == len(chunks)


def test_normals_of_a_long_tensor_do_not_depend_on_threads() -> None:
    before = torch.get_num_threads()
    results = []
    for num_threads in (1, 3):
        torch.set_num_threads(num_threads)
        results.append(drawn(AddressedNormals(SeededNoise(1)), size=LARGE))
    torch.set_num_threads(before)
    assert torch.equal(*results)


def test_terms_are_added_with_their_factors() -> None:
    normals = AddressedNormals(SeededNoise(1))
    one, two = (drawn(normals, step=step, dtype=torch.float64) for step in (1, 2))
    values = torch.ones(40, dtype=torch.float64)
    normals.add_to(values, "a", [(1, 0.5), (2, -3.0)])
    torch.testing.assert_close(values, 1 + 0.5 * one - 3 * two)


def test_no_terms_and_no_entries_change_nothing() -> None:
    normals = AddressedNormals(SeededNoise(1))
    values = torch.ones(3)
    normals.add_to(values, "a", [])
    normals.add_to(torch.zeros(0), "b", [(0, 1.0)])
    assert torch.equal(values, torch.ones(3))


def test_keys_are_fresh_for_every_object_and_name() -> None:
    asked = []

    class Counted(SeededNoise):
        def words(self, num_words: int) -> np.ndarray:
            asked.append(num_words)
            return super().words(num_words)

    source = Counted(3)
    one, other = AddressedNormals(source), AddressedNormals(source)
    assert not torch.equal(drawn(one), drawn(other))
    drawn(one)
    drawn(one, "b")
    assert asked == [4, 4, 4]


def test_a_step_at_the_end_of_a_word_goes_on_at_its_start() -> None:
    class Ones(SeededNoise):
        def words(self, num_words: int) -> np.ndarray:
            return np.full(num_words, 2**64 - 1, np.uint64)

    normals = AddressedNormals(Ones(0))
    assert not torch.equal(drawn(normals, step=0), drawn(normals, step=1))


def test_offsets_on_a_device_never_overlap() -> None:
    # A chunk of 2^24 normals moves a stream on by 4 a round; one block makes 512 in a round.
    longest = (1 << 24) // 512 * 4
    offsets = sorted(device_offset(step, chunk, 3) for step in range(5) for chunk in range(3))
    assert all(offset % 4 == 0 for offset in offsets)
    assert min(b - a for a, b in itertools.pairwise(offsets)) > longest
    with pytest.raises(ConfigError, match="beyond"):
        device_offset(2**50, 0, 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_addresses_on_a_device_share_nothing(dtype: torch.dtype) -> None:
    normals = AddressedNormals(SeededNoise(1))
    size = (1 << 24) + 1000

    def drawn_on_device(step: int) -> Tensor:
        values = torch.zeros(size, dtype=dtype, device="cuda")
        normals.add_to(values, "a", [(step, 1.0)])
        return values

    first = drawn_on_device(0)
    assert torch.equal(drawn_on_device(0), first)
    second = drawn_on_device(1)
    assert abs(float((first * second).mean())) < 6 / size**0.5
    assert abs(float(first.square().mean()) - 1) < 6 * (2 / size) ** 0.5
    stream = torch.Generator("cuda").manual_seed(1)
    stream.set_offset(device_offset(0, 0, 2))
    torch.empty(1 << 24, dtype=dtype, device="cuda").normal_(generator=stream)
    assert stream.get_offset() <= device_offset(0, 1, 2)


@pytest.mark.parametrize("spread", [copy.copy, copy.deepcopy, pickle.dumps])
def test_normals_cannot_be_copied_or_saved(spread: object) -> None:
    with pytest.raises(RunStateError, match="must not be copied"):
        spread(AddressedNormals(release_rng()))  # type: ignore[operator]


def test_nothing_secret_is_printed() -> None:
    assert repr(AddressedNormals(SeededNoise(1))) == "AddressedNormals()"


def test_a_forked_process_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    normals = AddressedNormals(SeededNoise(1))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RunStateError, match="another process"):
        drawn(normals)


@pytest.mark.parametrize(
    "values",
    [torch.zeros(3, dtype=torch.float16), torch.zeros(3, device="meta"), torch.zeros(4, 4).T[:2]],
    ids=["half precision", "another device", "not contiguous"],
)
def test_other_tensors_are_refused(values: Tensor) -> None:
    with pytest.raises(ConfigError, match="noise"):
        AddressedNormals(SeededNoise(1)).add_to(values, "a", [(0, 1.0)])
