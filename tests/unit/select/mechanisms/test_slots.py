"""Several slots: sets are drawn with their exact probabilities, and shown in server order."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_private,
    exceeds_exp,
)
from statistical.selection_checks import all_scores, as_channel, exact_laws
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import RandomizedResponse
from tulle.select.auctions import Auctions
from tulle.select.mechanisms.shortlists import TopCandidates, finalist_groups, finalist_sizes
from tulle.select.mechanisms.slots import NO_AD, SlotMechanism
from unit.select.mechanisms.tiny_auctions import auctions_of, random_auctions

SERVER = [0.2, 0.8, 0.5, 0.9]
SERVER_ORDER = [3, 1, 2, 0]


def best_set(scores: tuple[float, ...], num_slots: int) -> frozenset[int]:
    order = sorted(SERVER_ORDER, key=lambda place: -scores[place])
    return frozenset(order[:num_slots])


def inclusion_probs(mechanism: SlotMechanism, auctions: Auctions, scores: np.ndarray) -> np.ndarray:
    """[candidates], the probability to be shown in some slot; adds up to the ads shown."""
    probs = np.zeros(auctions.num_candidates)
    for group in finalist_groups(auctions, finalist_sizes(auctions, mechanism.shortlist)):
        size = group.places.shape[1]
        num_shown = min(mechanism.num_slots, size)
        masses = mechanism.masses(size)
        floor_words = math.comb(size - 1, num_shown - 1) * masses.floor_words
        best = np.argsort(-scores[group.places], axis=1, kind="stable")[:, :num_shown]
        probs[group.places] = floor_words / WORD_VALUES
        best_words = floor_words + WORD_VALUES - masses.first_boost
        probs[np.take_along_axis(group.places, best, axis=1)] = best_words / WORD_VALUES
    return probs


@pytest.mark.parametrize("num_slots", [1, 2, 3])
def test_every_set_has_its_exact_chance_for_all_private_orders(num_slots: int) -> None:
    mechanism = SlotMechanism(epsilon=1.0, num_slots=num_slots)
    auctions = auctions_of(SERVER)
    sets = list(itertools.combinations(SERVER_ORDER, num_slots))
    masses = mechanism.masses(4)
    devices = all_scores(3, 4)
    laws = exact_laws(mechanism.choose, SERVER, devices)
    for scores, law in zip(devices, laws, strict=True):
        # Shown ads are always in server order, so no other tuples come up.
        assert set(law) == set(sets)
        truth = best_set(scores, num_slots)
        for shown, chance in law.items():
            is_truth = frozenset(shown) == truth
            words = masses.boosted_words[0] if is_truth else masses.floor_words
            assert chance == Fraction(words, WORD_VALUES)
        inclusion = inclusion_probs(mechanism, auctions, np.array(scores))
        for place in range(4):
            exact = sum(chance for shown, chance in law.items() if place in shown)
            assert inclusion[place] == pytest.approx(float(exact), abs=1e-15)
    assert_private(as_channel(laws), 1.0)


def test_shortlists_and_ragged_auctions_show_finalists_alone() -> None:
    mechanism = SlotMechanism(epsilon=2.0, num_slots=3, shortlist=TopCandidates(num_finalists=5))
    sizes = np.random.default_rng(1).integers(1, 10, 400).tolist()
    auctions = random_auctions(sizes, seed=2)
    scores = np.random.default_rng(3).random(sum(sizes))
    shown = mechanism.choose(auctions, scores, rng=SeededNoise(4))
    inclusion = inclusion_probs(mechanism, auctions, scores)
    server = auctions.server_scores
    for auction, row in enumerate(shown.tolist()):
        places = range(auctions.offsets[auction], auctions.offsets[auction + 1])
        finalists = sorted(places, key=lambda place: -server[place])[:5]
        num_shown = min(3, len(finalists))
        assert row[num_shown:] == [NO_AD] * (3 - num_shown)
        assert len(set(row[:num_shown])) == num_shown
        ranks = [finalists.index(place) for place in row[:num_shown]]
        assert ranks == sorted(ranks)
        assert inclusion[list(places)].sum() == pytest.approx(num_shown, abs=1e-12)
        if len(finalists) <= 3:
            assert inclusion[finalists].tolist() == [1.0] * num_shown


def test_an_auction_is_decided_by_its_own_scores_and_word_alone() -> None:
    mechanism = SlotMechanism(epsilon=1.0, num_slots=2)
    auctions = auctions_of(SERVER, [0.5, 0.1, 0.3], SERVER)
    scores = np.random.default_rng(1).random(11)
    shown = mechanism.choose(auctions, scores, rng=ScriptedNoise([2**62, 2**60, 2**63]))
    changed = scores.copy()
    changed[4:7] = changed[4:7][::-1]
    again = mechanism.choose(auctions, changed, rng=ScriptedNoise([2**62, 2**64 - 1, 2**63]))
    assert shown[[0, 2]].tolist() == again[[0, 2]].tolist()
    assert shown[1].tolist() != again[1].tolist()


@pytest.mark.parametrize(("size", "num_slots"), [(5, 4), (70, 68), (70, 2), (40, 8)])
def test_all_numbers_of_sets_lead_to_sets(size: int, num_slots: int) -> None:
    mechanism = SlotMechanism(epsilon=3.0, num_slots=num_slots)
    masses = mechanism.masses(size)
    num_sets = math.comb(size, num_slots)
    assert masses.num_finalists == num_sets
    assert not exceeds_exp(masses.realised_ratio, 3.0)
    numbers = np.unique(np.linspace(0, num_sets - 1, 2_000).astype(np.int64)).tolist()
    auctions = random_auctions([size] * len(numbers), seed=1)
    words = [number * masses.floor_words for number in numbers]
    shown = mechanism.choose(auctions, np.zeros(auctions.num_candidates), rng=ScriptedNoise(words))
    server = auctions.server_scores.reshape(-1, size)
    ranks = np.argsort(np.argsort(-server, axis=1), axis=1)
    sets = np.take_along_axis(ranks, shown - size * np.arange(len(numbers))[:, None], axis=1)
    assert np.all(np.diff(sets, axis=1) > 0)
    assert len({tuple(row) for row in sets.tolist()}) == len(numbers)


def expected_of_sequence(scores: tuple[float, ...], num_slots: int, epsilon: float) -> float:
    """Randomized response for one slot after the other, each among those that are left."""
    if num_slots == 0:
        return 0.0
    normaliser = len(scores) - 1 + math.exp(epsilon)
    top = max(range(len(scores)), key=scores.__getitem__)
    return sum(
        (math.exp(epsilon) if place == top else 1)
        / normaliser
        * (score + expected_of_sequence(_without(scores, place), num_slots - 1, epsilon))
        for place, score in enumerate(scores)
    )


def _without(scores: tuple[float, ...], place: int) -> tuple[float, ...]:
    return scores[:place] + scores[place + 1 :]


@pytest.mark.parametrize("epsilon", [3.0, 5.0, 8.0])
def test_one_draw_for_all_slots_beats_one_draw_for_each(epsilon: float) -> None:
    num_slots, size, num_devices = 3, 6, 30
    scores = np.random.default_rng(1).random((num_devices, size))
    auctions = random_auctions([size] * num_devices, seed=1)
    mechanism = SlotMechanism(epsilon=epsilon, num_slots=num_slots)
    together = inclusion_probs(mechanism, auctions, scores.ravel()) @ scores.ravel()
    one_by_one = sum(
        expected_of_sequence(tuple(row), num_slots, epsilon / num_slots) for row in scores.tolist()
    )
    uniform = num_slots * scores.mean() * num_devices
    ideal = np.sort(scores, axis=1)[:, -num_slots:].sum()
    assert uniform < one_by_one < together < ideal
    # The difference is no accident of rounding: it is several points of the possible gain.
    assert (together - one_by_one) / (ideal - uniform) > 0.03


def test_the_cost_is_that_of_a_response_over_all_sets() -> None:
    mechanism = SlotMechanism(epsilon=1.0, num_slots=3)
    assert mechanism.event(15) == RandomizedResponse(epsilon=1.0, num_values=455)
    assert mechanism.event(4) == RandomizedResponse(epsilon=1.0, num_values=4)
    # "At least 2" allows for 4, so it is never free.
    for size in (1, 2, 3):
        assert mechanism.event(size) == RandomizedResponse(epsilon=1.0, num_values=4)
    assert mechanism.name == "randomized response over sets, 3 slots, epsilon 1"


def test_too_many_sets_are_refused_with_a_way_out() -> None:
    mechanism = SlotMechanism(epsilon=1.0, num_slots=10)
    with pytest.raises(ConfigError, match=r"more than 2\^32 sets.*TopCandidates"):
        mechanism.event(100)
    with pytest.raises(ConfigError, match=r"more than 2\^32 sets.*TopCandidates"):
        mechanism.choose(random_auctions([100], seed=1), np.zeros(100), rng=release_rng())


@pytest.mark.parametrize(("epsilon", "num_slots"), [(0.0, 2), (math.inf, 2), (1.0, 0)])
def test_settings_that_are_none_are_refused(epsilon: float, num_slots: int) -> None:
    with pytest.raises(ConfigError, match=r"epsilon|num_slots"):
        SlotMechanism(epsilon=epsilon, num_slots=num_slots)


def test_a_hard_exclusion_is_refused_with_the_reason() -> None:
    mechanism = SlotMechanism(epsilon=1.0, num_slots=2)
    scores = np.array([0.0, -math.inf, 0.0, 0.0])
    with pytest.raises(DataError, match="hard private exclusion"):
        mechanism.choose(auctions_of(SERVER), scores, rng=release_rng())
