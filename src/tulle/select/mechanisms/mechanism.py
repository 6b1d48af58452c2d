"""What every mechanism for choosing an ad on a device can do, and the two ends they lie between.

The guarantee is local: whatever the private data of one device are replaced by, the probability of
no choice changes by more than a factor e^epsilon. Candidates, bids and server scores are public.
One end is the device's favourite, without privacy; the other is the server's winner, without
personalisation.

Probabilities that are computed are drawn as whole numbers of 64-bit words, one word an auction. A
probability below 2^-40 would be less than 2^24 words. Above it, rounding down moves no probability
by more than a share of 2^-24, and what a row then lacks or has too much goes to its largest entry,
which is at least 1 / n: with the relative error of 1e-11 that computed probabilities may have, the
log ratio of two rows grows by less than 2^-23 for up to 1,000 candidates. A mechanism whose
probabilities keep epsilon - ROUNDING_EPSILON therefore keeps epsilon when drawn.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import ClassVar, Protocol

import numpy as np

from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import Composed, Event, NonPrivate
from tulle.select.auctions import Auctions, FloatArray, IntArray, SizeGroup, check_raw_scores
from tulle.select.mechanisms.shortlists import Shortlist, TopCandidates

# Scores of so many auctions and what is computed from them stay in a core's cache.
_AUCTIONS_PER_CHUNK = 1 << 14
WordGroup = tuple[SizeGroup, Words | None]
"""Auctions with their finalists and the words of each; none where there is one finalist alone."""
ROUNDING_EPSILON = 2.0**-22
"""Part of epsilon that is left to rounding to whole words, which adds less than half of it to a log
ratio."""
LEAST_PROB = 2.0**-40
"""Least probability that is drawn: it has 2^24 words, so rounding moves it by 2^-24 of itself."""
MOST_LOG_DISTANCE = -math.log(LEAST_PROB)
"""Logarithm of one over the least probability."""
MOST_CANDIDATES = 1_000
"""Most candidates for which computed probabilities are known to be good enough; see above."""


class SelectionMechanism(Protocol):
    """A rule for choosing one ad. Its settings are public."""

    @property
    def epsilon(self) -> float:
        """Largest log-likelihood ratio of a choice.

        It is infinite without privacy and 0 without personalisation.
        """

    @property
    def name(self) -> str:
        """The mechanism in a few words with its settings, for tables and cards."""

    @property
    def num_slots(self) -> int:
        """Number of ads that one decision shows."""

    @property
    def shortlist(self) -> Shortlist | None:
        """Who can be chosen at all; None where public data do not say."""

    def event(self, num_finalists: int) -> Event:
        """What one decision costs that has at least so many ads to choose from."""

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], the exact probability of each. As sensitive as the scores.

        Privacy:
          Releases nothing: the probabilities are as sensitive as the scores.
        """

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions], the place of the chosen candidate in the arrays of all candidates.

        Args:
          auctions: The public side.
          raw_scores: [candidates], what each is worth by private data.
          rng: Source of the draws. Sensitive: never log or save its state.

        Privacy:
          Unit: the private data of one device in one decision, replace. Local: each choice is
          drawn on its own. Event: that of `event`. Relies on: the choice is all that leaves, and
          is drawn once.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class NonPersonalised:
    """The server's winner, always. It uses no private data and costs nothing."""

    kind: ClassVar[str] = "non-personalised"

    epsilon = 0.0
    name = "not personalised"
    num_slots = 1
    shortlist = TopCandidates(num_finalists=1)

    def event(self, num_finalists: int) -> Event:  # noqa: ARG002
        """Nothing: no private data are used."""
        return Composed(())

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], 1 for the server's winner.

        Privacy:
          The probabilities depend on public scores alone.
        """
        return _certain(auctions, self.choose(auctions, raw_scores))

    def choose(
        self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource | None = None
    ) -> IntArray:
        """[auctions], the place of the server's winner; ties go to the first.

        Args:
          auctions: The public side.
          raw_scores: [candidates], which are not used.
          rng: Nothing is drawn.

        Privacy:
          Public: private scores are not looked at beyond their number.
        """
        del rng
        check_raw_scores(auctions, raw_scores)
        return favourites(auctions, auctions.server_scores)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy:
    """The device's favourite, always. Not private: for comparisons alone."""

    epsilon = math.inf
    name = "greedy, not private"
    num_slots = 1
    shortlist = None

    def event(self, num_finalists: int) -> Event:  # noqa: ARG002
        """No guarantee: the choice names the favourite."""
        return NonPrivate()

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], 1 for the favourite. As sensitive as the scores.

        Privacy:
          Releases nothing: probabilities of 0 and 1 name the favourite.
        """
        return _certain(auctions, self.choose(auctions, raw_scores))

    def choose(
        self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource | None = None
    ) -> IntArray:
        """[auctions], the place of the favourite; ties go to the best server score.

        Args:
          auctions: The public side.
          raw_scores: [candidates], what each is worth by private data.
          rng: Nothing is drawn.

        Privacy:
          None: it shows what the device prefers. Event: NonPrivate().
        """
        del rng
        return favourites(auctions, check_raw_scores(auctions, raw_scores))


def favourites(auctions: Auctions, raw_scores: FloatArray) -> IntArray:
    """[auctions], the place of the best private score; ties go to the best server score.

    Privacy:
      Not noised: as sensitive as the scores. Never release it.
    """
    places = np.empty(len(auctions), np.int64)
    for first in range(0, len(auctions), _AUCTIONS_PER_CHUNK):
        offsets = auctions.offsets[first : first + _AUCTIONS_PER_CHUNK + 1]
        start, starts = int(offsets[0]), offsets[:-1] - offsets[0]
        best = _best_places(raw_scores[start : offsets[-1]], starts)
        if len(best) > len(starts):
            best = _favoured_by_server(auctions, start, starts, best)
        places[first : first + _AUCTIONS_PER_CHUNK] = start + best
    return places


def _favoured_by_server(
    auctions: Auctions, start: int, starts: IntArray, tied: IntArray
) -> IntArray:
    """One of the tied places of each auction: by server score, then by order."""
    server_scores = auctions.bids[start + tied] * auctions.server_click_probs[start + tied]
    starts = np.searchsorted(tied, starts)
    kept = _best_places(server_scores, starts)
    return tied[kept[np.searchsorted(kept, starts)]]


def _best_places(scores: FloatArray, starts: IntArray) -> IntArray:
    """All places with the best score of their auction, in order."""
    best = np.maximum.reduceat(scores, starts)
    sizes = np.diff(starts, append=len(scores))
    return np.flatnonzero(scores == np.repeat(best, sizes))


def words_of(probs: FloatArray) -> Words:
    """[rows, candidates], whole words of each; every row adds up to 2^64, which is 0 in uint64.

    Args:
      probs: [rows, candidates], at least 2 candidates, each probability >= LEAST_PROB.
    """
    words = (probs * float(WORD_VALUES)).astype(np.uint64)
    rows = np.arange(len(words))
    # Modulo 2^64 the missing words, few or many too much, are minus the sum.
    # The likeliest takes the difference, where it is the smallest share and moves the ratio least.
    words[rows, probs.argmax(axis=1)] -= words.sum(axis=1)
    return words


def probs_of(groups: Iterable[WordGroup], num_candidates: int) -> FloatArray:
    """[candidates], the probabilities of the draw as the nearest floats; 0 without words."""
    probs = np.zeros(num_candidates)
    for group, words in groups:
        probs[group.places] = 1.0 if words is None else words / float(WORD_VALUES)
    return probs


def draw_places(groups: Iterable[WordGroup], num_auctions: int, *, rng: NoiseSource) -> IntArray:
    """[auctions], the place drawn for each, with one word an auction.

    Args:
      groups: Auctions with the words of their finalists.
      num_auctions: Number of all auctions.
      rng: Source of the words. Sensitive: never log or save its state.

    Privacy:
      Unit: one decision of a device, replace. Each choice has its whole number of words out of
      2^64. Event: that of the mechanism that made the words. Relies on: fresh words of `rng`.
    """
    chosen = np.empty(num_auctions, np.int64)
    for group, words in groups:
        columns = np.zeros(len(group.auctions), np.int64)
        if words is not None:
            columns = draw_rows(words, rng.words(len(words)))
        chosen[group.auctions] = group.places[np.arange(len(columns)), columns]
    return chosen


def draw_rows(words: Words, drawn: Words) -> IntArray:
    """[rows], the candidate that each drawn word leads to.

    Args:
      words: [rows, candidates], 2^64 in each row; one candidate that has all of them is kept as
        2^64 - 1, and gets the last word as the fullest.
      drawn: [rows], uniform.

    Privacy:
      Unit: one decision of a device, replace. Each candidate has exactly its words out of 2^64.
      Event: that of the mechanism that made the words. Relies on: fresh words for every draw.
    """
    # Only the row that holds all 2^64 words, kept as one less, can be left without a hit.
    chosen: IntArray = words.argmax(axis=1)
    is_open = np.ones(len(drawn), np.bool_)
    left = drawn.copy()
    for column in range(words.shape[1]):
        is_hit = is_open & (left < words[:, column])
        chosen[is_hit] = column
        is_open &= ~is_hit
        left -= words[:, column]  # below zero only where it is not looked at again
    return chosen


def _certain(auctions: Auctions, places: IntArray) -> FloatArray:
    probs = np.zeros(auctions.num_candidates)
    probs[places] = 1.0
    return probs
