"""Randomized response over the cutoff gamma. Figures 4 and 8 of Laro et al. 2024.

A small gamma leaves out ads that some devices would prefer, a large one gives much of the chance
to ads that none does. In between is an optimum, and it moves with epsilon.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import Cutoff
from tulle.select.market.market_sample import MarketSample, lifts
from tulle.select.metrics import MarketMetrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class GammaRow:
    """Randomized response with one cutoff at one epsilon. As sensitive as the sample."""

    epsilon: float
    gamma: float
    mean_finalists: float
    rule: str
    metrics: MarketMetrics
    lifts: dict[str, float | None]
    """Against the server's winners."""
    captured_share: float
    """Of the gain in welfare from the server's winners to the devices' favourites."""

    def to_dict(self) -> dict[str, object]:
        """One flat row."""
        return {
            "epsilon": self.epsilon,
            "gamma": self.gamma,
            "mean_finalists": self.mean_finalists,
            "rule": self.rule,
            **self.metrics.to_dict(),
            **self.lifts,
            "captured_share": self.captured_share,
        }


def gamma_sweep(
    sample: MarketSample, *, epsilons: Sequence[float], gammas: Sequence[float]
) -> tuple[GammaRow, ...]:
    """Every gamma at every epsilon.

    Privacy:
      Not a private release: computed from device predictions.
    """
    return tuple(_row(sample, epsilon, gamma) for epsilon in epsilons for gamma in gammas)


def best_gamma(rows: Sequence[GammaRow], *, epsilon: float, objective: str = "welfare") -> float:
    """The gamma with the most of a metric at one epsilon; the smallest of equals."""
    found = [row for row in rows if row.epsilon == epsilon]
    return max(found, key=lambda row: (row.metrics.to_dict()[objective], -row.gamma)).gamma


def _row(sample: MarketSample, epsilon: float, gamma: float) -> GammaRow:
    shortlist = Cutoff(gamma=gamma)
    metrics = sample.metrics(FloorMechanism(epsilon=epsilon, shortlist=shortlist))
    return GammaRow(
        epsilon=epsilon,
        gamma=gamma,
        mean_finalists=float(np.mean(shortlist.sizes(sample.auctions))),
        rule=sample.pricing.value,
        metrics=metrics,
        lifts=lifts(metrics, sample.baseline),
        captured_share=sample.captured_share(metrics),
    )
