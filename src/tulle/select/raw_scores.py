"""What a device may score: every candidate, with a finite number.

The candidates are public. A device that leaves one out tells why by never showing it.
"""

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import DataError
from tulle.select.auctions import Auctions, FloatArray


def check_raw_scores(auctions: Auctions, raw_scores: ArrayLike) -> FloatArray:
    """The scores as float64, if there is a finite one for each candidate.

    Privacy:
      Releases nothing. Messages show no score. What a mechanism promises relies on it: with an
      excluded or missing candidate no epsilon would hold.
    """
    try:
        scores = np.asarray(raw_scores, np.float64)
    except (TypeError, ValueError):  # whose message would show a score
        raise DataError("raw_scores must be one row of numbers, one for each candidate.") from None
    if scores.shape != (auctions.num_candidates,):
        raise DataError(
            f"raw_scores has shape {scores.shape}, the auctions have {auctions.num_candidates} "
            "candidates; score every one. A candidate set that depends on private data (already "
            "installed, a private frequency cap) breaks every epsilon: drop candidates by public "
            "rules before the auction, or give them a low finite score."
        )
    if not np.isfinite(scores).all():
        raise DataError(
            "raw_scores has entries that are missing or not finite. A hard private exclusion is "
            "impossible under a pure epsilon: an ad that can be shown to somebody is shown to "
            "everybody with at least e^-epsilon of that chance. Give it a low finite score, or "
            "offer 'no ad' as a candidate."
        )
    return scores
