"""The favourite of each auction is the best by private, then by server score, then by order."""

import numpy as np
import pytest

from tulle.select.auctions import Auctions, FloatArray
from tulle.select.floors.favourites import favourites
from unit.select.floors.tiny_auctions import auctions_of, random_auctions


def favourites_one_by_one(auctions: Auctions, scores: FloatArray) -> list[int]:
    server = auctions.server_scores
    return [
        max(range(first, last), key=lambda place: (scores[place], server[place], -place))
        for first, last in zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True)
    ]


@pytest.mark.parametrize("num_levels", [0, 1, 3])
def test_favourites_are_those_of_a_loop_over_more_than_one_chunk(num_levels: int) -> None:
    sizes = np.random.default_rng(1).integers(1, 9, 40_000).tolist()
    auctions = random_auctions(sizes, seed=2, num_levels=num_levels)
    rng = np.random.default_rng(3)
    scores = rng.integers(-1, 2, sum(sizes)) / 2 if num_levels else rng.normal(size=sum(sizes))
    assert favourites(auctions, scores).tolist() == favourites_one_by_one(auctions, scores)


def test_ties_go_to_the_better_server_score_and_then_to_the_first() -> None:
    auctions = auctions_of([0.1, 0.3, 0.2], [0.5, 0.5], [0.1, 0.9])
    scores = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 3.0, -0.0])
    assert favourites(auctions, scores).tolist() == [1, 3, 5]


def test_plus_and_minus_zero_are_equal() -> None:
    assert favourites(auctions_of([0.1, 0.9]), np.array([0.0, -0.0])).tolist() == [1]


def test_no_auction_has_no_favourite() -> None:
    assert favourites(auctions_of(), np.array([])).tolist() == []
