"""The order of candidates by public data."""

import numpy as np

from tulle.select.auctions import Auctions, FloatArray, IntArray


def server_ranks(auctions: Auctions) -> IntArray:
    """[candidates], from 0 for the best server score of the auction; ties by their order."""
    return ranks_of(auctions, auctions.server_scores)


def ranks_of(auctions: Auctions, scores: FloatArray) -> IntArray:
    """[candidates], from 0 for the largest score of the auction; ties by their order."""
    ranks = np.empty(auctions.num_candidates, np.int64)
    for group in auctions.size_groups():
        order = np.argsort(-scores[group.places], axis=1, kind="stable")
        size = group.places.shape[1]
        ranks[np.take_along_axis(group.places, order, axis=1)] = np.arange(size)
    return ranks
