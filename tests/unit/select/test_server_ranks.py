"""Ranks count from the best score of each auction; ties by order."""

import numpy as np

from tulle.select.server_ranks import ranks_of, server_ranks
from unit.select.floors.tiny_auctions import auctions_of, random_auctions


def test_ranks_are_those_of_each_auction() -> None:
    auctions = auctions_of([0.1, 0.9, 0.5], [0.3], [0.2, 0.2, 0.4])
    assert server_ranks(auctions).tolist() == [2, 0, 1, 0, 1, 2, 0]


def test_ranks_agree_with_a_loop_over_auctions_with_many_ties() -> None:
    auctions = random_auctions([5, 1, 3, 5, 2] * 40, seed=1, num_levels=2)
    scores = np.random.default_rng(2).integers(-1, 2, auctions.num_candidates).astype(float)
    ranks = ranks_of(auctions, scores)
    for first, last in zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True):
        order = sorted(range(first, last), key=lambda place: (-scores[place], place))
        assert [ranks[place] for place in order] == list(range(last - first))


def test_bids_and_clicks_both_count() -> None:
    auctions = random_auctions([4], seed=3)
    best = int((auctions.bids * auctions.server_click_probs).argmax())
    assert server_ranks(auctions).tolist().index(0) == best
