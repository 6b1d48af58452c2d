import numpy as np
import pytest

from tulle.select.auctions import Auctions
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.expected_max import best_scores
from tulle.select.planner.ranked_rows import map_ranked_rows
from tulle.select.server_ranks import server_ranks
from unit.select.planner.small_markets import (
    drawn_click_probs,
    exact_expected_max,
    ragged_auctions,
    repeated_auction,
)


def expected_best_scores(auctions: Auctions, prior: LogitNormalPrior) -> np.ndarray:
    """[candidates], at the place of the candidate of rank k: E max over ranks up to k."""
    best = np.empty(auctions.num_candidates)
    for rows, values in map_ranked_rows(lambda rows: best_scores(rows, prior), auctions, prior):
        best[rows.places] = values
    return best


def exact_best_scores(auctions: Auctions, stddev: float) -> np.ndarray:
    logits = LogitNormalPrior(private_stddev=stddev).public_logits(auctions.server_click_probs)
    ranks = server_ranks(auctions)
    best = np.empty(auctions.num_candidates)
    for auction in range(len(auctions)):
        places = np.arange(auctions.offsets[auction], auctions.offsets[auction + 1])
        for place in places:
            first = places[ranks[places] <= ranks[place]]
            best[place] = exact_expected_max(auctions.bids[first], logits[first], stddev)
    return best


@pytest.mark.parametrize(
    ("mean_logit", "stddev"),
    [(-3.5, 0.1), (-3.5, 0.4), (-3.5, 1.0), (-8.0, 1.5), (-1.0, 0.6), (0.5, 0.5), (-3.5, 2.0)],
)
def test_every_prefix_agrees_with_adaptive_integration(mean_logit: float, stddev: float) -> None:
    auctions = ragged_auctions(
        6, seed=3, sizes=(1, 12), mean_logit=mean_logit, private_stddev=stddev
    )
    best = expected_best_scores(auctions, LogitNormalPrior(private_stddev=stddev))
    np.testing.assert_allclose(best, exact_best_scores(auctions, stddev), rtol=1e-4)


def test_many_auctions_and_sizes_keep_their_places() -> None:
    auctions = ragged_auctions(3_000, seed=4, sizes=(1, 4))
    prior = LogitNormalPrior(private_stddev=0.6)
    best = expected_best_scores(auctions, prior)
    for auction in (0, 1_234, 2_999):
        part = slice(*auctions.offsets[auction : auction + 2])
        alone = Auctions(
            offsets=np.array([0, part.stop - part.start]),
            ads=auctions.ads[part],
            bids=auctions.bids[part],
            server_click_probs=auctions.server_click_probs[part],
        )
        np.testing.assert_allclose(best[part], expected_best_scores(alone, prior), rtol=1e-13)


def test_it_agrees_with_drawn_devices() -> None:
    auctions = repeated_auction([1.0, 2.0, 0.5, 3.0], [0.05, 0.02, 0.09, 0.01], 100_000)
    scores = auctions.bids * drawn_click_probs(auctions, 0.8, seed=5)
    drawn = scores.reshape(-1, 4).max(axis=1)
    one = repeated_auction([1.0, 2.0, 0.5, 3.0], [0.05, 0.02, 0.09, 0.01], 1)
    last = int(np.argmax(server_ranks(one)))
    exact = expected_best_scores(one, LogitNormalPrior(private_stddev=0.8))[last]
    # 6.5 standard errors: 1e-9 with room for the skew of a mean of 100,000.
    allowed = 6.5 * drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean() - exact) < allowed
    for wrong in (0.95, 1.05):
        assert abs(drawn.mean() - exact * wrong) > allowed


def test_the_first_is_worth_its_server_score_exactly() -> None:
    auctions = ragged_auctions(50, seed=6)
    best = expected_best_scores(auctions, LogitNormalPrior(private_stddev=1.0))
    is_first = server_ranks(auctions) == 0
    assert np.array_equal(best[is_first], auctions.server_scores[is_first])


def test_ads_without_a_chance_or_a_bid_add_nothing() -> None:
    auctions = repeated_auction([1.0, 0.0, 4.0, 1.0], [0.1, 0.5, 0.0, 0.05], 1)
    best = expected_best_scores(auctions, LogitNormalPrior(private_stddev=0.5))
    assert best[1] == pytest.approx(best[3], rel=1e-12)
    assert best[2] == pytest.approx(best[3], rel=1e-12)
    worthless = repeated_auction([0.0, 1.0], [0.5, 0.0], 1)
    zeros = expected_best_scores(worthless, LogitNormalPrior(private_stddev=0.5))
    assert zeros.tolist() == [0.0, 0.0]


def test_a_sure_click_competes_with_uncertain_ones() -> None:
    auctions = repeated_auction([1.0, 3.0], [1.0, 0.3], 1)
    prior = LogitNormalPrior(private_stddev=0.5)
    logit = prior.public_logits(np.array([0.3]))[0]
    parts = np.linspace(-9, 9, 200_001)
    weights = np.exp(-(parts**2) / 2)
    scores = 3 / (1 + np.exp(-(logit + 0.5 * parts)))
    expected = float((np.maximum(scores, 1.0) * weights).sum() / weights.sum())
    assert expected_best_scores(auctions, prior)[1] == pytest.approx(expected, rel=2e-3)
