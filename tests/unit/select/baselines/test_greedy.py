import math

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Composed, NonPrivate
from tulle.select.auctions import Auctions
from tulle.select.baselines.greedy import Greedy, NonPersonalised

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
