"""The vectorised fill has the words of the exact one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.select.floors.filled_rows import cap_words, fill_rows
from tulle.select.floors.greedy_fill import WORD_VALUES, Floors, cap_factor, fill, floor_words

EXTREMES = [0, 1, 2, 3, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(EXTREMES) | st.integers(0, 2**64 - 1), min_size=1, max_size=20),
    st.sampled_from([1e-90, 1e-12, 0.3, 1.0, 22.18, 22.19, 44.3, 44.4, 70.0, 5000.0])
    | st.floats(1e-3, 60),
)
def test_caps_are_exact_for_all_words(floors: list[int], epsilon: float) -> None:
    caps = cap_words(np.array(floors, np.uint64), epsilon)
    exact = [floor * cap_factor(epsilon) // WORD_VALUES for floor in floors]
    assert caps.tolist() == [min(cap, WORD_VALUES - 1) for cap in exact]


@settings(max_examples=60)
@given(st.integers(1, 8), st.floats(0.01, 50), st.floats(1e-3, 1), st.integers(0, 2**32))
def test_rows_have_the_words_of_the_exact_fill(
    size: int, epsilon: float, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    chances = rng.random((9, size)) * rng.integers(0, 2, (9, size)) + 1e-12
    least = min(np.exp(-epsilon) * 1.01 + 1e-9, 1.0)
    chances *= ((least + share * (1 - least)) / chances.sum(axis=1))[:, None]
    scores = rng.integers(0, 4, (9, size)).astype(float)
    floors = floor_words(chances, epsilon)
    words = fill_rows(floors, scores, epsilon=epsilon)
    for row in range(9):
        exact = Floors(epsilon=epsilon, words=tuple(floors[row].tolist()))
        filled = fill(exact, scores[row].tolist())
        assert words[row].tolist() == [min(w, WORD_VALUES - 1) for w in filled]


@pytest.mark.parametrize("floors", [[[2**63, 2**63 + 1]], [[2**60, 2**60]], [[0, 0]]])
def test_floors_that_no_mechanism_has_are_refused(floors: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="add up"):
        fill_rows(np.array(floors, np.uint64), np.zeros((1, 2)), epsilon=1.0)


@pytest.mark.parametrize("epsilon", [1e-90, 1e-30])
def test_an_epsilon_near_zero_lets_no_candidate_rise(epsilon: float) -> None:
    floors = np.array([[2**62, 2**63, 2**62 - 1]], np.uint64)
    assert cap_words(floors, epsilon).tolist() == floors.tolist()
    with pytest.raises(ConfigError, match="add up"):
        fill_rows(floors, np.zeros((1, 3)), epsilon=epsilon)
