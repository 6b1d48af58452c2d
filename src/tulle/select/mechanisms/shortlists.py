"""Which candidates a device may choose from: the first few by server score, the finalists.

Public data alone decide, so a shortlist costs no budget. Its last ads have little to win and take
probability from the others: the shorter the list, the more often the device's favourite wins.
"""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.select.auctions import Auctions, BoolArray, IntArray, SizeGroup, server_ranks


class Shortlist(Protocol):
    """A public rule for how many candidates are finalists."""

    @property
    def name(self) -> str:
        """The shortlist in a few words with its settings; empty for all candidates."""

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], how many of the best by server score are finalists; at least 1."""

    def settings(self, epsilon: float) -> dict[str, Any]:
        """What a settings file says of it beside a mechanism with this epsilon."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllCandidates:
    """Every candidate is a finalist."""

    name = ""

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], all candidates of each."""
        return auctions.sizes

    def settings(self, epsilon: float) -> dict[str, Any]:  # noqa: ARG002
        """Nothing: it is what a file means that names no shortlist."""
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopCandidates:
    """The best few by server score."""

    num_finalists: int
    """Number of ads that can be chosen."""

    def __post_init__(self) -> None:
        check_count("num_finalists", self.num_finalists)

    @property
    def name(self) -> str:
        """The shortlist with its size."""
        return f"top {self.num_finalists}"

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], the same for all that have enough candidates."""
        return np.minimum(auctions.sizes, self.num_finalists)

    def settings(self, epsilon: float) -> dict[str, Any]:  # noqa: ARG002
        """The number of finalists."""
        return {"num_finalists": self.num_finalists}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cutoff:
    """Candidates with a server score of at least (1 - gamma) times the best.

    With gamma = 0 the server's winner alone, also among equals.
    """

    gamma: float
    """Cutoff from 0, nothing is personalised, to 1, every candidate is a finalist."""

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma={self.gamma} must be in [0, 1], e.g. 0.8.")

    @property
    def name(self) -> str:
        """The shortlist with its gamma."""
        return f"cutoff {self.gamma:g}"

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], how many reach the cutoff."""
        if self.gamma == 0:
            return np.ones(len(auctions), np.int64)
        scores = auctions.server_scores
        best = np.maximum.reduceat(scores, auctions.offsets[:-1])
        is_finalist = scores >= np.repeat((1 - self.gamma) * best, auctions.sizes)
        return np.add.reduceat(is_finalist.astype(np.int64), auctions.offsets[:-1])

    def settings(self, epsilon: float) -> dict[str, Any]:  # noqa: ARG002
        """The cutoff."""
        return {"gamma": self.gamma}


def finalist_sizes(auctions: Auctions, shortlist: Shortlist) -> IntArray:
    """[auctions], what a shortlist says, if each auction has so many candidates."""
    sizes = np.asarray(shortlist.sizes(auctions))
    if sizes.shape != (len(auctions),) or np.any((sizes < 1) | (sizes > auctions.sizes)):
        raise ConfigError(
            f"shortlist {shortlist.name!r} must keep at least one of the candidates of every "
            "auction, and no more than there are."
        )
    return sizes


def finalist_groups(auctions: Auctions, sizes: IntArray) -> Iterator[SizeGroup]:
    """All auctions as rectangles of equally many finalists.

    Args:
      auctions: The public side.
      sizes: [auctions], how many of the best by server score are finalists.

    Yields:
      The places of the finalists, from the best server score down; ties by their order.
    """
    for group in auctions.ranked_groups(auctions.server_scores):
        group_sizes = sizes[group.auctions]
        for size in np.flatnonzero(np.bincount(group_sizes)):
            rows = np.flatnonzero(group_sizes == size)
            yield SizeGroup(auctions=group.auctions[rows], places=group.places[rows, :size])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FinalistAuctions:
    """The same auctions with fewer candidates. Public."""

    auctions: Auctions
    places: IntArray
    """[candidates], where each is in the arrays of all candidates."""

    @classmethod
    def of_shortlist(cls, auctions: Auctions, shortlist: Shortlist) -> "FinalistAuctions":
        """The finalists whom a shortlist keeps."""
        everybody = cls(auctions=auctions, places=np.arange(auctions.num_candidates))
        sizes = finalist_sizes(auctions, shortlist)
        if np.array_equal(sizes, auctions.sizes):
            return everybody
        return everybody.kept(server_ranks(auctions) < np.repeat(sizes, auctions.sizes))

    def kept(self, is_kept: BoolArray) -> typing.Self:
        """The auctions without the candidates that are not kept; one of each must be kept."""
        if is_kept.all():
            return self
        sizes = np.add.reduceat(is_kept.astype(np.int64), self.auctions.offsets[:-1])
        kept = np.flatnonzero(is_kept)
        return dataclasses.replace(
            self,
            auctions=self.auctions.take(kept, np.append(0, np.cumsum(sizes))),
            places=self.places[kept],
        )
