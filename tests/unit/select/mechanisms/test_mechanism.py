import math

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Composed, NonPrivate
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, favourites
from unit.select.mechanisms.tiny_auctions import auctions_of, random_auctions

AUCTIONS = Auctions(
    offsets=np.array([0, 3, 4, 6]),
    ads=np.arange(6),
    bids=np.array([1.0, 2.0, 3.0, 1.0, 2.0, 4.0]),
    server_click_probs=np.array([0.5, 0.4, 0.1, 0.2, 0.4, 0.2]),
)
RAW = np.array([0.2, 0.1, 0.9, 0.3, 0.5, 0.4])


def test_greedy_takes_the_devices_favourite() -> None:
    assert Greedy().choose(AUCTIONS, RAW, rng=SeededNoise(0)).tolist() == [2, 3, 4]
    assert Greedy().selection_probs(AUCTIONS, RAW).tolist() == [0, 0, 1, 1, 1, 0]


def test_favourites_that_tie_go_to_the_better_server_score() -> None:
    tied = np.array([0.5, 0.5, 0.5, 0.3, 0.0, 0.0])
    assert Greedy().choose(AUCTIONS, tied, rng=SeededNoise(0)).tolist() == [1, 3, 4]


def test_not_personalised_takes_the_servers_winner_whatever_a_device_holds() -> None:
    for raw in (RAW, -RAW, np.zeros(6)):
        assert NonPersonalised().choose(AUCTIONS, raw, rng=SeededNoise(0)).tolist() == [1, 3, 4]
        assert NonPersonalised().selection_probs(AUCTIONS, raw).tolist() == [0, 1, 0, 1, 1, 0]


def test_greedy_is_not_private_and_the_servers_winner_costs_nothing() -> None:
    assert Greedy().epsilon == math.inf
    assert Greedy().event(5) == NonPrivate()
    assert NonPersonalised().epsilon == 0
    assert NonPersonalised().event(5) == Composed(())


@pytest.mark.parametrize("mechanism", [Greedy(), NonPersonalised()])
def test_every_candidate_needs_a_score(mechanism: Greedy | NonPersonalised) -> None:
    with pytest.raises(DataError, match="raw_scores"):
        mechanism.selection_probs(AUCTIONS, RAW[:-1])


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
