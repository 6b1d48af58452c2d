"""Auctions of some of the candidates only: a public rule has left out the others."""

import dataclasses
import typing

import numpy as np

from tulle.select.auctions import Auctions, BoolArray, IntArray
from tulle.select.floors.finalists import finalist_sizes
from tulle.select.floors.shortlist import Shortlist
from tulle.select.server_ranks import server_ranks


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FinalistAuctions:
    """The same auctions with fewer candidates. Public."""

    auctions: Auctions
    places: IntArray
    """[candidates], where each is in the arrays of all candidates."""

    @classmethod
    def of_shortlist(cls, auctions: Auctions, shortlist: Shortlist) -> "FinalistAuctions":
        """Those whom a shortlist keeps."""
        everybody = cls(auctions=auctions, places=np.arange(auctions.num_candidates))
        sizes = finalist_sizes(auctions, shortlist)
        if np.array_equal(sizes, auctions.sizes):
            return everybody
        return everybody.kept(server_ranks(auctions) < np.repeat(sizes, auctions.sizes))

    def kept(self, is_kept: BoolArray) -> typing.Self:
        """Without the candidates that are not kept; one of each auction must be."""
        if is_kept.all():
            return self
        sizes = np.add.reduceat(is_kept.astype(np.int64), self.auctions.offsets[:-1])
        kept = np.flatnonzero(is_kept)
        return dataclasses.replace(
            self,
            auctions=self.auctions.take(kept, np.append(0, np.cumsum(sizes))),
            places=self.places[kept],
        )
