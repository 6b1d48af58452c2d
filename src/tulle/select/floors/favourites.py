"""The best private score of each auction, over auctions of any size at once."""

import numpy as np

from tulle.select.auctions import Auctions, FloatArray, IntArray

# Scores of so many auctions and what is computed from them stay in a core's cache.
_AUCTIONS_PER_CHUNK = 1 << 14


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
