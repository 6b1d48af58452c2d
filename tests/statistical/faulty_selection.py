"""Choices of ads that are wrong on purpose. The checks must catch each one.

Each takes what `FloorMechanism.choose` takes, and means randomized response at epsilon 1.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.thresholds import WORD_VALUES, exponential_bounds, loser_mass
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.slots import SlotMechanism

EPSILON = 1.0


def worst_score_boosted(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """The sign of the scores is lost."""
    return FloorMechanism(epsilon=EPSILON).choose(auctions, -raw, rng=rng)


def ratio_inverted(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """The favourite has e^-epsilon of the probability of others."""

    def words(scores: Sequence[float]) -> list[int]:
        floor = math.floor(WORD_VALUES / (1 + (len(scores) - 1) * math.exp(EPSILON)))
        return _boost(scores, [_first_best(scores)], (WORD_VALUES - floor) // (len(scores) - 1))

    return _draw(auctions, raw, rng, words)


def floor_rounded_down(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """One word of 2^64 too few for each loser."""

    def words(scores: Sequence[float]) -> list[int]:
        floor = loser_mass(EPSILON, len(scores)) - 1
        return _boost(scores, [_first_best(scores)], floor)

    return _draw(auctions, raw, rng, words)


def ties_boosted_together(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """Every one of equal favourites has the probability of a favourite; the losers have the
    rest."""

    def words(scores: Sequence[float]) -> list[int]:
        tops = [place for place, score in enumerate(scores) if score == max(scores)]
        top = WORD_VALUES - (len(scores) - 1) * loser_mass(EPSILON, len(scores))
        if len(tops) * top >= WORD_VALUES or len(tops) == len(scores):
            return _boost(scores, [tops[0]], loser_mass(EPSILON, len(scores)))
        floor = (WORD_VALUES - len(tops) * top) // (len(scores) - len(tops))
        return _boost(scores, tops, floor)

    return _draw(auctions, raw, rng, words)


def low_scores_dropped(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """The device leaves out what it would never want, and responds over the others."""

    def words(scores: Sequence[float]) -> list[int]:
        kept = [place for place, score in enumerate(scores) if score > 0]
        if len(kept) < 2:
            return _boost(scores, [_first_best(scores)], loser_mass(EPSILON, len(scores)))
        floor = loser_mass(EPSILON, len(kept))
        boosted = _boost([scores[place] for place in kept], [0], floor)
        law = [0] * len(scores)
        for place, entry in zip(kept, boosted, strict=True):
            law[place] = entry
        return law

    return _draw(auctions, raw, rng, words)


def finalists_by_private_score(
    auctions: Auctions, raw: FloatArray, *, rng: NoiseSource
) -> IntArray:
    """A shortlist of the device's own best three."""

    def words(scores: Sequence[float]) -> list[int]:
        order = sorted(range(len(scores)), key=lambda place: -scores[place])[:3]
        law = [0] * len(scores)
        for place in order:
            law[place] = loser_mass(EPSILON, len(order))
        law[order[0]] = WORD_VALUES - sum(law) + law[order[0]]
        return law

    return _draw(auctions, raw, rng, words)


def chances_as_32_bit_floats(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """Thresholds and uniform numbers have 24 bits."""

    def words(scores: Sequence[float]) -> list[int]:
        floor = np.float32(1 / (len(scores) - 1 + math.exp(EPSILON)))
        return _boost(scores, [_first_best(scores)], math.floor(Fraction(float(floor)) * 2**64))

    return _draw(auctions, raw, rng, words)


def epsilon_counted_twice(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """The exponent of a sensitivity of two, where it is not needed."""
    return FloorMechanism(epsilon=2 * EPSILON).choose(auctions, raw, rng=rng)


def epsilon_ten_percent_too_large(
    auctions: Auctions, raw: FloatArray, *, rng: NoiseSource
) -> IntArray:
    """A little less private than stated."""
    return FloorMechanism(epsilon=1.1 * EPSILON).choose(auctions, raw, rng=rng)


def one_word_for_all_auctions(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """The whole batch shares its noise."""

    class Shared:
        is_secure = False
        description = "shared"

        def words(self, num_words: int) -> NDArray[np.uint64]:
            return np.repeat(rng.words(1), num_words)

    return FloorMechanism(epsilon=EPSILON).choose(auctions, raw, rng=Shared())


def best_of_the_batch_counts(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """Scores are normalised and rounded by the largest of all auctions together."""
    rounded = np.round(raw / np.abs(raw).max() * 4)
    return FloorMechanism(epsilon=EPSILON).choose(auctions, rounded, rng=rng)


def caps_rounded_up(auctions: Auctions, raw: FloatArray, *, rng: NoiseSource) -> IntArray:
    """A greedy fill above floors by place, with the next whole number above e^epsilon each."""
    floors = [words // 10 for words in (WORD_VALUES, 2 * WORD_VALUES, WORD_VALUES, WORD_VALUES)]

    def words(scores: Sequence[float]) -> list[int]:
        law = list(floors)
        for place in sorted(range(len(law)), key=lambda place: -scores[place]):
            _, above = exponential_bounds(EPSILON)
            cap = math.ceil(above * floors[place])
            law[place] += min(cap - floors[place], WORD_VALUES - sum(law))
        return law

    return _draw(auctions, raw, rng, words)


def slots_shown_by_private_score(
    mechanism: SlotMechanism, auctions: Auctions, raw: FloatArray, *, rng: NoiseSource
) -> IntArray:
    """The best private score comes first."""
    shown = mechanism.choose(auctions, raw, rng=rng)
    return np.take_along_axis(shown, np.argsort(-raw[shown], axis=1, kind="stable"), axis=1)


def slots_drawn_one_by_one_at_full_epsilon(
    mechanism: SlotMechanism, auctions: Auctions, raw: FloatArray, *, rng: NoiseSource
) -> IntArray:
    """Each slot spends all of epsilon: the set of both is told by more."""
    shown = np.empty((len(auctions), mechanism.num_slots), np.int64)
    words = rng.words(len(auctions)).tolist()
    for auction, word in enumerate(words):
        left = list(range(auctions.offsets[auction], auctions.offsets[auction + 1]))
        for slot in range(mechanism.num_slots):
            floor = loser_mass(mechanism.epsilon, len(left))
            number = min(word // floor, len(left))
            best = max(left, key=lambda place: raw[place])
            place = left[number] if number < len(left) else best
            # The place within its interval is uniform again, and draws the next slot.
            start, width = number * floor, floor
            if number == len(left):
                width = WORD_VALUES - start
            word = (word - start) * WORD_VALUES // width
            shown[auction, slot] = place
            left.remove(place)
        server = auctions.server_scores
        shown[auction] = sorted(shown[auction], key=lambda place: (-server[place], place))
    return shown


def _first_best(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=lambda place: (scores[place], -place))


def _boost(scores: Sequence[float], boosted: list[int], floor: int) -> list[int]:
    """`floor` words for all others, the rest shared by the boosted."""
    rest = WORD_VALUES - (len(scores) - len(boosted)) * floor
    law = [floor] * len(scores)
    for place in boosted:
        law[place] = rest // len(boosted)
    law[boosted[0]] += rest % len(boosted)
    return law


def _draw(auctions: Auctions, raw: FloatArray, rng: NoiseSource, words_of: object) -> IntArray:
    """Auctions one by one, by the cumulative words of each."""
    chosen = np.empty(len(auctions), np.int64)
    known: dict[tuple[float, ...], list[int]] = {}
    for auction, word in enumerate(rng.words(len(auctions)).tolist()):
        first, last = auctions.offsets[auction : auction + 2]
        scores = tuple(raw[first:last].tolist())
        if scores not in known:
            known[scores] = words_of(scores)  # type: ignore[operator]
        for place, entry in enumerate(known[scores]):
            if word < entry:
                chosen[auction] = first + place
                break
            word -= entry
    return chosen
