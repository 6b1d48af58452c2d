import dataclasses
import itertools
import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, server_ranks
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.shortlists import Shortlist
from tulle.select.planner.click_prior import LogitNormalPrior, map_ranked_rows
from tulle.select.planner.shortlist_outcomes import AdaptiveTop, best_scores
from unit.select.planner.small_markets import (
    drawn_click_probs,
    exact_expected_max,
    ragged_auctions,
    repeated_auction,
)


def exact_values(auctions: Auctions, auction: int, stddev: float, epsilon: float) -> np.ndarray:
    """Expected score of randomized response over the first k of one auction, for every k."""
    places = np.arange(*auctions.offsets[auction : auction + 2])
    places = places[np.argsort(-auctions.server_scores[places], kind="stable")]
    logits = LogitNormalPrior(private_stddev=stddev).public_logits(auctions.server_click_probs)
    values = []
    for size in range(1, len(places) + 1):
        first = places[:size]
        best = exact_expected_max(auctions.bids[first], logits[first], stddev)
        total = auctions.server_scores[first].sum()
        values.append((total + math.expm1(epsilon) * best) / (size - 1 + math.exp(epsilon)))
    return np.array(values)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
@pytest.mark.parametrize(("mean_logit", "stddev"), [(-3.5, 0.4), (-3.5, 1.0), (-1.0, 0.6)])
def test_the_size_is_the_best_by_adaptive_integration(
    epsilon: float, mean_logit: float, stddev: float
) -> None:
    auctions = ragged_auctions(
        5, seed=11, sizes=(3, 14), mean_logit=mean_logit, private_stddev=stddev
    )
    prior = LogitNormalPrior(private_stddev=stddev)
    sizes = AdaptiveTop(epsilon=epsilon, prior=prior).sizes(auctions)
    for auction in range(len(auctions)):
        values = exact_values(auctions, auction, stddev, epsilon)
        assert values[sizes[auction] - 1] >= values.max() * (1 - 1e-3)


def test_the_check_sees_a_size_that_is_off_by_one() -> None:
    auctions = ragged_auctions(5, seed=11, sizes=(3, 14), private_stddev=1.0)
    sizes = AdaptiveTop(epsilon=2.0, prior=LogitNormalPrior(private_stddev=1.0)).sizes(auctions)
    losses = []
    for auction in range(len(auctions)):
        values = exact_values(auctions, auction, 1.0, 2.0)
        losses.append(1 - values[min(sizes[auction], len(values) - 1)] / values.max())
    assert max(losses) > 1e-2


def test_lists_grow_with_epsilon_and_with_what_devices_know() -> None:
    auctions = ragged_auctions(300, seed=12, sizes=(5, 25))
    prior = LogitNormalPrior(private_stddev=0.6)
    means = [
        AdaptiveTop(epsilon=epsilon, prior=prior).sizes(auctions).mean()
        for epsilon in (0.1, 1.0, 3.0, 6.0, 12.0)
    ]
    assert all(fewer < more for fewer, more in itertools.pairwise(means))
    stddevs = [
        AdaptiveTop(epsilon=3.0, prior=LogitNormalPrior(private_stddev=stddev))
        .sizes(auctions)
        .mean()
        for stddev in (0.05, 0.3, 1.0)
    ]
    assert all(fewer < more for fewer, more in itertools.pairwise(stddevs))


def test_one_finalist_is_enough_where_more_add_nothing() -> None:
    prior = LogitNormalPrior(private_stddev=0.5)
    shortlist = AdaptiveTop(epsilon=5.0, prior=prior)
    assert shortlist.sizes(repeated_auction([1.0], [0.1], 2)).tolist() == [1, 1]
    assert shortlist.sizes(repeated_auction([0.0, 1.0], [0.1, 0.0], 1)).tolist() == [1]
    assert shortlist.sizes(repeated_auction([1.0, 1.0], [0.1, 1e-9], 1)).tolist() == [1]


def test_sizes_do_not_depend_on_the_other_auctions_of_a_batch() -> None:
    auctions = ragged_auctions(1_500, seed=15, sizes=(2, 12), mean_logit=-1.0, public_stddev=1.5)
    shortlist = AdaptiveTop(epsilon=2.5, prior=LogitNormalPrior(private_stddev=0.6))
    sizes = shortlist.sizes(auctions)
    for step in (1, 7, 100):
        for first in range(0, 300, step):
            places = slice(auctions.offsets[first], auctions.offsets[first + step])
            batch = Auctions(
                offsets=auctions.offsets[first : first + step + 1] - places.start,
                ads=auctions.ads[places],
                bids=auctions.bids[places],
                server_click_probs=auctions.server_click_probs[places],
            )
            assert np.array_equal(shortlist.sizes(batch), sizes[first : first + step])


def test_sizes_do_not_depend_on_the_order_of_candidates() -> None:
    auctions = ragged_auctions(100, seed=13, sizes=(7, 7))
    shuffled = np.random.default_rng(1).permuted(np.arange(700).reshape(100, 7), axis=1).ravel()
    other = dataclasses.replace(
        auctions,
        bids=auctions.bids[shuffled],
        server_click_probs=auctions.server_click_probs[shuffled],
    )
    shortlist = AdaptiveTop(epsilon=2.0, prior=LogitNormalPrior(private_stddev=0.6))
    assert np.array_equal(shortlist.sizes(auctions), shortlist.sizes(other))


def worst_log_ratio(auctions: Auctions, shortlists: tuple[Shortlist, ...]) -> float:
    """Over candidates, between a device and its replacement, each with its own shortlist."""
    probs = [
        FloorMechanism(epsilon=2.0, shortlist=shortlist).selection_probs(
            auctions, auctions.bids * drawn_click_probs(auctions, 1.0, seed)
        )
        for seed, shortlist in zip((1, 2), shortlists, strict=True)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nanmax(np.abs(np.log(probs[0] / probs[1]))))


@dataclasses.dataclass(frozen=True)
class FavouritesOnly:
    """Planted fault: a shortlist that follows the device."""

    seed: int
    name = "faulty"

    def sizes(self, auctions: Auctions) -> np.ndarray:
        scores = auctions.bids * drawn_click_probs(auctions, 1.0, self.seed)
        above = scores > np.repeat(
            np.maximum.reduceat(auctions.server_scores, auctions.offsets[:-1]), auctions.sizes
        )
        return np.maximum(np.add.reduceat(above.astype(int), auctions.offsets[:-1]), 1)


def test_choices_from_it_stay_within_epsilon_and_a_private_shortlist_would_not() -> None:
    auctions = ragged_auctions(500, seed=14, sizes=(2, 9))
    public = AdaptiveTop(epsilon=2.0, prior=LogitNormalPrior(private_stddev=1.0))
    assert worst_log_ratio(auctions, (public, public)) <= 2.0
    assert worst_log_ratio(auctions, (FavouritesOnly(1), FavouritesOnly(2))) > 2.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        AdaptiveTop(epsilon=epsilon, prior=LogitNormalPrior(private_stddev=0.5))


def test_the_name_has_the_settings() -> None:
    shortlist = AdaptiveTop(epsilon=2.0, prior=LogitNormalPrior(private_stddev=0.5))
    assert shortlist.name == "adaptive, private stddev 0.5"


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
