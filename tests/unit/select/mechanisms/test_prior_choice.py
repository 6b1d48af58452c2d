import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_follows,
    assert_rejects,
    exact_chances,
)
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Composed, RandomizedResponse
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.prior_choice import PriorChoice
from unit.select.mechanisms.realised_channels import (
    assert_realised_private,
    one_auction,
    realised_channel,
)

BIDS, CLICKS = [1.0, 2.0, 0.5, 3.0], [0.3, 0.2, 0.6, 0.1]
PRIOR = np.array([0.2, 0.45, 0.3, 0.05])


def tiled_prior(auctions: Auctions) -> FloatArray:
    return np.tile(PRIOR, len(auctions))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0])
def test_no_ratio_of_the_integers_exceeds_e_to_the_epsilon(epsilon: float) -> None:
    mechanism = PriorChoice(epsilon=epsilon, winner_probs=tiled_prior)
    assert_realised_private(mechanism, BIDS, CLICKS, seed=1)


def test_a_winner_outside_the_kept_is_answered_evenly() -> None:
    mechanism = PriorChoice(epsilon=1.0, winner_probs=PRIOR)
    auction = one_auction(BIDS, CLICKS)
    # Right answers over e: .45, .75 / (1 + 1/e) = .548, .95 / (1 + 2/e) = .547, 1 / (1 + 3/e).
    assert mechanism.kept_sizes(auction).tolist() == [2]
    outside = mechanism.selection_probs(auction, np.array([9.0, 1.0, 2.0, 3.0]))
    assert outside.tolist() == [0.0, 0.5, 0.5, 0.0]
    inside = mechanism.selection_probs(auction, np.array([1.0, 2.0, 9.0, 3.0]))
    assert inside == pytest.approx([0.0, 1 / (1 + math.e), math.e / (1 + math.e), 0.0], rel=1e-14)


def chance_of_truth(prior: FloatArray, epsilon: float, num_kept: int) -> float:
    """By going through all true winners."""
    order = np.argsort(-prior, kind="stable")[:num_kept]
    right = math.exp(epsilon) / (math.exp(epsilon) + num_kept - 1)
    return float(sum(prior[winner] * right for winner in order))


@settings(max_examples=100)
@given(
    epsilon=st.floats(0.05, 8),
    weights=st.lists(st.floats(0, 1), min_size=2, max_size=7).filter(lambda w: sum(w) > 0.1),
)
def test_the_number_kept_gives_most_true_answers(epsilon: float, weights: list[float]) -> None:
    prior = np.array(weights) / sum(weights)
    size = len(prior)
    mechanism = PriorChoice(epsilon=epsilon, winner_probs=prior)
    (kept,) = mechanism.kept_sizes(one_auction([1.0] * size, [0.5] * size)).tolist()
    best = max(chance_of_truth(prior, epsilon, count) for count in range(1, size + 1))
    assert chance_of_truth(prior, epsilon, kept) == pytest.approx(best, rel=1e-12)
    # The mechanism is right that often: one device for every winner, weighed by the prior.
    auctions = one_auction([1.0] * size, [0.5] * size, copies=size)
    everyone = PriorChoice(epsilon=epsilon, winner_probs=np.tile(prior, size))
    probs = everyone.selection_probs(auctions, np.eye(size).reshape(-1)).reshape(size, size)
    assert float(prior @ np.diag(probs)) == pytest.approx(best, rel=1e-12)


def test_an_even_prior_is_randomized_response_over_all() -> None:
    auctions = one_auction(BIDS, CLICKS, copies=3)
    raw = np.random.default_rng(1).random(12)
    mechanism = PriorChoice(epsilon=2.0, winner_probs=np.full(12, 0.25))
    np.testing.assert_array_equal(
        mechanism.selection_probs(auctions, raw),
        FloorMechanism(epsilon=2.0).selection_probs(auctions, raw),
    )


def test_a_sure_prior_keeps_one_and_tells_nothing() -> None:
    mechanism = PriorChoice(epsilon=1.0, winner_probs=np.array([0.0, 1.0, 0.0, 0.0]))
    auction = one_auction(BIDS, CLICKS)
    raw = np.array([9.0, 0.0, 0.0, 0.0])
    assert mechanism.choose(auction, raw, rng=SeededNoise(1)).tolist() == [1]
    assert mechanism.selection_probs(auction, raw).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_the_draw_has_exactly_the_words_that_were_checked() -> None:
    mechanism = PriorChoice(epsilon=3.0, winner_probs=tiled_prior)
    auction = one_auction(BIDS, CLICKS)
    for raw in (np.array([0.0, 1.0, 2.0, 0.0]), np.array([0.0, 1.0, 2.0, 9.0])):
        drawn = exact_chances(
            lambda word, raw=raw: int(mechanism.choose(auction, raw, rng=ScriptedNoise([word]))[0])
        )
        (row,) = realised_channel(mechanism, BIDS, CLICKS, raw[None])
        assert sorted(drawn.values()) == sorted(row)
        assert sum(row) == Fraction(1)


def test_draws_follow_the_stated_chances() -> None:
    num_draws = 300_000
    auctions = one_auction(BIDS, CLICKS, copies=num_draws)
    raw = np.tile([1.0, 2.0, 9.0, 3.0], num_draws)
    mechanism = PriorChoice(epsilon=1.5, winner_probs=tiled_prior)
    chosen = mechanism.choose(auctions, raw, rng=SeededNoise(2))
    counts = np.bincount(chosen % 4, minlength=4)
    probs = mechanism.selection_probs(auctions, raw)[:4]
    is_kept = probs > 0
    assert counts[~is_kept].sum() == 0
    assert_follows(counts[is_kept], probs[is_kept].tolist())
    other = PriorChoice(epsilon=1.05 * 1.5, winner_probs=PRIOR)
    wrong = other.selection_probs(one_auction(BIDS, CLICKS), raw[:4])
    assert_rejects(counts[is_kept], wrong[is_kept].tolist())


def test_a_decision_costs_at_most_a_binary_response() -> None:
    mechanism = PriorChoice(epsilon=1.5, winner_probs=PRIOR)
    assert mechanism.event(4) == RandomizedResponse(epsilon=1.5, num_values=2)
    assert mechanism.event(1) == Composed(())


@pytest.mark.parametrize(
    "prior", [np.array([0.5, 0.5, 0.5, 0.5]), np.array([1.5, -0.5, 0, 0]), np.full(4, np.nan)]
)
def test_a_prior_must_be_chances(prior: FloatArray) -> None:
    mechanism = PriorChoice(epsilon=1.0, winner_probs=prior)
    with pytest.raises(DataError, match="winner_probs"):
        mechanism.selection_probs(one_auction(BIDS, CLICKS), np.zeros(4))


def test_a_prior_of_other_auctions_is_refused() -> None:
    mechanism = PriorChoice(epsilon=1.0, winner_probs=PRIOR)
    with pytest.raises(ConfigError, match="winner_probs has shape"):
        mechanism.selection_probs(one_auction(BIDS, CLICKS, copies=2), np.zeros(8))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_must_be_positive(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        PriorChoice(epsilon=epsilon, winner_probs=PRIOR)
