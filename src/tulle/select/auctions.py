"""Auctions with their candidates: what the server knows, and apart from it what a device knows.

Candidates of auction i are at offsets[i] to offsets[i + 1] of all arrays. The candidates, their
order, bids and the server's predictions are public: they follow from no private data.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_CANDIDATES_PER_GROUP = 1 << 18


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
        """Of all auctions together."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> IntArray:
        """[auctions], candidates of each."""
        return np.diff(self.offsets)

    @property
    def server_scores(self) -> FloatArray:
        """[candidates], what an impression is worth by public data: bid times click chance."""
        return self.bids * self.server_click_probs

    def places_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Where the candidates of some auctions are, one auction after the other, and offsets.

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

    def size_groups(self) -> Iterator[SizeGroup]:
        """All auctions as rectangles of equal size, a few hundred thousand candidates at most."""
        if not len(self):
            return
        order = np.argsort(self.sizes, kind="stable")
        sizes = self.sizes[order]
        starts = np.flatnonzero(np.diff(sizes, prepend=0))
        for first, last in zip(starts, np.append(starts[1:], len(order)), strict=True):
            size = int(sizes[first])
            step = max(_CANDIDATES_PER_GROUP // size, 1)
            for start in range(int(first), int(last), step):
                rows = order[start : min(start + step, int(last))]
                yield SizeGroup(
                    auctions=rows, places=self.offsets[rows, np.newaxis] + np.arange(size)
                )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DeviceClicks:
    """What devices predict from private data. Sensitive: it never leaves them."""

    click_probs: FloatArray = dataclasses.field(repr=False)
    """[candidates], in [0, 1]."""

    def __post_init__(self) -> None:
        check_click_probs("click_probs", self.click_probs)

    def scores(self, auctions: Auctions) -> FloatArray:
        """[candidates], what an impression is worth: bid times the device's click chance."""
        if self.click_probs.shape != auctions.bids.shape:
            raise ConfigError("predictions of devices must be those of the same candidates.")
        return auctions.bids * self.click_probs


def check_click_probs(name: str, probs: FloatArray) -> None:
    """Refuses what is no chance, without showing it."""
    if not np.all((probs >= 0) & (probs <= 1)):
        raise DataError(f"{name} must be chances in [0, 1].")
