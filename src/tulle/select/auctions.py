"""Auctions with their candidates: what the server knows, and apart from it what a device knows.

Candidates of auction i are at offsets[i] to offsets[i + 1] of all arrays. The candidates, their
order, bids, the server's predictions and the reserve are public: they follow from no private data.
A candidate set that followed from private data would void the guarantee of every choice, so the
reserve is compared with the server's score and a device must score every candidate.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_finite

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
_CANDIDATES_PER_GROUP = 1 << 18
"""Candidates of one rectangle: enough for fast arrays, few enough for a few megabytes."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SizeGroup:
    """Auctions with equally many candidates, as a rectangle."""

    auctions: IntArray
    """[rows], the number of each auction."""
    places: IntArray
    """[rows, candidates], where each candidate is in the arrays of all auctions."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Auctions:
    """The public side of several auctions."""

    offsets: IntArray
    """[auctions + 1], from 0, rising: every auction has at least one candidate."""
    ads: IntArray
    """[candidates], distinct within an auction."""
    bids: FloatArray
    """[candidates], >= 0: what a click is worth to the advertiser."""
    server_click_probs: FloatArray
    """[candidates], in [0, 1]: predicted without private data."""

    def __post_init__(self) -> None:
        if self.offsets.ndim != 1 or len(self.offsets) < 1 or self.offsets[0] != 0:
            raise DataError("offsets of auctions must be one row of numbers that starts with 0.")
        if np.any(np.diff(self.offsets) < 1):
            raise DataError("every auction needs at least one candidate; drop empty ones.")
        for name in ("ads", "bids", "server_click_probs"):
            if getattr(self, name).shape != (self.num_candidates,):
                raise DataError(f"{name} must have one entry for each of the candidates.")
        if not np.all(np.isfinite(self.bids)) or np.any(self.bids < 0):
            raise DataError("bids must be finite and >= 0.")
        check_click_probs("server_click_probs", self.server_click_probs)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_candidates(self) -> int:
        """Number of candidates of all auctions together."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> IntArray:
        """[auctions], number of candidates of each."""
        return np.diff(self.offsets)

    @property
    def server_scores(self) -> FloatArray:
        """[candidates], what an impression is worth by public data: bid times click probability."""
        return self.bids * self.server_click_probs

    def places_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Places of the candidates of some auctions, one auction after the other, and offsets.

        Args:
          rows: Numbers of auctions, in any order; one may come several times.
        """
        sizes = self.sizes[rows]
        offsets = np.append(0, np.cumsum(sizes))
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], sizes)
        return places, offsets

    def take(self, places: IntArray, offsets: IntArray) -> "Auctions":
        """Auctions of the candidates at some places.

        Args:
          places: [candidates of the new auctions], where each is here.
          offsets: [new auctions + 1], those of auction i are at offsets[i] to offsets[i + 1].
        """
        return Auctions(
            offsets=offsets,
            ads=self.ads[places],
            bids=self.bids[places],
            server_click_probs=self.server_click_probs[places],
        )

    def size_groups(self, max_rows: int | None = None) -> Iterator[SizeGroup]:
        """All auctions as rectangles of equal size, a few hundred thousand candidates at most."""
        if not len(self):
            return
        order = np.argsort(self.sizes, kind="stable")
        sizes = self.sizes[order]
        starts = np.flatnonzero(np.diff(sizes, prepend=0))
        for first, last in zip(starts, np.append(starts[1:], len(order)), strict=True):
            size = int(sizes[first])
            step = max_rows or max(_CANDIDATES_PER_GROUP // size, 1)
            for start in range(int(first), int(last), step):
                rows = order[start : min(start + step, int(last))]
                yield SizeGroup(
                    auctions=rows, places=self.offsets[rows, np.newaxis] + np.arange(size)
                )

    def ranked_groups(self, scores: FloatArray, max_rows: int | None = None) -> Iterator[SizeGroup]:
        """The same rectangles, each auction from its largest score down; ties by their order."""
        for group in self.size_groups(max_rows):
            order = np.argsort(-scores[group.places], axis=1, kind="stable")
            places = np.take_along_axis(group.places, order, axis=1)
            yield SizeGroup(auctions=group.auctions, places=places)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DeviceClicks:
    """What devices predict from private data. Sensitive: it never leaves them."""

    click_probs: FloatArray = dataclasses.field(repr=False)
    """[candidates], in [0, 1]."""

    def __post_init__(self) -> None:
        check_click_probs("click_probs", self.click_probs)

    def scores(self, auctions: Auctions) -> FloatArray:
        """[candidates], what an impression is worth: bid times the device's click probability."""
        if self.click_probs.shape != auctions.bids.shape:
            raise ConfigError("predictions of devices must be those of the same candidates.")
        return auctions.bids * self.click_probs


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Eligible:
    """The candidates that passed a public rule, as auctions of their own."""

    auctions: Auctions
    """Auctions that have such a candidate; the others show no ad."""
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


def server_ranks(auctions: Auctions) -> IntArray:
    """[candidates], from 0 for the best server score of the auction; ties by their order."""
    return ranks_of(auctions, auctions.server_scores)


def ranks_of(auctions: Auctions, scores: FloatArray) -> IntArray:
    """[candidates], from 0 for the largest score of the auction; ties by their order."""
    ranks = np.empty(auctions.num_candidates, np.int64)
    for group in auctions.ranked_groups(scores):
        ranks[group.places] = np.arange(group.places.shape[1])
    return ranks


def check_reserve(reserve: float) -> float:
    """Returns the reserve, if it is a price that may be asked of the last in an auction."""
    if check_finite("reserve", reserve) < 0:
        raise ConfigError(f"reserve={reserve} must be >= 0; use 0 for none.")
    return float(reserve)


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
            "everybody with at least e^-epsilon of that probability. Give it a low finite score, "
            "or offer 'no ad' as a candidate."
        )
    return scores


def check_click_probs(name: str, probs: FloatArray) -> None:
    """Refuses arrays that hold anything but probabilities, without showing a value."""
    if not np.all((probs >= 0) & (probs <= 1)):
        raise DataError(f"{name} must be probabilities in [0, 1].")
