"""Randomized response over ads: all finalists alike, and the device's favourite more often.

Each of K finalists has the same public floor m, below which its probability never falls. The d best
by private score are boosted to e^epsilon m, with m = 1 / (K - d + d e^epsilon). For d = 1 that is
K-ary randomized response (Laro et al. 2024, equation 2); a shortlist makes it top-k or cutoff
response. Ties of private scores go to the better server score, so always exactly d are boosted.

Probabilities are whole numbers of 64-bit words. A word leads to one of the finalists: first come
`floor_words` for each of them, whatever a device prefers; what is left goes to the boosted ones.
Words are rounded so that no finalist exceeds e^epsilon times its floor.
"""

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.thresholds import WORD_VALUES, absent_mass, exponential_bounds
from tulle.privacy.events import Composed, Event, RandomizedResponse
from tulle.privacy.fields import check_count, check_epsilon
from tulle.select.auctions import Auctions, FloatArray, IntArray, check_raw_scores
from tulle.select.mechanisms.mechanism import favourites
from tulle.select.mechanisms.shortlists import (
    AllCandidates,
    Shortlist,
    finalist_groups,
    finalist_sizes,
)

MOST_EPSILON = 64.0
"""Largest epsilon that is computed with: e^64 is more than there are words, so a larger epsilon
allows no more than this one."""
_ALL_CANDIDATES = AllCandidates()


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoostedMasses:
    """Words for the finalists of one auction. Public."""

    num_finalists: int
    num_boosted: int
    """Number of boosted finalists, from 1 to num_finalists - 1; or 1 of 1."""
    floor_words: int
    """Words that lead to each finalist at least."""
    boost_words: int
    """Words on top for each boosted one; for the last of them what is left."""

    @property
    def first_boost(self) -> int:
        """The first word that leads to a boosted finalist because it is boosted."""
        return self.num_finalists * self.floor_words

    @property
    def boosted_words(self) -> tuple[int, ...]:
        """Words that lead to each boosted finalist, from the best private score down."""
        others = [self.floor_words + self.boost_words] * (self.num_boosted - 1)
        num_unboosted = self.num_finalists - self.num_boosted
        return (*others, WORD_VALUES - num_unboosted * self.floor_words - sum(others))

    @property
    def realised_ratio(self) -> Fraction:
        """Largest likelihood ratio of a choice; at most e^epsilon."""
        if self.num_finalists == 1:
            return Fraction(1)
        return Fraction(max(self.boosted_words), self.floor_words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FloorMechanism:
    """Settings of a choice with uniform floors. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of a choice between any two states of a device."""
    shortlist: Shortlist = _ALL_CANDIDATES
    """Who can be chosen at all; decided by public data."""
    num_boosted: int = 1
    """How many of the best private scores are boosted; in an auction of K finalists at most
    K - 1. More than one helps where server scores say little and epsilon is small."""

    num_slots = 1

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_count("num_boosted", self.num_boosted)

    @property
    def name(self) -> str:
        """The mechanism in a few words with its settings."""
        boosted = f"{self.num_boosted} boosted" if self.num_boosted > 1 else ""
        parts = ("randomized response", self.shortlist.name, boosted, f"epsilon {self.epsilon:g}")
        return ", ".join(part for part in parts if part)

    def event(self, num_finalists: int) -> Event:
        """What one decision costs: exactly one finalist nothing, at least so many from 2 on.

        The choice tells two devices apart where one is boosted for the first alone, that is for
        b = min(d, K - d) finalists at most, so delta(x) = b m (e^epsilon - e^x). With d <= K / 2
        that is (e^epsilon - e^x) / (K / d - 1 + e^epsilon), the profile of randomized response
        over K / d values, and falls with K; with more boosted it is below that of 2 values.
        """
        check_count("num_finalists", num_finalists)
        if num_finalists == 1:
            return Composed()
        num_boosted = min(self.num_boosted, num_finalists - 1)
        return RandomizedResponse(
            epsilon=self.epsilon, num_values=max(2, num_finalists // num_boosted)
        )

    def masses(self, num_finalists: int) -> BoostedMasses:
        """The words behind the probabilities of an auction with so many finalists."""
        return boosted_masses(self.epsilon, num_finalists, self.num_boosted)

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], the probability of each in the sampler, 0 outside the shortlist.

        Privacy:
          Not noised: as sensitive as the scores. Never release it, nor one entry of it.
        """
        scores = check_raw_scores(auctions, raw_scores)
        sizes = finalist_sizes(auctions, self.shortlist)
        if self._is_plain(auctions, sizes):
            floors, tops = self._words_of_sizes(sizes)
            probs = np.repeat((floors / WORD_VALUES)[sizes], sizes)
            probs[favourites(auctions, scores)] = (tops / WORD_VALUES)[sizes]
            return probs
        probs = np.zeros(auctions.num_candidates)
        for group in finalist_groups(auctions, sizes):
            masses = self.masses(group.places.shape[1])
            boosted = _boosted_places(group.places, scores, masses.num_boosted)
            probs[group.places] = masses.floor_words / WORD_VALUES
            probs[boosted] = [words / WORD_VALUES for words in masses.boosted_words]
        return probs

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions], the place of the chosen candidate. One word decides each auction.

        Args:
          auctions: The public side.
          raw_scores: [candidates], what each is worth by private data.
          rng: Source of the words. Sensitive: never log or save its state.

        Privacy:
          Unit: one decision of one device, replace. Local: each auction is drawn on its own.
          Event: event(number of finalists). Relies on: candidates, shortlist and server scores
          that follow from public data; every candidate scored; one draw a decision.
        """
        scores = check_raw_scores(auctions, raw_scores)
        sizes = finalist_sizes(auctions, self.shortlist)
        words = rng.words(len(auctions))
        if self._is_plain(auctions, sizes):
            floors, _ = self._words_of_sizes(sizes)
            number = np.minimum(words // floors[sizes], sizes.astype(np.uint64)).astype(np.int64)
            uniform = auctions.offsets[:-1] + number
            return np.where(number < sizes, uniform, favourites(auctions, scores))
        chosen = np.empty(len(auctions), np.int64)
        for group in finalist_groups(auctions, sizes):
            masses = self.masses(group.places.shape[1])
            boosted = _boosted_places(group.places, scores, masses.num_boosted)
            chosen[group.auctions] = _draw(group.places, boosted, masses, words[group.auctions])
        return chosen

    def _is_plain(self, auctions: Auctions, sizes: IntArray) -> bool:
        """True if one of all candidates is boosted: that needs no order of the others."""
        return self.num_boosted == 1 and np.array_equal(sizes, auctions.sizes)

    def _words_of_sizes(self, sizes: IntArray) -> tuple[Words, FloatArray]:
        """Floor and, as a float, favourite's words for every size there is, at its index."""
        floors = np.ones(int(sizes.max(initial=0)) + 1, np.uint64)
        tops = np.ones(len(floors))
        for size in np.flatnonzero(np.bincount(sizes)).tolist():
            masses = self.masses(size)
            floors[size], tops[size] = masses.floor_words, masses.boosted_words[0]
        return floors, tops


@functools.lru_cache(maxsize=1 << 16)
def boosted_masses(epsilon: float, num_finalists: int, num_boosted: int) -> BoostedMasses:
    """The largest boost that keeps every ratio of probabilities within e^epsilon.

    The floor is the least whole number >= 2^64 / (K - d + d e^epsilon) for which it works out.

    Args:
      epsilon: Largest log-likelihood ratio of a choice.
      num_finalists: K.
      num_boosted: d, at least 1; cut at K - 1, because boosting all boosts none.
    """
    if num_finalists == 1:
        half = WORD_VALUES // 2  # every word leads to it, as a finalist or as the boosted one
        return BoostedMasses(num_finalists=1, num_boosted=1, floor_words=half, boost_words=half)
    num_boosted = min(num_boosted, num_finalists - 1)
    num_unboosted = num_finalists - num_boosted
    floor = -(-absent_mass(epsilon, num_finalists, num_boosted) // num_unboosted)
    least_bound, _ = exponential_bounds(min(epsilon, MOST_EPSILON))
    while True:
        boost = -(-(WORD_VALUES - num_finalists * floor) // num_boosted)
        if floor + boost <= math.floor(least_bound * floor):
            break
        floor += 1
    masses = BoostedMasses(
        num_finalists=num_finalists,
        num_boosted=num_boosted,
        floor_words=floor,
        boost_words=boost,
    )
    if boost < 1 or min(masses.boosted_words) <= floor:
        raise ConfigError(
            f"epsilon={epsilon} is too small for {num_finalists} finalists with {num_boosted} "
            "boosted: 64-bit words cannot favour any by so little. Raise epsilon or shorten the "
            "list of finalists."
        )
    return masses


def _draw(places: IntArray, boosted: IntArray, masses: BoostedMasses, words: Words) -> IntArray:
    """[rows], the finalist that each word leads to."""
    number = words // np.uint64(masses.floor_words)
    is_boosted = number >= masses.num_finalists
    chosen = np.empty(len(words), np.int64)
    rows = np.flatnonzero(is_boosted)
    boost = (words[rows] - np.uint64(masses.first_boost)) // np.uint64(masses.boost_words)
    chosen[rows] = boosted[rows, boost.astype(np.int64)]
    rows = np.flatnonzero(~is_boosted)
    # In the order of the candidates, as where all are finalists: the same word, the same choice.
    in_order = np.sort(places[rows], axis=1)
    chosen[rows] = in_order[np.arange(len(rows)), number[rows].astype(np.int64)]
    return chosen


def _boosted_places(places: IntArray, scores: FloatArray, num_boosted: int) -> IntArray:
    """[rows, num_boosted], from the best private score down; ties by server order."""
    raw = scores[places]
    if num_boosted == 1:
        best = raw.argmax(axis=1)[:, np.newaxis]
    else:
        best = np.argsort(-raw, axis=1, kind="stable")[:, :num_boosted]
    return np.take_along_axis(places, best, axis=1)
