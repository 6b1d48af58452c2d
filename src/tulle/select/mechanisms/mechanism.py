"""What every mechanism for choosing an ad on a device can do, and the two ends they lie between.

The guarantee is local: whatever the private data of one device are replaced by, the probability of
no choice changes by more than a factor e^epsilon. Candidates, bids and server scores are public.
One end is the device's favourite, without privacy; the other is the server's winner, without
personalisation.
"""

import dataclasses
import math
from typing import ClassVar, Protocol

import numpy as np

from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Composed, Event, NonPrivate
from tulle.select.auctions import Auctions, FloatArray, IntArray, check_raw_scores
from tulle.select.mechanisms.shortlists import Shortlist, TopCandidates

# Scores of so many auctions and what is computed from them stay in a core's cache.
_AUCTIONS_PER_CHUNK = 1 << 14


class SelectionMechanism(Protocol):
    """A rule for choosing one ad. Its settings are public."""

    @property
    def epsilon(self) -> float:
        """Largest log-likelihood ratio of a choice; infinite without privacy, 0 without
        personalisation."""

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
        check_raw_scores(auctions, raw_scores)
        probs = np.zeros(auctions.num_candidates)
        probs[favourites(auctions, auctions.server_scores)] = 1.0
        return probs

    def choose(
        self,
        auctions: Auctions,
        raw_scores: FloatArray,
        *,
        rng: NoiseSource,  # noqa: ARG002
    ) -> IntArray:
        """[auctions], the place of the server's winner; ties go to the first.

        Args:
          auctions: The public side.
          raw_scores: [candidates], which are not used.
          rng: Nothing is drawn.

        Privacy:
          Public: private scores are not looked at beyond their number.
        """
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
        probs = np.zeros(auctions.num_candidates)
        probs[favourites(auctions, check_raw_scores(auctions, raw_scores))] = 1.0
        return probs

    def choose(
        self,
        auctions: Auctions,
        raw_scores: FloatArray,
        *,
        rng: NoiseSource,  # noqa: ARG002
    ) -> IntArray:
        """[auctions], the place of the favourite; ties go to the best server score.

        Args:
          auctions: The public side.
          raw_scores: [candidates], what each is worth by private data.
          rng: Nothing is drawn.

        Privacy:
          None: it shows what the device prefers. Event: NonPrivate().
        """
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
