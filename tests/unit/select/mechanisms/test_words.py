"""A draw gives every candidate its words, all of them and no others."""

import itertools

import numpy as np
import pytest

from statistical.randomizer_checks import exact_chances
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.select.mechanisms.words import draw_rows, words_of


@pytest.mark.parametrize(
    "words",
    [
        [WORD_VALUES // 4, WORD_VALUES // 2, WORD_VALUES // 4],
        [0, WORD_VALUES // 3, 0, WORD_VALUES - WORD_VALUES // 3, 0],
        [WORD_VALUES - 1, 1],
        [1, WORD_VALUES - 2, 1],
        [0, WORD_VALUES, 0],
        [WORD_VALUES],
    ],
)
def test_every_word_leads_to_one_candidate_with_its_exact_chance(words: list[int]) -> None:
    kept = np.array([[min(entry, WORD_VALUES - 1) for entry in words]], np.uint64)
    chances = exact_chances(lambda word: int(draw_rows(kept, np.array([word], dtype=np.uint64))[0]))
    found = [chances.get(column, 0) * WORD_VALUES for column in range(len(words))]
    assert found == words


def test_rows_are_drawn_on_their_own() -> None:
    rng = np.random.default_rng(7)
    words = words_of(rng.dirichlet(np.ones(5), 1_000) * 0.9 + 0.02)
    drawn = rng.integers(0, 2**64, 1_000, dtype=np.uint64)
    # At the ends of shares too, where one word less or more leads to somebody else.
    first = words[:, 0].copy()
    drawn[:200], drawn[200:400] = first[:200], first[200:400] - np.uint64(1)
    expected = []
    for row, word in zip(words.tolist(), drawn.tolist(), strict=True):
        expected.append(sum(word >= end for end in itertools.accumulate(row)))
    chosen = draw_rows(words, drawn)
    assert chosen.tolist() == expected
    assert set(chosen[:200].tolist()) == {1}
    assert set(chosen[200:400].tolist()) == {0}
