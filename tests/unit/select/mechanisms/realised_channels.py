"""The exact channel of a rule of selection: what its integers do for many states of a device."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from statistical.randomizer_checks import assert_private
from tulle.select.auctions import Auctions, FloatArray

WORD_VALUES = 2**64
FAR = 1e9
"""Beyond every bound: a raw score so far off is clipped."""


def one_auction(bids: Sequence[float], click_probs: Sequence[float], copies: int = 1) -> Auctions:
    """The same auction several times: the same public side, room for several devices."""
    size = len(bids)
    return Auctions(
        offsets=np.arange(copies + 1) * size,
        ads=np.tile(np.arange(size), copies),
        bids=np.tile(np.asarray(bids, float), copies),
        server_click_probs=np.tile(np.asarray(click_probs, float), copies),
    )


def telling_scores(auction: Auctions, *, seed: int, num_random: int = 40) -> FloatArray:
    """[states, candidates]: one candidate up and all others down, the reverse, and random ones."""
    size = auction.num_candidates
    sign = 2 * np.eye(size) - 1
    generator = np.random.default_rng(seed)
    centres = auction.server_scores
    spread = generator.lognormal(-1, 2, (num_random, 1))
    random = centres + spread * generator.normal(size=(num_random, size))
    equal = np.ones((1, size))
    return np.concatenate([FAR * sign, -FAR * sign, random, equal])


def realised_channel(
    mechanism: Any, bids: Sequence[float], click_probs: Sequence[float], scores: FloatArray
) -> list[list[Fraction]]:
    """The probabilities of all candidates that are ever chosen, one row a state, as exact
    fractions."""
    auctions = one_auction(bids, click_probs, copies=len(scores))
    words = np.zeros(auctions.num_candidates, object)
    for group, group_words in mechanism._words(auctions, scores.reshape(-1)):
        words[group.places] = WORD_VALUES if group_words is None else group_words.astype(object)
    rows = words.reshape(len(scores), -1)
    return [[Fraction(entry, WORD_VALUES) for entry in row] for row in _possible(rows)]


def _possible(rows: NDArray[np.object_]) -> Iterator[list[int]]:
    is_possible = (rows > 0).any(axis=0)
    yield from (row[is_possible].tolist() for row in rows)


def assert_realised_private(
    mechanism: Any, bids: Sequence[float], click_probs: Sequence[float], *, seed: int
) -> None:
    """No two states of a device differ by more than e^epsilon, by the integers of the draw."""
    assert_private(_telling_channel(mechanism, bids, click_probs, seed), mechanism.epsilon)


def assert_ratio_is_caught(
    mechanism: Any, bids: Sequence[float], click_probs: Sequence[float], *, seed: int
) -> None:
    """The same check refuses a mechanism, and for its ratios alone."""
    channel = _telling_channel(mechanism, bids, click_probs, seed)
    assert all(sum(row) == 1 for row in channel)
    with pytest.raises(AssertionError):
        assert_private(channel, mechanism.epsilon)


def _telling_channel(
    mechanism: Any, bids: Sequence[float], click_probs: Sequence[float], seed: int
) -> list[list[Fraction]]:
    scores = telling_scores(one_auction(bids, click_probs), seed=seed)
    return realised_channel(mechanism, bids, click_probs, scores)
