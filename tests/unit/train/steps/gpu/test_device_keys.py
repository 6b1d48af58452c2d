"""Random words are those of Philox 4x32-10, and no two purposes share one."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.mechanisms.entropy import SeededNoise, Words
from tulle.train.steps.gpu.device_keys import (
    device_key,
    fill_normals,
    normal_pairs,
    philox,
    random_words,
    row_normals,
    uniforms,
    words,
)

CPU = torch.device("cpu")
ONES = 0xFFFFFFFF

# Random123 1.14.0, examples/kat_vectors: counter, key, words.
KNOWN = {
    "zeros": (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    "ones": (
        (ONES, ONES, ONES, ONES),
        (ONES, ONES),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}


class GivenWords:
    """A source of stated words that notes how many were taken."""

    is_secure = False
    description = "given words"

    def __init__(self, *values: int) -> None:
        self._left = list(values)

    def words(self, num_words: int) -> Words:
        taken, self._left = self._left[:num_words], self._left[num_words:]
        assert len(taken) == num_words, "more words than expected"
        return np.array(taken, dtype=np.uint64)


def tensors(values: tuple[int, ...]) -> list[Tensor]:
    return [torch.tensor([value]) for value in values]


def some_key(seed: int = 1) -> Tensor:
    return device_key(SeededNoise(seed), CPU)


def one_word_set(key: Tensor, entity: int, part: int, draw: int) -> list[int]:
    found = random_words(
        key, entity=torch.tensor([entity]), part=torch.tensor([part]), draw=torch.tensor([draw])
    )
    return [int(word) for word in found]


@pytest.mark.parametrize("name", KNOWN)
def test_known_answers_of_philox(name: str) -> None:
    counter, key, expected = KNOWN[name]
    assert tuple(int(word) for word in philox(tensors(counter), tensors(key))) == expected


def test_counters_of_a_tensor_are_each_computed_by_itself() -> None:
    counters = [torch.tensor(column) for column in zip(*(KNOWN[n][0] for n in KNOWN), strict=True)]
    keys = [torch.tensor(column) for column in zip(*(KNOWN[n][1] for n in KNOWN), strict=True)]
    found = torch.stack(philox(counters, keys), 1).tolist()
    assert found == [list(KNOWN[name][2]) for name in KNOWN]


def test_a_key_takes_128_bits_and_keeps_them_all() -> None:
    source = GivenWords(0x0123456789ABCDEF, 0xFEDCBA9876543210)
    assert device_key(source, CPU).tolist() == [0x89ABCDEF, 0x01234567, 0x76543210, 0xFEDCBA98]
    with pytest.raises(AssertionError, match="more words"):
        source.words(1)


def test_every_bit_of_a_key_matters() -> None:
    plain = one_word_set(torch.zeros(4, dtype=torch.int64), 3, 2, 1)
    for word in range(4):
        for bit in range(32):
            key = torch.zeros(4, dtype=torch.int64)
            key[word] = 1 << bit
            changed = one_word_set(key, 3, 2, 1)
            assert all(new != old for new, old in zip(changed, plain, strict=True))


def test_a_counter_is_laid_out_as_stated() -> None:
    key = torch.tensor([5, 6, 0x0F0F0F0F, 0x12345678])
    entity, part, draw = (7 << 32) + 9, 11, 13
    counter = (9, 11, 13 ^ 0x0F0F0F0F, 7 ^ 0x12345678)
    expected = [int(word) for word in philox(tensors(counter), tensors((5, 6)))]
    assert one_word_set(key, entity, part, draw) == expected


def test_no_two_counters_share_a_word_set() -> None:
    key = some_key()
    entity = torch.tensor([0, 1, 2, 2**31, 2**32, 2**32 + 1, 2**40]).view(-1, 1, 1)
    part = torch.tensor([0, 1, 5, 2**31, 2**32 - 1]).view(1, -1, 1)
    draw = torch.tensor([0, 1, 2, 2**31, 2**32 - 1]).view(1, 1, -1)
    found = torch.stack(random_words(key, entity=entity, part=part, draw=draw), -1).view(-1, 4)
    assert len({tuple(row) for row in found.tolist()}) == len(found) == 175
    assert bool(((found >= 0) & (found <= ONES)).all())


def test_words_of_later_draws_are_those_of_a_later_start() -> None:
    key = some_key()
    all_at_once = words(key, torch.tensor([4]), 3, 50)
    assert all_at_once.shape == (3, 50, 4)
    for number in range(3):
        assert torch.equal(words(key, torch.tensor([4 + number]), 1, 50)[0], all_at_once[number])
    assert len(set(all_at_once.flatten().tolist())) > 590


def test_bits_of_words_are_fair() -> None:
    found = words(some_key(), torch.tensor([0]), 4, 10_000).view(-1, 4)
    bits = (found.unsqueeze(-1) >> torch.arange(32)) & 1
    deviations = (bits.double().mean(0) - 0.5).abs() * 2 * math.sqrt(len(found))
    # The largest of 128 normals.
    assert float(deviations.max()) < 7


def test_uniforms_keep_64_bits_and_are_never_0() -> None:
    least, small, half = (
        float(uniforms(torch.tensor(high), torch.tensor(low)))
        for high, low in ((0, 0), (0, 5), (2**31, 0))
    )
    assert least == 2.0**-65
    assert small == 5.5 * 2.0**-64
    assert half == 0.5
    assert float(uniforms(torch.tensor(ONES), torch.tensor(ONES))) <= 1


@pytest.mark.parametrize(
    ("high", "low"), [(0, 0), (0, 1), (0, ONES), (1, 0), (77, 5), (2**20, 9), (2**31, 0)]
)
def test_a_radius_has_the_tail_of_its_uniform(high: int, low: int) -> None:
    uniform = (high * 2**32 + low + 0.5) / 2**64
    cosine, sine = normal_pairs(tensors((high, low, 2**29, 0)))
    expected = math.sqrt(-2 * math.log(uniform))
    assert float(torch.hypot(cosine, sine)) == pytest.approx(expected, rel=1e-6)
    # An eighth of a turn.
    assert float(cosine) == pytest.approx(float(sine), rel=1e-6)


def test_tails_reach_beyond_nine_deviations() -> None:
    cosine, _ = normal_pairs(tensors((0, 0, 0, 0)))
    assert float(cosine) > 9.4


def test_angles_go_round_once() -> None:
    quarters = torch.tensor([0, 2**30, 2**31, 3 * 2**30])
    cosine, sine = normal_pairs(
        [torch.full((4,), 2**31), torch.zeros(4).long(), quarters, quarters]
    )
    radius = math.sqrt(2 * math.log(2))
    torch.testing.assert_close(cosine / radius, torch.tensor([1.0, 0, -1, 0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(sine / radius, torch.tensor([0.0, 1, 0, -1]), atol=1e-6, rtol=0)


def filled(
    size: int, *, seed: int = 1, draw: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    values = torch.full((size,), math.nan, dtype=dtype)
    fill_normals(values, key=some_key(seed), draw=torch.tensor([draw]))
    return values


@pytest.mark.parametrize("size", [1, 2, 3, 8, 513])
def test_every_entry_is_filled_and_no_normal_comes_twice(size: int) -> None:
    values = filled(size)
    assert bool(values.isfinite().all())
    assert len(set(values.tolist())) == size


def test_other_keys_and_draws_give_other_normals() -> None:
    first = filled(101)
    for other in (filled(101, seed=2), filled(101, draw=1), filled(101, draw=2**32 - 1)):
        assert not bool((first == other).any())
    assert torch.equal(first, filled(101))


def test_a_table_is_filled_as_its_entries_in_a_row() -> None:
    values = torch.zeros(7, 3, dtype=torch.float64)
    fill_normals(values, key=some_key(), draw=torch.tensor([0]))
    assert torch.equal(values.view(-1), filled(21, dtype=torch.float64))


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 16, 33])
def test_normals_of_a_row_do_not_depend_on_its_place(dim: int) -> None:
    key, draw = some_key(), torch.tensor([3])
    rows = torch.tensor([5, 0, 2**33 + 1, 17])
    found = row_normals(key, rows, dim, draw)
    assert found.shape == (4, dim)
    assert len(set(found.flatten().tolist())) == 4 * dim
    assert torch.equal(row_normals(key, rows.flip(0), dim, draw), found.flip(0))
    assert torch.equal(row_normals(key, rows[2:3], dim, draw), found[2:3])
    assert not bool((row_normals(key, rows, dim, draw + 1) == found).any())
