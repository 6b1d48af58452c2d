"""Auction logs for ad selection, with exact truth.

In each auction some ads compete. The device knows logit p = public part + private part,
the server the public part only; its prediction is exactly E[p_device | public part]. Bids
are log-normal and may go with the public part (or against it).
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tulle.data.synth.table_files import (
    TableForm,
    decimal_text,
    integer_text,
    join_lines,
    write_table,
)
from tulle.data.synth.zipf import normal_deviates, salt_of
from tulle.data.threads import map_in_order
from tulle.errors import ConfigError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

AUCTIONS_PER_BLOCK = 1 << 13
"""Auctions that are drawn at once, each block from a key of its own."""
_NODES = 64
"""Nodes of a Gauss-Hermite sum: the mean of a logistic normal is then right to 1e-9."""
_PLACES = 9
"""Decimals of the reals in a file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionConfig:
    """Settings of an auction log. Every field is public information."""

    num_auctions: int
    min_candidates: int = 5
    max_candidates: int = 25
    num_ads: int = 10_000
    mean_logit: float = -3.5
    """Public part of the logit of a typical candidate."""
    public_stddev: float = 0.8
    """Standard deviation of the public part; half of its variance belongs to the ad."""
    private_stddev: float = 0.6
    """Standard deviation of the part that only the device knows."""
    bid_stddev: float = 0.8
    """Standard deviation of the log of the bid; the median bid is 1."""
    bid_correlation: float = 0.0
    """Correlation of the log of the bid with the public part."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_candidates <= self.max_candidates:
            raise ConfigError(
                f"min_candidates={self.min_candidates} must be >= 1 and at most "
                f"max_candidates={self.max_candidates}."
            )
        if not self.num_ads >= 2 * self.max_candidates or not self.num_ads < 2**31:
            raise ConfigError(
                f"num_ads={self.num_ads} must be at least twice max_candidates="
                f"{self.max_candidates} and below 2^31, so that candidates differ."
            )
        if not 1 <= self.num_auctions < 2**31:
            raise ConfigError(f"num_auctions={self.num_auctions} must be >= 1 and below 2^31.")
        for field in ("public_stddev", "private_stddev", "bid_stddev"):
            if not 0 <= getattr(self, field) <= 2.5:
                raise ConfigError(f"{field}={getattr(self, field)} must be between 0 and 2.5.")
        if not -1 <= self.bid_correlation <= 1:
            raise ConfigError(f"bid_correlation={self.bid_correlation} must be in [-1, 1].")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticAuctions:
    """Consecutive auctions; candidates of auction i are at offsets[i] to offsets[i + 1]."""

    first_auction: int
    offsets: IntArray
    ad: npt.NDArray[np.int32]
    """Ads from 1 on; the candidates of one auction differ."""
    bid: FloatArray
    p_server: FloatArray
    """E[p_device | public part]: calibrated, with no private data in it."""
    p_device: FloatArray
    """The true probability of a click. Sensitive in a real log."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def generate_auction_blocks(
    config: AuctionConfig, *, seed: int, num_threads: int | None = None
) -> Iterator[SyntheticAuctions]:
    """All auctions in order, 8,192 at a time.

    Args:
      config: What the log looks like.
      seed: Fixes the log; from 0 to 2^64 - 1.
      num_threads: Number of threads; None: one for each core, up to 8.
    """
    if not 0 <= seed < 2**64:
        raise ConfigError(f"seed={seed} must be between 0 and 2^64 - 1.")
    blocks = range(-(-config.num_auctions // AUCTIONS_PER_BLOCK))
    return map_in_order(lambda index: _block(config, seed, index), blocks, num_threads)


def write_auction_log(config: AuctionConfig, path: Path, *, seed: int) -> None:
    """Writes one line for each candidate, whole or not at all, in the form the suffix says.

    Args:
      config: What the log looks like.
      path: The new file.
      seed: Fixes the log; from 0 to 2^64 - 1.
    """
    form = TableForm(
        columns=("auction_id", "ad", "bid", "p_server", "p_device"),
        reals=frozenset({"bid", "p_server", "p_device"}),
    )
    write_table(path, form, map(_lines, generate_auction_blocks(config, seed=seed)))


def mean_prob(public_logits: FloatArray, private_stddev: float) -> FloatArray:
    """E[1 / (1 + exp(-(public + private)))] over a normal private part, to about 1e-9."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    probs = np.zeros_like(public_logits)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        probs += weight / (1 + np.exp(-(public_logits + private_stddev * node)))
    return probs


def _block(config: AuctionConfig, seed: int, index: int) -> SyntheticAuctions:
    key = np.array([seed, index], dtype=np.uint64)
    rng = np.random.Generator(np.random.Philox(key=key))
    first = index * AUCTIONS_PER_BLOCK
    num_auctions = min(AUCTIONS_PER_BLOCK, config.num_auctions - first)
    sizes = rng.integers(config.min_candidates, config.max_candidates + 1, num_auctions)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    total = int(offsets[-1])
    ad = _candidates(config, rng, sizes, offsets)
    public = (normal_deviates(ad, salt_of("ad")) + rng.standard_normal(total)) * np.sqrt(0.5)
    logit = config.mean_logit + config.public_stddev * public
    private = config.private_stddev * rng.standard_normal(total)
    own = np.sqrt(1 - config.bid_correlation**2) * rng.standard_normal(total)
    return SyntheticAuctions(
        first_auction=first,
        offsets=offsets,
        ad=ad,
        bid=np.exp(config.bid_stddev * (config.bid_correlation * public + own)),
        p_server=_server_probs(config, logit),
        p_device=1 / (1 + np.exp(-(logit + private))),
    )


def _candidates(
    config: AuctionConfig, rng: np.random.Generator, sizes: IntArray, offsets: IntArray
) -> npt.NDArray[np.int32]:
    # Steps small enough not to come round again make all candidates of an auction differ.
    start = rng.integers(0, config.num_ads, len(sizes))
    step = rng.integers(1, config.num_ads // config.max_candidates + 1, len(sizes))
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    ads = np.repeat(start, sizes) + place * np.repeat(step, sizes)
    return np.asarray(ads % config.num_ads + 1, dtype=np.int32)


def _server_probs(config: AuctionConfig, logit: FloatArray) -> FloatArray:
    # Linear between points 1/512 apart: the curve bends so little that this adds 5e-8.
    grid = np.arange(np.floor(logit.min() * 512), np.ceil(logit.max() * 512) + 1) / 512
    return np.interp(logit, grid, mean_prob(grid, config.private_stddev))


def _lines(block: SyntheticAuctions) -> bytes:
    auction = np.repeat(np.arange(len(block)), np.diff(block.offsets)) + block.first_auction
    reals = [
        decimal_text(np.rint(column * 10**_PLACES).astype(np.int64), _PLACES)
        for column in (block.bid, block.p_server, block.p_device)
    ]
    return join_lines([integer_text(auction), integer_text(block.ad), *reals], ",")
