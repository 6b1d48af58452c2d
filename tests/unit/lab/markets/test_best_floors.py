import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.best_floors import best_floors
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.shortlists import TopCandidates
from tulle.select.planner.adaptive_shortlist import AdaptiveTop
from tulle.select.planner.click_prior import LogitNormalPrior
from unit.select.planner.small_markets import (
    drawn_click_probs,
    ragged_auctions,
    repeated_auction,
)

NUM_DEVICES = 96


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_two_opposite_devices_get_randomized_response(epsilon: float) -> None:
    best = best_floors(np.eye(2), epsilon=epsilon)
    loser = 1 / (1 + math.exp(epsilon))
    assert best.value == pytest.approx(1 - loser, rel=1e-7)
    assert best.floors == pytest.approx([loser, loser], rel=1e-6)


def test_devices_that_agree_get_what_they_want() -> None:
    best = best_floors(np.array([[0.2, 0.7, 0.1]] * 3), epsilon=0.1)
    assert best.value == pytest.approx(0.7)
    assert best.floors[[0, 2]] == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("stddev", [0.4, 1.0])
def test_an_adaptive_shortlist_is_close_to_the_best_rule_of_all(
    epsilon: float, stddev: float
) -> None:
    shares = []
    drawn = ragged_auctions(4, seed=41, sizes=(10, 10), private_stddev=stddev)
    for auction in range(len(drawn)):
        part = slice(*drawn.offsets[auction : auction + 2])
        auctions = repeated_auction(drawn.bids[part], drawn.server_click_probs[part], NUM_DEVICES)
        scores = auctions.bids * drawn_click_probs(auctions, stddev, seed=auction)
        bound = best_floors(scores.reshape(NUM_DEVICES, -1), epsilon=epsilon).value
        adaptive = AdaptiveTop(epsilon=epsilon, prior=LogitNormalPrior(private_stddev=stddev))
        for shortlist in (adaptive, *(TopCandidates(num_finalists=k) for k in range(1, 11))):
            probs = FloorMechanism(epsilon=epsilon, shortlist=shortlist).selection_probs(
                auctions, scores
            )
            share = float(probs @ scores) / NUM_DEVICES / bound
            assert share <= 1 + 1e-7
            if shortlist is adaptive:
                shares.append(share)
    assert np.mean(shares) >= 0.99
    assert min(shares) >= 0.97


@pytest.mark.parametrize("epsilon", [0.0, 51.0, math.nan])
def test_an_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        best_floors(np.eye(2), epsilon=epsilon)


@pytest.mark.parametrize("shape", [(3,), (0, 2), (1_000, 101)])
def test_scores_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="fewer devices"):
        best_floors(np.ones(shape), epsilon=1.0)
