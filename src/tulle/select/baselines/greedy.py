"""The two ends that every private rule lies between: all of personalisation, and none."""

import dataclasses
import math

import numpy as np

from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Composed, Event, NonPrivate
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.floors.favourites import favourites
from tulle.select.raw_scores import check_raw_scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy:
    """The device's favourite, always. Not private: for comparisons alone."""

    epsilon = math.inf
    name = "greedy, not private"

    def event(self, num_finalists: int) -> Event:  # noqa: ARG002
        """Without protection."""
        return NonPrivate()

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], 1 for the favourite. As sensitive as the scores.

        Privacy:
          Releases nothing: chances of 0 and 1 name the favourite.
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

        Privacy:
          None: it shows what the device prefers. Event: NonPrivate().
        """
        return favourites(auctions, check_raw_scores(auctions, raw_scores))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NonPersonalised:
    """The server's winner, always. It uses no private data and costs nothing."""

    epsilon = 0.0
    name = "not personalised"

    def event(self, num_finalists: int) -> Event:  # noqa: ARG002
        """No release."""
        return Composed(())

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], 1 for the server's winner.

        Privacy:
          The chances depend on public scores alone.
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

        Privacy:
          Public: private scores are not looked at beyond their number.
        """
        check_raw_scores(auctions, raw_scores)
        return favourites(auctions, auctions.server_scores)
