"""The finalists of auctions as rectangles, in the order of the server."""

from collections.abc import Iterator

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, IntArray, SizeGroup
from tulle.select.floors.shortlist import Shortlist


def finalist_groups(auctions: Auctions, sizes: IntArray) -> Iterator[SizeGroup]:
    """All auctions as rectangles of equally many finalists.

    Args:
      auctions: The public side.
      sizes: [auctions], how many of the best by server score are finalists.

    Yields:
      The places of the finalists, from the best server score down; ties by their order.
    """
    if len(auctions) == 0:
        return
    server_scores = auctions.server_scores
    for group in auctions.size_groups():
        order = np.argsort(-server_scores[group.places], axis=1, kind="stable")
        places = np.take_along_axis(group.places, order, axis=1)
        group_sizes = sizes[group.auctions]
        for size in np.flatnonzero(np.bincount(group_sizes)):
            rows = np.flatnonzero(group_sizes == size)
            yield SizeGroup(auctions=group.auctions[rows], places=places[rows, :size])


def finalist_sizes(auctions: Auctions, shortlist: Shortlist) -> IntArray:
    """[auctions], what a shortlist says, if each auction has so many candidates."""
    sizes = np.asarray(shortlist.sizes(auctions))
    if sizes.shape != (len(auctions),) or np.any((sizes < 1) | (sizes > auctions.sizes)):
        raise ConfigError(
            f"shortlist {shortlist.name!r} must keep at least one of the candidates of every "
            "auction, and no more than there are."
        )
    return sizes
