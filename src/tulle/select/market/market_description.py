"""What a market looks like: candidates an auction, and how much devices know beyond the server.

Figures 11 and 12 of Laro et al. 2024. Both decide which mechanism does well.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tulle.select.auctions import Auctions
from tulle.select.market.market_sample import MarketSample
from tulle.select.market.mixing import mix_device_clicks


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateCounts:
    """Which share of auctions has at most so many candidates. Public."""

    num_candidates: tuple[int, ...]
    """Every number that occurs, rising."""
    shares: tuple[float, ...]
    """Of the auctions with at most so many; the last is 1."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClickDifferences:
    """Histogram of |device - server| over candidates, for one alpha. As sensitive as the sample."""

    alpha: float
    edges: tuple[float, ...]
    shares: tuple[float, ...]
    """Of the candidates between one edge and the next; beyond the last edge in the last bin."""
    median: float

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self)


def candidate_counts(auctions: Auctions) -> CandidateCounts:
    """The distribution function of the number of candidates."""
    numbers, counts = np.unique(auctions.sizes, return_counts=True)
    return CandidateCounts(
        num_candidates=tuple(int(number) for number in numbers),
        shares=tuple(float(share) for share in np.cumsum(counts) / len(auctions)),
    )


def click_differences(
    sample: MarketSample, *, alphas: Sequence[float], edges: Sequence[float]
) -> tuple[ClickDifferences, ...]:
    """How far devices are from the server, for several shares alpha of what they know.

    Privacy:
      Not a private release: computed from device predictions.
    """
    found = []
    for alpha in alphas:
        device = mix_device_clicks(sample.auctions, sample.device, alpha=alpha)
        differences = np.abs(device.click_probs - sample.auctions.server_click_probs)
        counts, _ = np.histogram(np.minimum(differences, edges[-1]), np.asarray(edges))
        found.append(
            ClickDifferences(
                alpha=alpha,
                edges=tuple(edges),
                shares=tuple(float(share) for share in counts / len(differences)),
                median=float(np.median(differences)),
            )
        )
    return tuple(found)
