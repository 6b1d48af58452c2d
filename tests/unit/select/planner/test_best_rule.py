"""Shortlists beside the best that any private rule could do in one auction.

Every rule within epsilon has a public floor m_y for each candidate and probabilities in [m_y,
e^epsilon m_y]; conversely all probabilities within such bounds are private. So the best rule for
equally likely devices is a linear programme. It knows these devices, which no real rule does: its
value is an upper bound for them.
"""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

from tulle.select.auctions import FloatArray
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.shortlists import TopCandidates
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.shortlist_outcomes import AdaptiveTop
from unit.select.planner.small_markets import (
    drawn_click_probs,
    ragged_auctions,
    repeated_auction,
)

NUM_DEVICES = 96


def best_floors(scores: FloatArray, *, epsilon: float) -> tuple[FloatArray, float]:
    """Floors with the largest mean score over [devices, candidates], and that score."""
    num_devices, num_candidates = scores.shape
    # Probabilities of all devices first, then caps: floors are e^epsilon times smaller.
    bounds_of_probs, sums = constraints(num_devices, num_candidates, math.exp(-epsilon))
    weights = np.concatenate([-scores.ravel() / num_devices, np.zeros(num_candidates)])
    result = linprog(
        weights,
        A_ub=bounds_of_probs,
        b_ub=np.zeros(2 * scores.size),
        A_eq=sums,
        b_eq=np.ones(num_devices),
        method="highs",
    )
    caps = np.asarray(result.x[-num_candidates:])
    return caps * math.exp(-epsilon), float(-weights @ result.x)


def constraints(num_devices: int, num_candidates: int, floor_per_cap: float) -> tuple[Any, Any]:
    """Probabilities are at most the caps and at least floor_per_cap times them, and add up to 1."""
    cells = np.arange(num_devices * num_candidates)
    caps = len(cells) + cells % num_candidates
    num_variables = len(cells) + num_candidates
    entries = np.repeat([1.0, -1.0, -1.0, floor_per_cap], len(cells))
    lines = np.concatenate([cells, cells, len(cells) + cells, len(cells) + cells])
    columns = np.concatenate([cells, caps, cells, caps])
    bounds = csr_array((entries, (lines, columns)), shape=(2 * len(cells), num_variables))
    places = (cells // num_candidates, cells)
    sums = csr_array((np.ones(len(cells)), places), shape=(num_devices, num_variables))
    return bounds, sums


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_two_opposite_devices_get_randomized_response(epsilon: float) -> None:
    floors, value = best_floors(np.eye(2), epsilon=epsilon)
    loser = 1 / (1 + math.exp(epsilon))
    assert value == pytest.approx(1 - loser, rel=1e-7)
    assert floors == pytest.approx([loser, loser], rel=1e-6)


def test_devices_that_agree_get_what_they_want() -> None:
    floors, value = best_floors(np.array([[0.2, 0.7, 0.1]] * 3), epsilon=0.1)
    assert value == pytest.approx(0.7)
    assert floors[[0, 2]] == pytest.approx([0, 0], abs=1e-9)


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
        _, bound = best_floors(scores.reshape(NUM_DEVICES, -1), epsilon=epsilon)
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
