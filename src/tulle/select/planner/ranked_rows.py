"""Auctions as rectangles small enough for the cache, each ordered by server score.

The first k columns are the finalists of a shortlist of k. What the planner needs of a candidate
is its bid, its server score and the public part of its logit.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np

from tulle.data.threads import map_in_order
from tulle.select.auctions import Auctions, FloatArray, IntArray
from tulle.select.planner.click_prior import LogitNormalPrior

_LEAST_BID = 1e-200

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RankedRows:
    """Auctions of equal size, one a row, best server score first; ties by their order."""

    auctions: IntArray
    """[rows], the number of each auction."""
    places: IntArray
    """[rows, candidates], where each is in the arrays of all auctions."""
    bids: FloatArray
    """[rows, candidates]"""
    click_probs: FloatArray
    """[rows, candidates], the server's."""
    logits: FloatArray
    """[rows, candidates], public parts."""

    @property
    def server_scores(self) -> FloatArray:
        """[rows, candidates], not rising along a row."""
        return self.bids * self.click_probs

    @property
    def bids_above_zero(self) -> FloatArray:
        """[rows, candidates], to divide by: a bid of 0 is as good as the least bid there is."""
        return np.maximum(self.bids, _LEAST_BID)

    def take(self, numbers: IntArray) -> "RankedRows":
        """Some of the rows."""
        fields = [field.name for field in dataclasses.fields(self)]
        return RankedRows(**{name: getattr(self, name)[numbers] for name in fields})


RowFunction: TypeAlias = Callable[[RankedRows], Result]


def map_ranked_rows(
    function: RowFunction[Result],
    auctions: Auctions,
    prior: LogitNormalPrior,
    *,
    rows_per_chunk: int = 512,
) -> Iterator[tuple[RankedRows, Result]]:
    """Applies a function to all auctions, some at a time, on all cores.

    Args:
      function: Must be safe to call from several threads.
      auctions: The public side.
      prior: What devices may find.
      rows_per_chunk: So many auctions that what the function keeps for them fits the cache.
    """
    logits = prior.public_logits(auctions.server_click_probs)
    scores = auctions.server_scores

    def ranked(chunk: tuple[IntArray, IntArray]) -> tuple[RankedRows, Result]:
        numbers, places = chunk
        order = np.argsort(-scores[places], axis=1, kind="stable")
        places = np.take_along_axis(places, order, axis=1)
        rows = RankedRows(
            auctions=numbers,
            places=places,
            bids=auctions.bids[places],
            click_probs=auctions.server_click_probs[places],
            logits=logits[places],
        )
        return rows, function(rows)

    return map_in_order(ranked, _chunks(auctions, rows_per_chunk))


def _chunks(auctions: Auctions, step: int) -> Iterator[tuple[IntArray, IntArray]]:
    for group in auctions.size_groups():
        for start in range(0, len(group.auctions), step):
            part = slice(start, start + step)
            yield group.auctions[part], group.places[part]
