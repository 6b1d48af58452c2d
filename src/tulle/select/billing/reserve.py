"""Which ads may take part: those whose server score reaches the reserve.

The reserve is a value of one impression. It is compared with the server's score, never with a
device's: a candidate set that follows from private data would void the guarantee of the choice.
"""

import dataclasses

import numpy as np

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite
from tulle.select.auctions import Auctions, BoolArray, IntArray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Eligible:
    """The candidates that passed a public rule, as auctions of their own."""

    auctions: Auctions
    """Without the auctions that have no such candidate: those show no ad."""
    kept_candidates: IntArray
    """[candidates left], where each was in the arrays of all candidates; rising."""
    kept_auctions: IntArray
    """[auctions left], the number that each had; rising."""


def above_reserve(auctions: Auctions, reserve: float) -> Eligible:
    """The candidates with a server score of at least the reserve.

    Args:
      auctions: The public side.
      reserve: Least value of one impression, in the currency of the bids; 0 keeps all.
    """
    return keep_candidates(auctions, auctions.server_scores >= check_reserve(reserve))


def keep_candidates(auctions: Auctions, is_kept: BoolArray) -> Eligible:
    """The part of some auctions that a public rule keeps.

    Args:
      auctions: The public side.
      is_kept: [candidates].
    """
    if is_kept.shape != auctions.ads.shape:
        raise ConfigError("is_kept must have one entry for each of the candidates.")
    kept_before = np.concatenate([[0], np.cumsum(is_kept)])[auctions.offsets]
    kept_auctions = np.flatnonzero(np.diff(kept_before))
    kept_candidates = np.flatnonzero(is_kept)
    return Eligible(
        auctions=auctions.take(kept_candidates, np.append(0, kept_before[kept_auctions + 1])),
        kept_candidates=kept_candidates,
        kept_auctions=kept_auctions,
    )


def check_reserve(reserve: float) -> float:
    """A price that may be asked of the last in an auction."""
    if check_finite("reserve", reserve) < 0:
        raise ConfigError(f"reserve={reserve} must be >= 0; use 0 for none.")
    return float(reserve)
