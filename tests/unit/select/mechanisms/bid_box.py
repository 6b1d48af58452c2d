"""A bound of scores whose intervals have different widths, which none of those in use has."""

import dataclasses

import numpy as np

from tulle.select.auctions import Auctions, FloatArray


@dataclasses.dataclass(frozen=True, kw_only=True)
class BidBox:
    """Scores from 0 to the bid: free, as a score is the bid times a probability of a click."""

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
