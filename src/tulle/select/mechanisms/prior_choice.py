"""Randomized response with a prior, told literally: report the winner, or one of the likely.

Public probabilities say who will probably win. The k likeliest are kept, with k such that the
report is the true winner as often as possible. A device whose winner is among them answers by
randomized response over them; any other answers one of them at random (RRWithPrior of Ghazi et al.
2021). It maximises how often the report is right, not what it is worth.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.thresholds import WORD_VALUES, loser_mass
from tulle.privacy.events import Composed, Event, RandomizedResponse
from tulle.privacy.fields import check_epsilon
from tulle.select.auctions import Auctions, FloatArray, IntArray, SizeGroup, check_raw_scores
from tulle.select.mechanisms.mechanism import WordGroup, draw_places, favourites, probs_of

_MAX_SUM_ERROR = 1e-6
"""Largest distance of a sum of probabilities from 1; beyond it they are taken for a mistake."""

WinnerProbs = Callable[[Auctions], FloatArray]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PriorChoice:
    """Settings of a response with a prior. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of a choice between any two states of a device."""
    winner_probs: FloatArray | WinnerProbs
    """[candidates], the public probability that each has the best private score of its auction; for
    given auctions, or computed from their public side."""

    num_slots = 1
    shortlist = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def name(self) -> str:
        """The mechanism in a few words with its epsilon."""
        return f"response with a prior, epsilon {self.epsilon:g}"

    def event(self, num_finalists: int) -> Event:
        """What one decision costs; one candidate costs nothing.

        An answer at random is a mixture of responses, so a report tells no more than randomized
        response over the k kept. The prior decides k; with 2 it tells most.
        """
        if num_finalists <= 1:
            return Composed(())
        return RandomizedResponse(epsilon=self.epsilon, num_values=2)

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], the probability of each: that of the draw itself, as the nearest float.

        Privacy:
          Releases nothing: as sensitive as the scores.
        """
        return probs_of(self._words(auctions, raw_scores), auctions.num_candidates)

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions], the place of the chosen candidate in the arrays of all candidates.

        Args:
          auctions: The public side.
          raw_scores: [candidates], finite. They never leave the device.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: one decision of a device, replace. Event: event(finalists). Relies on: a prior
          that follows from no data of the devices that are protected.
        """
        return draw_places(self._words(auctions, raw_scores), len(auctions), rng=rng)

    def kept_sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], how many of the likeliest winners are kept. Public."""
        sizes = np.empty(len(auctions), np.int64)
        for group in self._kept(auctions):
            sizes[group.auctions] = group.places.shape[1]
        return sizes

    def _words(self, auctions: Auctions, raw_scores: FloatArray) -> Iterator[WordGroup]:
        """Auctions and words of those kept; none where one alone is kept."""
        truths = favourites(auctions, check_raw_scores(auctions, raw_scores))
        for group in self._kept(auctions):
            num_kept = group.places.shape[1]
            if num_kept == 1:
                yield group, None
                continue
            winner, loser, even = _masses(self.epsilon, num_kept)
            is_truth = group.places == truths[group.auctions, np.newaxis]
            words = np.where(is_truth, winner, loser)
            yield group, np.where(is_truth.any(axis=1, keepdims=True), words, even)

    def _kept(self, auctions: Auctions) -> Iterator[SizeGroup]:
        """Auctions of equally many kept candidates, from the likeliest winner down."""
        prior = self._prior(auctions)
        for group in auctions.ranked_groups(prior):
            places = group.places
            kept_probs = np.cumsum(prior[places], axis=1)
            # The probability that the report is the truth, over e^epsilon.
            others = np.arange(places.shape[1])
            right = kept_probs / (1 + others * math.exp(-self.epsilon))
            sizes = 1 + right.argmax(axis=1)
            for size in np.unique(sizes).tolist():
                rows = np.flatnonzero(sizes == size)
                yield SizeGroup(auctions=group.auctions[rows], places=places[rows, :size])

    def _prior(self, auctions: Auctions) -> FloatArray:
        given = self.winner_probs
        prior = np.asarray(given(auctions) if callable(given) else given, np.float64)
        if prior.shape != (auctions.num_candidates,):
            raise ConfigError(
                f"winner_probs has shape {prior.shape}, the auctions have "
                f"{auctions.num_candidates} candidates; give one probability for each."
            )
        sums = np.add.reduceat(prior, auctions.offsets[:-1]) if len(auctions) else np.ones(0)
        if not np.all(prior >= 0) or not np.all(np.abs(sums - 1) <= _MAX_SUM_ERROR):
            raise DataError(
                "winner_probs must be probabilities >= 0 that add up to 1 in every auction."
            )
        return prior


@functools.lru_cache(maxsize=4096)
def _masses(epsilon: float, num_kept: int) -> tuple[np.uint64, np.uint64, Words]:
    """Words of the truth, of each other, and of an even answer, which lie between the two."""
    loser = loser_mass(epsilon, num_kept)
    share, left = divmod(WORD_VALUES, num_kept)
    even = [share + (place < left) for place in range(num_kept)]
    winner = WORD_VALUES - (num_kept - 1) * loser
    return np.uint64(winner), np.uint64(loser), np.array(even, np.uint64)
