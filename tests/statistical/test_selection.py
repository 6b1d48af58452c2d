"""Drawn choices of ads follow their stated probabilities, and what is wrong on purpose is
caught."""

import dataclasses
import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statistical import faulty_selection as faulty
from statistical.randomizer_checks import (
    assert_follows,
    assert_private,
    assert_rejects,
)
from statistical.selection_checks import all_scores, as_channel, exact_laws, same_auctions
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from tulle.select.mechanisms.slots import SlotMechanism
from unit.select.mechanisms.tiny_auctions import auctions_of

Choose = Callable[..., Any]

EPSILON = faulty.EPSILON
SERVER = [0.3, 0.9, 0.6, 0.5]
SCORES = [0.4, 0.1, 0.8, 0.5]
DEVICES = all_scores(3, len(SERVER))
# 5% of epsilon 1 moves chi-square by 5e-4 a draw, more than 200 in all; the limit is at 45.
NUM_DRAWS = 400_000
RESPONSE = FloorMechanism(epsilon=EPSILON)
SLOTS = SlotMechanism(epsilon=EPSILON, num_slots=2)


MEMBERS: list[Any] = [
    RESPONSE,
    FloorMechanism(epsilon=EPSILON, num_boosted=2),
    FloorMechanism(epsilon=EPSILON, num_boosted=3),
    FloorMechanism(epsilon=EPSILON, shortlist=TopCandidates(num_finalists=3)),
    FloorMechanism(epsilon=EPSILON, shortlist=Cutoff(gamma=0.5)),
    FloorMechanism(epsilon=EPSILON, shortlist=TopCandidates(num_finalists=3), num_boosted=2),
]
each_member = pytest.mark.parametrize("mechanism", MEMBERS, ids=lambda m: m.name)


def count_choices(choose: Choose, num_auctions: int, seed: int) -> np.ndarray:
    auctions = same_auctions(SERVER, num_auctions)
    chosen = choose(auctions, np.tile(SCORES, num_auctions), rng=SeededNoise(seed))
    return np.bincount(chosen - auctions.offsets[:-1], minlength=len(SERVER))


def exact_channel(choose: Choose) -> list[list[Fraction]]:
    """The probability of every candidate for all devices."""
    laws = exact_laws(choose, SERVER, DEVICES)
    return [[law.get(place, Fraction(0)) for place in range(len(SERVER))] for law in laws]


@each_member
def test_choices_follow_their_chances_and_not_those_of_a_5_percent_wrong_epsilon(
    mechanism: Any,
) -> None:
    counts = count_choices(mechanism.choose, NUM_DRAWS, seed=11)
    auctions = auctions_of(SERVER)

    def law(epsilon: float) -> list[float]:
        other = dataclasses.replace(mechanism, epsilon=epsilon)
        probs = other.selection_probs(auctions, np.array(SCORES))
        assert np.all(counts[probs == 0] == 0)
        return probs[probs > 0].tolist()

    possible = mechanism.selection_probs(auctions, np.array(SCORES)) > 0
    assert_follows(counts[possible], law(EPSILON))
    for factor in (0.95, 1.05):
        assert_rejects(counts[possible], law(factor * EPSILON))


@each_member
def test_realised_chances_are_private_and_the_stated_ones(mechanism: Any) -> None:
    laws = exact_laws(mechanism.choose, SERVER, DEVICES)
    assert_private(as_channel(laws), EPSILON)
    auctions = auctions_of(SERVER)
    for scores, law in zip(DEVICES, laws, strict=True):
        probs = mechanism.selection_probs(auctions, np.array(scores)).tolist()
        assert [float(law.get(place, 0)) for place in range(len(SERVER))] == probs


def test_pairs_of_slots_follow_their_chances_and_not_those_of_a_5_percent_wrong_epsilon() -> None:
    auctions = same_auctions(SERVER, NUM_DRAWS)
    shown = SLOTS.choose(auctions, np.tile(SCORES, NUM_DRAWS), rng=SeededNoise(12))
    shown -= auctions.offsets[:-1, np.newaxis]
    pairs = [(1, 2), (1, 3), (1, 0), (2, 3), (2, 0), (3, 0)]
    counts = [int(np.sum((shown == pair).all(axis=1))) for pair in pairs]
    assert sum(counts) == NUM_DRAWS

    def law(epsilon: float) -> list[float]:
        masses = dataclasses.replace(SLOTS, epsilon=epsilon).masses(4)
        losers = masses.floor_words / WORD_VALUES
        return [1 - 5 * losers if pair == (2, 3) else losers for pair in pairs]

    assert_follows(counts, law(EPSILON))
    for factor in (0.95, 1.05):
        assert_rejects(counts, law(factor * EPSILON))


def check_exactly(choose: Choose) -> None:
    """For all scores, ties included, the realised law is private and the stated one."""
    channel = exact_channel(choose)
    assert_private(channel, EPSILON)
    masses = RESPONSE.masses(len(SERVER))
    for row in channel:
        words = sorted(chance * WORD_VALUES for chance in row)
        assert words == [masses.floor_words] * 3 + [masses.boosted_words[0]]


def check_private(choose: Choose) -> None:
    """For all scores, ties included, the realised law is private."""
    assert_private(as_channel(exact_laws(choose, SERVER, DEVICES)), EPSILON)


def check_favourite_wins(choose: Choose) -> None:
    """The best private score has the largest probability."""
    channel = exact_channel(choose)
    for scores, row in zip(DEVICES, channel, strict=True):
        assert scores[row.index(max(row))] == max(scores)


def check_law(choose: Choose) -> None:
    """Counts of independent auctions."""
    probs = RESPONSE.selection_probs(auctions_of(SERVER), np.array(SCORES))
    assert_follows(count_choices(choose, 200_000, seed=13), probs.tolist())


def check_auctions_apart(choose: Choose) -> None:
    """Other scores of one device leave the choices of all others as they were."""
    auctions = same_auctions(SERVER, 50)
    scores = np.random.default_rng(14).random(auctions.num_candidates)
    before = choose(auctions, scores, rng=SeededNoise(15))
    for changed_auction in range(0, 50, 10):
        changed = scores.copy()
        changed[4 * changed_auction : 4 * changed_auction + 4] *= -30
        after = choose(auctions, changed, rng=SeededNoise(15))
        assert np.delete(before == after, changed_auction).all()


def check_slots_exactly(choose: Choose) -> None:
    """What all slots show, in their order, is private together."""
    devices = [(3, 2, 1, 0), (0, 1, 2, 3), (2, 0, 3, 1), (1, 1, 0, 0)]
    laws = exact_laws(functools.partial(choose, SLOTS), SERVER, devices)
    assert_private(as_channel(laws), EPSILON)


CHECKS = [check_exactly, check_private, check_favourite_wins, check_law, check_auctions_apart]
FAULTS: list[tuple[Choose, Callable[[Choose], None]]] = [
    (faulty.worst_score_boosted, check_favourite_wins),
    (faulty.worst_score_boosted, check_law),
    (faulty.ratio_inverted, check_favourite_wins),
    (faulty.ratio_inverted, check_law),
    (faulty.floor_rounded_down, check_exactly),
    (faulty.ties_boosted_together, check_exactly),
    (faulty.low_scores_dropped, check_exactly),
    (faulty.finalists_by_private_score, check_exactly),
    (faulty.finalists_by_private_score, check_law),
    (faulty.chances_as_32_bit_floats, check_exactly),
    (faulty.epsilon_counted_twice, check_exactly),
    (faulty.epsilon_ten_percent_too_large, check_exactly),
    (faulty.epsilon_ten_percent_too_large, check_law),
    (faulty.one_word_for_all_auctions, check_law),
    (faulty.best_of_the_batch_counts, check_auctions_apart),
    (faulty.caps_rounded_up, check_private),
    (faulty.slots_shown_by_private_score, check_slots_exactly),
    (faulty.slots_drawn_one_by_one_at_full_epsilon, check_slots_exactly),
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_right_choice_passes_every_check(check: Callable[[Choose], None]) -> None:
    check(RESPONSE.choose)


def test_the_right_slots_pass_their_check() -> None:
    check_slots_exactly(SlotMechanism.choose)


@pytest.mark.parametrize(
    ("choose", "check"), FAULTS, ids=[f"{f.__name__}-{c.__name__}" for f, c in FAULTS]
)
def test_planted_faults_are_caught(choose: Choose, check: Callable[[Choose], None]) -> None:
    with pytest.raises(AssertionError):
        check(choose)


def test_every_planted_fault_is_checked_above() -> None:
    planted = {
        value
        for name, value in vars(faulty).items()
        if callable(value)
        and getattr(value, "__module__", "") == faulty.__name__
        and not name.startswith("_")
    }
    assert planted == {fault for fault, _ in FAULTS}
