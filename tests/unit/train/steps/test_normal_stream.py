"""Normals are what Box and Muller's formulas say, to the precision of a float, at every end."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tulle.train.steps import normal_stream
from tulle.train.steps.normal_stream import NormalStream, fill_pairs

LAST = 2**32 - 1
NEAR_ZERO, NEAR_ONE = 2**24, 2**32 - 2**23


def pairs(uniforms: list[int], angles: list[int], more: int = 2**63) -> NDArray[np.float32]:
    """[2, pairs]: what these words give, with the same bits for every end."""
    words = np.array([*uniforms, *angles], np.uint32)
    values = np.empty(len(words), np.float32)
    fill_pairs(values, words, lambda count: np.full(count, more, np.uint64))
    return values.reshape(2, -1)


def stream() -> NormalStream:
    return NormalStream(np.random.Philox(1))


def exact_radius(word: int, more: int) -> float:
    fraction = (more + 0.5) / 2**64 if word < NEAR_ZERO or word >= NEAR_ONE else 0.0
    if word < 2**31:
        return math.sqrt(-2 * math.log((word + fraction) / 2**32))
    return math.sqrt(-2 * math.log1p(-(2**32 - word - fraction) / 2**32))


EDGES = [0, 1, 2, 1000, NEAR_ZERO - 1, NEAR_ZERO, NEAR_ZERO + 1, 2**31 - 1, 2**31]
EDGES += [3 * 2**30, NEAR_ONE - 1, NEAR_ONE, NEAR_ONE + 1, LAST - 1000, LAST - 1, LAST]


@pytest.mark.parametrize("more", [0, 1, 2**40, 2**63, 2**64 - 2**11])
@pytest.mark.parametrize("angle", [0, 1, 2**29 + 5, 2**30, 2**31 - 1, 2**31, 3 * 2**30, LAST])
def test_every_word_gives_the_exact_pair(angle: int, more: int) -> None:
    found = pairs(EDGES, [angle] * len(EDGES), more).astype(np.float64)
    signed = angle if angle < 2**31 else angle - 2**32
    for word, first, second in zip(EDGES, *found, strict=True):
        radius = exact_radius(word, more)
        turn = math.pi * signed / 2**31
        # Of the radius in the middle a float knows 16 digits or more, of an angle 22.
        close = 1e-6 + 1e-6 * radius
        assert abs(first - radius * math.cos(turn)) < close
        assert abs(second - radius * math.sin(turn)) < close


def test_tails_go_on_where_32_bits_end() -> None:
    ends = [pairs([0], [0], more)[0, 0] for more in (2**64 - 2**11, 2**32, 1, 0)]
    assert ends == sorted(ends)
    assert ends[0] == pytest.approx(math.sqrt(64 * math.log(2)), rel=1e-6)
    assert ends[-1] == pytest.approx(math.sqrt(194 * math.log(2)), rel=1e-6)


def test_neighbours_in_the_tail_are_floats_apart_not_more() -> None:
    """With 32 bits alone the largest radius, 6.66, would stand 0.1 from the next one."""
    words = [0] * 1000
    more = np.linspace(2**58, 2**64 - 2**12, 1000).astype(np.uint64)
    values = np.empty(2000, np.float32)
    fill_pairs(values, np.array([*words, *words], np.uint32), lambda _: more)
    assert len(np.unique(values[:1000])) > 990
    assert np.abs(np.diff(np.sort(values[:1000]))).max() < 0.1


def test_evenly_spread_words_give_the_law_of_the_radius() -> None:
    """No chance in it: words at the middles of 2^18 steps, against exact quantiles."""
    num_steps = 2**18
    words = (np.arange(num_steps, dtype=np.uint64) * 2**14 + 2**13).astype(np.uint32)
    values = np.empty(2 * num_steps, np.float32)
    angles = np.zeros_like(words)
    fill_pairs(values, np.concatenate([words, angles]), lambda n: np.full(n, 0, np.uint64))
    radii = values[:num_steps].astype(np.float64)[::-1]
    exact = stats.rayleigh.ppf((np.arange(num_steps) + 0.5) / num_steps)
    np.testing.assert_allclose(radii, exact, rtol=1e-5, atol=1e-6)
    assert np.mean(radii**2) == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 1000, 1001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_entry_is_written(size: int, dtype: type) -> None:
    values = np.full(size, np.nan, dtype)
    stream().fill(values, 2.0)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) == size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adding_is_filling_and_a_sum(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal_stream, "PAIRS_AT_A_TIME", 50)
    filled, added = np.empty(333, dtype), np.full(333, 7, dtype)
    stream().fill(filled, 0.5)
    stream().add_to(added, 0.5)
    np.testing.assert_array_equal(added, 7 + filled)


def test_pieces_of_a_tensor_have_words_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal_stream, "PAIRS_AT_A_TIME", 50)
    values = np.empty(1000, np.float32)
    stream().fill(values, 1.0)
    assert len(np.unique(values)) == 1000
