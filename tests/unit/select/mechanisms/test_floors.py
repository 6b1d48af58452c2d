"""Probabilities, choices and cost of mechanisms with uniform floors."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import ScriptedNoise, exceeds_exp
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.thresholds import WORD_VALUES, loser_mass
from tulle.privacy.events import Composed, RandomizedResponse
from tulle.select.auctions import Auctions
from tulle.select.mechanisms.floors import BoostedMasses, FloorMechanism, boosted_masses
from tulle.select.mechanisms.shortlists import AllCandidates, Cutoff, TopCandidates
from unit.select.mechanisms.tiny_auctions import auctions_of, random_auctions

RAGGED = auctions_of([0.3, 0.9, 0.1, 0.5], [0.4], [0.2, 0.8], [0.6, 0.6, 0.6])
SHORTLISTS = [AllCandidates(), TopCandidates(num_finalists=2), Cutoff(gamma=0.5)]
MEMBERS = [
    FloorMechanism(epsilon=1.2, shortlist=shortlist, num_boosted=num_boosted)
    for shortlist in SHORTLISTS
    for num_boosted in (1, 2, 3)
]


def stated_probs(mechanism: FloorMechanism, auctions: Auctions, scores: list[float]) -> list[float]:
    """The closed form, auction by auction."""
    probs = [0.0] * auctions.num_candidates
    server, growth = auctions.server_scores, math.exp(mechanism.epsilon)
    kept = mechanism.shortlist.sizes(auctions)
    for auction in range(len(auctions)):
        places = range(auctions.offsets[auction], auctions.offsets[auction + 1])
        finalists = sorted(places, key=lambda place: (-server[place], place))[: kept[auction]]
        boosted = min(mechanism.num_boosted, max(len(finalists) - 1, 1))
        floor = 1 / (len(finalists) - boosted + boosted * growth)
        # sorted() is stable, so ties stay in server order.
        for rank, place in enumerate(sorted(finalists, key=lambda place: -scores[place])):
            probs[place] = floor * growth if rank < boosted else floor
    return probs


@pytest.mark.parametrize("mechanism", MEMBERS, ids=lambda m: m.name)
@settings(max_examples=30)
@given(scores=st.lists(st.integers(0, 3).map(float), min_size=10, max_size=10))
def test_chances_are_those_of_the_closed_form(
    mechanism: FloorMechanism, scores: list[float]
) -> None:
    probs = mechanism.selection_probs(RAGGED, np.array(scores))
    assert probs.tolist() == pytest.approx(stated_probs(mechanism, RAGGED, scores), abs=1e-15)
    assert np.add.reduceat(probs, RAGGED.offsets[:-1]) == pytest.approx(np.ones(4), abs=1e-15)


def test_randomized_response_has_its_known_expectation() -> None:
    epsilon, size = 3.0, 15
    rng = np.random.default_rng(1)
    auctions = random_auctions([size], seed=1)
    scores, values = rng.random(size), rng.random(size)
    probs = FloorMechanism(epsilon=epsilon).selection_probs(auctions, scores)
    normaliser = size - 1 + math.exp(epsilon)
    top = values[scores.argmax()]
    expected = (values.sum() + math.expm1(epsilon) * top) / normaliser
    assert probs @ values == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("mechanism", MEMBERS, ids=lambda m: m.name)
def test_chances_of_two_devices_differ_by_at_most_e_to_the_epsilon(
    mechanism: FloorMechanism,
) -> None:
    auctions = auctions_of([0.9, 0.7, 0.5, 0.1])
    laws = np.array(
        [
            mechanism.selection_probs(auctions, np.array(scores, float))
            for scores in itertools.product(range(3), repeat=4)
        ]
    )
    possible = laws[:, laws[0] > 0]
    assert np.all((laws > 0) == (laws[0] > 0))
    log_ratio = np.log(possible.max(axis=0) / possible.min(axis=0)).max()
    assert log_ratio <= mechanism.epsilon + 1e-12
    assert log_ratio >= mechanism.epsilon - 1e-12  # nothing is given away either


@pytest.mark.parametrize("mechanism", MEMBERS, ids=lambda m: m.name)
def test_an_auction_is_decided_by_its_own_scores_and_word_alone(mechanism: FloorMechanism) -> None:
    sizes = np.random.default_rng(2).integers(1, 7, 300)
    auctions = random_auctions(sizes.tolist(), seed=3)
    scores = np.random.default_rng(4).random(auctions.num_candidates)
    words = SeededNoise(5).words(300).tolist()
    chosen = mechanism.choose(auctions, scores, rng=ScriptedNoise(words.copy()))
    assert np.all((chosen >= auctions.offsets[:-1]) & (chosen < auctions.offsets[1:]))
    for auction in range(0, 300, 7):
        first, last = auctions.offsets[auction : auction + 2]
        alone = Auctions(
            offsets=np.array([0, last - first]),
            ads=auctions.ads[first:last],
            bids=auctions.bids[first:last],
            server_click_probs=auctions.server_click_probs[first:last],
        )
        rng = ScriptedNoise([words[auction]])
        assert first + mechanism.choose(alone, scores[first:last], rng=rng) == chosen[auction]
    assert np.all(mechanism.selection_probs(auctions, scores)[chosen] > 0)


def test_a_large_epsilon_always_takes_the_favourite() -> None:
    auctions = random_auctions([1, 5, 25], seed=1)
    scores = np.random.default_rng(2).random(31)
    best = [0, 1 + int(scores[1:6].argmax()), 6 + int(scores[6:].argmax())]
    for mechanism in (
        FloorMechanism(epsilon=600.0),
        FloorMechanism(epsilon=600.0, shortlist=TopCandidates(num_finalists=25), num_boosted=1),
    ):
        for word in (2**64 - 1, 2**63, 2**63 - 1, 2**32):
            chosen = mechanism.choose(auctions, scores, rng=ScriptedNoise([word] * 3))
            assert chosen.tolist() == best


def test_auctions_of_ten_thousand_candidates_are_decided() -> None:
    auctions = random_auctions([10_000, 3], seed=1)
    scores = np.random.default_rng(2).random(10_003)
    for mechanism in (
        FloorMechanism(epsilon=9.0),
        FloorMechanism(epsilon=1.0, num_boosted=4_000),
        FloorMechanism(epsilon=9.0, shortlist=TopCandidates(num_finalists=9_999)),
    ):
        assert mechanism.selection_probs(auctions, scores).sum() == pytest.approx(2, abs=1e-12)
        chosen = mechanism.choose(auctions, scores, rng=release_rng())
        assert 0 <= chosen[0] < 10_000 <= chosen[1] < 10_003


def test_no_auction_needs_no_choice() -> None:
    for mechanism in MEMBERS:
        assert mechanism.choose(auctions_of(), np.array([]), rng=release_rng()).shape == (0,)
        assert mechanism.selection_probs(auctions_of(), np.array([])).shape == (0,)


def response_profile(epsilon: float, num_values: Fraction | int, at: float) -> float:
    """Hockey-stick divergence of randomized response over so many values, 0 <= at <= epsilon."""
    return (math.exp(epsilon) - math.exp(at)) / (float(num_values) - 1 + math.exp(epsilon))


def largest_divergence(mechanism: FloorMechanism, size: int, at: float) -> float:
    """Over all pairs of boosted sets, with the sampler's own words."""
    masses = mechanism.masses(size)
    laws = []
    for boosted in itertools.combinations(range(size), masses.num_boosted):
        law = np.full(size, masses.floor_words / WORD_VALUES)
        law[list(boosted)] = [words / WORD_VALUES for words in masses.boosted_words]
        laws.append(law)
    return max(
        float(np.maximum(first - math.exp(at) * second, 0).sum())
        for first, second in itertools.permutations(laws, 2)
    )


@pytest.mark.parametrize("size", range(2, 8))
@pytest.mark.parametrize("num_boosted", range(1, 7))
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_cost_covers_every_pair_of_devices(size: int, num_boosted: int, epsilon: float) -> None:
    mechanism = FloorMechanism(epsilon=epsilon, num_boosted=num_boosted)
    event = mechanism.event(size)
    assert isinstance(event, RandomizedResponse)
    assert event.epsilon == epsilon
    for at in np.linspace(0, epsilon, 7):
        exact = largest_divergence(mechanism, size, at)
        assert exact <= response_profile(epsilon, event.num_values, at) + 1e-15
        if size % num_boosted == 0 and size >= 2 * num_boosted:
            profile = response_profile(epsilon, size // num_boosted, at)
            assert exact == pytest.approx(profile, abs=1e-12)


@pytest.mark.parametrize(("size", "num_boosted"), [(6, 2), (7, 3), (6, 3)])
def test_a_cost_of_more_values_would_be_too_low(size: int, num_boosted: int) -> None:
    mechanism = FloorMechanism(epsilon=1.0, num_boosted=num_boosted)
    # As if the favourites were one: the cost of randomized response over all finalists.
    assert largest_divergence(mechanism, size, 0.2) > response_profile(1.0, size, 0.2) + 1e-3


@pytest.mark.parametrize("num_boosted", [1, 2, 3, 10])
def test_more_finalists_never_cost_more(num_boosted: int) -> None:
    mechanism = FloorMechanism(epsilon=1.0, num_boosted=num_boosted)
    events = [mechanism.event(size) for size in range(2, 60)]
    values = [event.num_values for event in events if isinstance(event, RandomizedResponse)]
    assert len(values) == 58
    assert values == sorted(values)


def test_a_single_finalist_costs_nothing() -> None:
    assert FloorMechanism(epsilon=1.0).event(1) == Composed()
    assert FloorMechanism(epsilon=1.0, num_boosted=5).event(1) == Composed()
    with pytest.raises(ConfigError, match="num_finalists"):
        FloorMechanism(epsilon=1.0).event(0)


def test_more_boosted_are_better_for_many_like_candidates_and_a_small_epsilon() -> None:
    # One boosted gains (e - 1) (max - mean) / Z, here .008; d boosted of 100 gain .119.
    auctions = random_auctions([100] * 400, seed=6, num_levels=1)
    scores = np.random.default_rng(7).random(40_000)
    means = {
        num_boosted: float(
            FloorMechanism(epsilon=1.0, num_boosted=num_boosted).selection_probs(auctions, scores)
            @ scores
        )
        / 400
        for num_boosted in (1, 38)
    }
    assert means[1] == pytest.approx(0.508, abs=0.005)
    assert means[38] == pytest.approx(0.619, abs=0.005)


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("mechanism", MEMBERS[:2], ids=lambda m: m.name)
def test_a_hard_exclusion_is_refused_with_the_reason(mechanism: FloorMechanism, bad: float) -> None:
    scores = np.zeros(10)
    scores[3] = bad
    with pytest.raises(DataError, match="hard private exclusion is impossible"):
        mechanism.choose(RAGGED, scores, rng=release_rng())
    with pytest.raises(DataError, match="hard private exclusion is impossible"):
        mechanism.selection_probs(RAGGED, scores)


def test_fewer_scores_than_candidates_are_refused_with_the_reason() -> None:
    with pytest.raises(DataError, match="candidate set that depends on private data"):
        FloorMechanism(epsilon=1.0).choose(RAGGED, np.zeros(9), rng=release_rng())


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        FloorMechanism(epsilon=epsilon)


def test_boosting_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_boosted"):
        FloorMechanism(epsilon=1.0, num_boosted=0)


def test_the_name_has_all_settings() -> None:
    mechanism = FloorMechanism(epsilon=0.5, shortlist=TopCandidates(num_finalists=4), num_boosted=2)
    assert mechanism.name == "randomized response, top 4, 2 boosted, epsilon 0.5"
    assert FloorMechanism(epsilon=3.0).name == "randomized response, epsilon 3"


CASES = [
    (epsilon, size, num_boosted)
    for epsilon in (1e-4, 0.1, 1.0, 3.0, 9.7, 30.0, 44.3, 50.0, 90.0, 20_000.0)
    for size in (2, 3, 7, 100, 10_000)
    for num_boosted in (1, 2, 3, 50, 5_000, 9_999)
    if num_boosted < size
]


@pytest.mark.parametrize(("epsilon", "size", "num_boosted"), CASES)
def test_no_ratio_exceeds_e_to_the_epsilon(epsilon: float, size: int, num_boosted: int) -> None:
    masses = boosted_masses(epsilon, size, num_boosted)
    boosted = masses.boosted_words
    assert len(boosted) == num_boosted
    assert sum(boosted) + (size - num_boosted) * masses.floor_words == WORD_VALUES
    assert masses.floor_words < min(boosted)
    assert masses.realised_ratio == Fraction(max(boosted), masses.floor_words)
    assert not exceeds_exp(masses.realised_ratio, epsilon)
    # They are as good as equal, and lie behind the floors of all.
    assert max(boosted) - min(boosted) < num_boosted
    assert masses.first_boost == size * masses.floor_words < WORD_VALUES


@pytest.mark.parametrize(("epsilon", "size", "num_boosted"), CASES)
def test_a_floor_of_fewer_words_would_break_epsilon(
    epsilon: float, size: int, num_boosted: int
) -> None:
    floor = boosted_masses(epsilon, size, num_boosted).floor_words
    # The search may end a word or two above the least, where whole words do not divide evenly.
    lower = floor - (1 if num_boosted == 1 else 3)
    if lower >= 1:
        boosted = Fraction(WORD_VALUES - (size - num_boosted) * lower, num_boosted)
        assert exceeds_exp(boosted / lower, epsilon)


@pytest.mark.parametrize("size", [2, 5, 10_000])
def test_one_boosted_is_randomized_response(size: int) -> None:
    assert boosted_masses(1.3, size, 1).floor_words == loser_mass(1.3, size)


def test_boosting_all_boosts_all_but_one() -> None:
    assert boosted_masses(1.0, 4, 9) == boosted_masses(1.0, 4, 3)


def test_one_finalist_has_all_words() -> None:
    only = boosted_masses(1.0, 1, 3)
    assert only.boosted_words == (WORD_VALUES,)
    assert only.realised_ratio == 1


@pytest.mark.parametrize(("size", "num_boosted"), [(2, 1), (100, 1), (100, 50)])
def test_an_epsilon_that_words_cannot_express_is_refused(size: int, num_boosted: int) -> None:
    with pytest.raises(ConfigError, match="too small"):
        boosted_masses(1e-19, size, num_boosted)


@pytest.mark.parametrize(("size", "num_boosted"), [(3, 2), (5, 3), (5, 4)])
def test_a_boost_that_does_not_reach_all_boosted_is_refused(size: int, num_boosted: int) -> None:
    # The boost of the others would leave the last one no more words than its floor, or fewer.
    with pytest.raises(ConfigError, match="too small"):
        boosted_masses(3e-19, size, num_boosted)


def test_the_ratio_of_masses_rounded_the_wrong_way_is_seen() -> None:
    right = boosted_masses(1.0, 5, 1)
    wrong = BoostedMasses(
        num_finalists=5,
        num_boosted=1,
        floor_words=right.floor_words - 1,
        boost_words=right.boost_words + 5,
    )
    assert exceeds_exp(wrong.realised_ratio, 1.0)
