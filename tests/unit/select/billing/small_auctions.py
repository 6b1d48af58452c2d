"""Small auctions to bill, and markets with calibrated server predictions."""

from collections import Counter

import numpy as np

from tulle.select.auctions import Auctions, DeviceClicks, FloatArray, IntArray
from tulle.select.billing.bill import Choices


def auctions_of(*auctions: list[tuple[int, float, float]]) -> Auctions:
    """One list of (ad, bid, server's click probability) for each auction."""
    rows = [row for auction in auctions for row in auction]
    return Auctions(
        offsets=np.cumsum([0, *(len(auction) for auction in auctions)]),
        ads=np.array([row[0] for row in rows], np.int64),
        bids=np.array([row[1] for row in rows], np.float64),
        server_click_probs=np.array([row[2] for row in rows], np.float64),
    )


def random_auctions(
    num_auctions: int, *, seed: int, sizes: tuple[int, int] = (1, 6), num_ads: int = 9
) -> Auctions:
    """Auctions of mixed sizes, with some equal scores and some probabilities of 0."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(sizes[0], sizes[1] + 1, num_auctions)
    ads = [rng.choice(num_ads, length, replace=False) for length in lengths]
    num_candidates = int(lengths.sum())
    return Auctions(
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        ads=np.concatenate(ads),
        bids=np.round(rng.lognormal(0, 0.8, num_candidates), 1),
        server_click_probs=rng.integers(0, 11, num_candidates) / 10,
    )


def random_clicks(auctions: Auctions, *, seed: int) -> DeviceClicks:
    return DeviceClicks(click_probs=np.random.default_rng(seed).random(auctions.num_candidates))


def calibrated_market(
    num_auctions: int,
    num_candidates: int,
    *,
    seed: int,
    public_stddev: float = 0.5,
    private_stddev: float = 0.6,
) -> tuple[Auctions, DeviceClicks]:
    """Log-normal bids; the server predicts the mean of what the device knows."""
    rng = np.random.default_rng(seed)
    num_rows = num_auctions * num_candidates
    public = rng.normal(-3, public_stddev, num_rows)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    server = _chance(public[:, np.newaxis] + private_stddev * nodes) @ (weights / weights.sum())
    device = _chance(public + rng.normal(0, private_stddev, num_rows))
    auctions = Auctions(
        offsets=np.arange(num_auctions + 1) * num_candidates,
        ads=np.tile(np.arange(num_candidates), num_auctions),
        bids=rng.lognormal(0, 0.8, num_rows),
        server_click_probs=server,
    )
    return auctions, DeviceClicks(click_probs=device)


def rows_of(auctions: Auctions) -> list[IntArray]:
    """The places of each auction's candidates."""
    bounds = zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True)
    return [np.arange(first, last) for first, last in bounds]


def choices_at(auctions: Auctions, places: IntArray) -> Choices:
    """The candidate at one place of each auction."""
    return Choices(auctions=np.arange(len(auctions)), ads=auctions.ads[places])


def counts_of(choices: Choices, cells: IntArray) -> dict[str, IntArray]:
    """How often each ad was chosen in each cell, as a shuffler adds them up."""
    counts = Counter(zip(cells[choices.auctions].tolist(), choices.ads.tolist(), strict=True))
    pairs = np.array(list(counts), np.int64).reshape(-1, 2)
    impressions = np.array(list(counts.values()), np.int64)
    return {"cells": pairs[:, 0], "ads": pairs[:, 1], "impressions": impressions}


def _chance(logits: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-logits))
