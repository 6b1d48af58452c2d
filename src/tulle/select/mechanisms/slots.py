"""Several ads at once: randomized response over sets of finalists.

The truth is the set of the d best private scores. All C(K, d) sets have the same floor, and the
truth e^epsilon times as much: one draw for all slots wastes less than one draw for each at
epsilon / d. Shown ads come in server order, so their order says nothing.
"""

import dataclasses
import math

import numpy as np

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.subset_ranks import count_vectors, unrank_vectors
from tulle.privacy.events import Event, RandomizedResponse
from tulle.privacy.fields import check_count, check_epsilon
from tulle.select.auctions import Auctions, BoolArray, FloatArray, IntArray, check_raw_scores
from tulle.select.mechanisms.floors import BoostedMasses, boosted_masses
from tulle.select.mechanisms.shortlists import (
    AllCandidates,
    Shortlist,
    finalist_groups,
    finalist_sizes,
)

NO_AD = -1
"""Place of an empty slot, where an auction has fewer finalists than slots."""

_MOST_SETS = 2**32
"""Most sets of ads: each needs 2^32 of the 2^64 words for its probability to be exact enough."""
_ALL_CANDIDATES = AllCandidates()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlotMechanism:
    """Settings of a choice for several slots. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of what all slots show, between any two states of a device."""
    num_slots: int
    """Ads shown; an auction with no more finalists shows them all, whatever a device prefers."""
    shortlist: Shortlist = _ALL_CANDIDATES
    """Who can be shown at all; decided by public data."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_count("num_slots", self.num_slots)

    @property
    def name(self) -> str:
        """The mechanism in a few words with its settings."""
        parts = (
            "randomized response over sets",
            f"{self.num_slots} slots",
            self.shortlist.name,
            f"epsilon {self.epsilon:g}",
        )
        return ", ".join(part for part in parts if part)

    def event(self, num_finalists: int) -> Event:
        """What one decision costs that has at least so many finalists.

        More finalists cost less, as there are more sets. Where all finalists are shown nothing
        is spent; but "at least so many" allows for one more than slots, which costs most.
        """
        check_count("num_finalists", num_finalists)
        num_sets = self._num_sets(max(num_finalists, self.num_slots + 1))
        return RandomizedResponse(epsilon=self.epsilon, num_values=num_sets)

    def masses(self, num_finalists: int) -> BoostedMasses:
        """The words behind the probabilities of the sets of so many finalists."""
        return boosted_masses(self.epsilon, self._num_sets(num_finalists), 1)

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions, num_slots], places of the shown candidates in server order, then NO_AD.

        Args:
          auctions: The public side.
          raw_scores: [candidates], what each is worth by private data.
          rng: Source of the words, one an auction. Sensitive: never log or save its state.

        Privacy:
          Unit: one decision of one device for all its slots, replace. Local: each auction is
          drawn on its own. Event: event(number of finalists). Relies on: candidates, shortlist
          and server scores that follow from public data; every candidate scored; one draw a
          decision.
        """
        scores = check_raw_scores(auctions, raw_scores)
        shown = np.full((len(auctions), self.num_slots), NO_AD, np.int64)
        words = rng.words(len(auctions))
        for group in finalist_groups(auctions, finalist_sizes(auctions, self.shortlist)):
            size = group.places.shape[1]
            num_shown = min(self.num_slots, size)
            best = np.sort(_best_columns(scores[group.places], num_shown), axis=1)
            columns = _draw_columns(best, size, self.masses(size), words[group.auctions])
            shown[group.auctions, :num_shown] = np.take_along_axis(group.places, columns, axis=1)
        return shown

    def _num_sets(self, num_finalists: int) -> int:
        num_sets = math.comb(num_finalists, min(self.num_slots, num_finalists))
        if num_sets > _MOST_SETS:
            raise ConfigError(
                f"num_slots={self.num_slots} of {num_finalists} finalists give more than 2^32 "
                "sets, too many for randomized response to favour one. Shorten the list, e.g. "
                f"shortlist=TopCandidates(num_finalists={2 * self.num_slots}), or lower num_slots."
            )
        return num_sets


def _best_columns(raw: FloatArray, num_best: int) -> IntArray:
    """[rows, num_best], from the best private score down; ties by server order."""
    return np.argsort(-raw, axis=1, kind="stable")[:, :num_best]


def _draw_columns(best: IntArray, size: int, masses: BoostedMasses, words: Words) -> IntArray:
    """[rows, shown], the columns of the set that each word leads to, rising."""
    num_shown = best.shape[1]
    if num_shown == size:
        return best
    number = words // np.uint64(masses.floor_words)
    rows = np.flatnonzero(number < masses.num_finalists)
    is_shown = _numbered_sets(number[rows].astype(np.int64), size, num_shown)
    columns = best.copy()
    columns[rows] = np.nonzero(is_shown)[1].reshape(len(rows), num_shown)
    return columns


def _numbered_sets(numbers: IntArray, size: int, num_shown: int) -> BoolArray:
    """[rows, size], the members of each set, by its number from 0 to C(size, num_shown) - 1."""
    # The smaller of a set and its rest is numbered: fewer steps, and numbers that fit.
    num_ones = min(num_shown, size - num_shown)
    first_rank = count_vectors(size, num_ones - 1)
    is_one = unrank_vectors(numbers + first_rank, size, num_ones).astype(np.bool_)
    return is_one if num_ones == num_shown else ~is_one
