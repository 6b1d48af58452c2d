"""How far private data can move a score, made true before noise is chosen.

A noisy maximum is private only if every score stays in a public interval whatever the device
holds. Scores are bounded last, so the intervals hold by construction.
"""

import dataclasses
import math
from typing import Protocol

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, FloatArray


class ScoreBound(Protocol):
    """A public rule that puts every score into a public interval."""

    @property
    def name(self) -> str:
        """In a few words with its settings."""

    @property
    def is_equal_box(self) -> bool:
        """True if all candidates of all auctions share one interval."""

    def box(self, finalists: Auctions) -> tuple[FloatArray, FloatArray]:
        """Least and largest score, [candidates] each."""

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], within the box. As sensitive as the scores.

        Privacy:
          Releases nothing: bounded scores are as sensitive as the scores.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledScores:
    """Each auction from 0, its least score, to 1, its best (Laro et al. 2024, equation 3).

    Least and best score are private, yet the scaled scores are in [0, 1] for every device, so
    one candidate's change by at most 1: the sensitivity is that of the scaled scores. It relies
    on the choice being all that leaves the device: a raw or noisy score, the runner-up or the
    range would tell more. It holds for local privacy alone.
    """

    name = "scaled scores"
    is_equal_box = True

    def box(self, finalists: Auctions) -> tuple[FloatArray, FloatArray]:
        """From 0 to 1."""
        return np.zeros(finalists.num_candidates), np.ones(finalists.num_candidates)

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], in [0, 1]; all 0 where all scores of an auction are equal.

        Privacy:
          Releases nothing. Unit: device, replace. Sensitivity: 1 for each score.
        """
        starts, sizes = finalists.offsets[:-1], finalists.sizes
        halves = raw_scores / 2  # the distance of two finite numbers may not be finite
        least = np.minimum.reduceat(halves, starts)
        spans = np.maximum.reduceat(halves, starts) - least
        above = halves - np.repeat(least, sizes)
        repeated = np.repeat(spans, sizes)
        scaled: FloatArray = np.zeros_like(above)
        np.divide(above, repeated, out=scaled, where=repeated > 0)
        return scaled


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClippedScores:
    """Scores within half a width of the server's (Laro et al. 2024, equation 4).

    A width of 0 would choose by public data, a very large one at random: between them it is to
    be tuned for each epsilon, never on the data of the devices that are protected.
    """

    width: float
    """Full length of the interval, Delta: a score moves by at most half of it either way."""

    is_equal_box = False

    def __post_init__(self) -> None:
        if not 0 < self.width < math.inf:
            raise ConfigError(
                f"width={self.width} must be > 0 and finite, in the currency of the bids; to "
                "choose by server scores alone use NonPersonalised()."
            )

    @property
    def name(self) -> str:
        """With its width."""
        return f"scores clipped to a width of {self.width:g}"

    def box(self, finalists: Auctions) -> tuple[FloatArray, FloatArray]:
        """Half the width below and above the server score."""
        centres = finalists.server_scores
        return centres - self.width / 2, centres + self.width / 2

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], clipped.

        Privacy:
          Releases nothing. Unit: device, replace. Sensitivity: the width, for each score.
        """
        return np.clip(raw_scores, *self.box(finalists))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BidBox:
    """Scores from 0 to the bid: free, as a score is the bid times a chance of a click."""

    name = "scores up to the bid"
    is_equal_box = False

    def box(self, finalists: Auctions) -> tuple[FloatArray, FloatArray]:
        """From 0 to the bid."""
        return np.zeros(finalists.num_candidates), finalists.bids

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], clipped.

        Privacy:
          Releases nothing. Unit: device, replace. Sensitivity: the bid, for each score.
        """
        return np.clip(raw_scores, *self.box(finalists))
