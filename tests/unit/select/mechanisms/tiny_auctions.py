"""Auctions written as lists of server scores."""

import numpy as np

from tulle.select.auctions import Auctions


def auctions_of(*server_scores: list[float]) -> Auctions:
    """One auction for each list, with bids of 1 and these probabilities of a click."""
    flat = np.array([score for scores in server_scores for score in scores], np.float64)
    return Auctions(
        offsets=np.cumsum([0, *map(len, server_scores)], dtype=np.int64),
        ads=np.arange(len(flat), dtype=np.int64),
        bids=np.ones(len(flat)),
        server_click_probs=flat,
    )


def random_auctions(sizes: list[int], *, seed: int, num_levels: int = 0) -> Auctions:
    """Auctions of these sizes with lognormal bids; with few levels many scores are equal."""
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    levels = rng.integers(0, num_levels + 1, total) / max(num_levels, 1)
    return Auctions(
        offsets=np.cumsum([0, *sizes], dtype=np.int64),
        ads=np.arange(total, dtype=np.int64),
        bids=np.ones(total) if num_levels else rng.lognormal(size=total),
        server_click_probs=levels if num_levels else rng.random(total),
    )
