"""Auctions of some of the candidates only: a public rule has left out the others."""

import dataclasses
import typing

import numpy as np

from tulle.select.auctions import Auctions, IntArray
from tulle.select.floors.finalists import finalist_sizes
from tulle.select.floors.shortlist import Shortlist
from tulle.select.server_ranks import server_ranks

BoolArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


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
        whole = self.auctions
        sizes = np.add.reduceat(is_kept.astype(np.int64), whole.offsets[:-1])
        auctions = Auctions(
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            ads=whole.ads[is_kept],
            bids=whole.bids[is_kept],
            server_click_probs=whole.server_click_probs[is_kept],
        )
        return dataclasses.replace(self, auctions=auctions, places=self.places[is_kept])
