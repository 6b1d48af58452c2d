import numpy as np
import pytest

from tulle.select.auctions import Auctions
from tulle.select.planner.candidate_outcomes import favourite_probs, top_probs
from tulle.select.planner.click_prior import LogitNormalPrior, map_ranked_rows
from unit.select.planner.small_markets import exact_top, ragged_auctions, repeated_auction


def found_and_exact(
    auctions: Auctions, stddev: float, num_top: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    prior = LogitNormalPrior(private_stddev=stddev)
    pairs = []
    found = map_ranked_rows(lambda rows: top_probs(rows, prior, num_top=num_top), auctions, prior)
    for rows, results in found:
        for row in range(len(rows.auctions)):
            exact = exact_top(rows.bids[row], rows.logits[row], stddev, num_top)
            pairs += [(result[row], value) for result, value in zip(results, exact, strict=True)]
    return pairs


@pytest.mark.parametrize("num_top", [1, 2, 3])
@pytest.mark.parametrize(("mean_logit", "stddev"), [(-3.5, 0.4), (-3.0, 1.0), (-0.5, 0.7)])
def test_chances_and_clicks_agree_with_integrals_over_private_parts(
    num_top: int, mean_logit: float, stddev: float
) -> None:
    auctions = ragged_auctions(
        3, seed=7, sizes=(4, 6), mean_logit=mean_logit, private_stddev=stddev
    )
    for found, exact in found_and_exact(auctions, stddev, num_top):
        np.testing.assert_allclose(found, exact, atol=1e-4)


def test_the_check_sees_one_too_many() -> None:
    auctions = ragged_auctions(1, seed=7, sizes=(5, 5), private_stddev=1.0)
    (found, _), _ = found_and_exact(auctions, 1.0, 1)
    (other, _), _ = found_and_exact(auctions, 1.0, 2)
    assert np.abs(found - other).max() > 0.1


@pytest.mark.parametrize("num_top", [1, 2, 4, 7])
def test_chances_add_up(num_top: int) -> None:
    auctions = ragged_auctions(200, seed=8, sizes=(1, 9))
    prior = LogitNormalPrior(private_stddev=0.6)
    for rows, (chances, clicks) in map_ranked_rows(
        lambda rows: top_probs(rows, prior, num_top=num_top), auctions, prior
    ):
        size = rows.bids.shape[1]
        np.testing.assert_allclose(chances.sum(axis=1), min(num_top, size), rtol=1e-12)
        assert np.all(clicks <= rows.click_probs)
        assert np.all(chances <= 1 + 1e-4)


def test_winner_chances_have_the_places_of_the_candidates() -> None:
    auctions = repeated_auction([1.0, 9.0, 1.0], [0.02, 0.02, 0.02], 3)
    chances = favourite_probs(auctions, LogitNormalPrior(private_stddev=0.3)).reshape(3, 3)
    assert np.all(chances.argmax(axis=1) == 1)
    np.testing.assert_allclose(chances[:, 0], chances[:, 2], atol=1e-9)


def test_where_nothing_can_be_won_the_first_is_the_winner() -> None:
    auctions = repeated_auction([0.0, 1.0, 1.0], [0.5, 0.0, 0.3], 1)
    assert favourite_probs(auctions, LogitNormalPrior(private_stddev=0.3)).tolist() == [0, 0, 1]
    worthless = repeated_auction([0.0, 1.0], [0.5, 0.0], 1)
    assert favourite_probs(worthless, LogitNormalPrior(private_stddev=0.3)).tolist() == [1, 0]
