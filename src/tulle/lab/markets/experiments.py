"""The experiments of Laro et al. 2024 on one market, synthetic or built from a log."""

import dataclasses
from collections.abc import Sequence

from tulle.lab.markets.market_sample import (
    CandidateCounts,
    ClickDifferences,
    MarketSample,
    candidate_counts,
    click_differences,
)
from tulle.lab.markets.pricing_effect import PricingRow, pricing_effect
from tulle.lab.markets.single_auctions import SingleAuctionRow, single_auctions
from tulle.lab.markets.sweeps import (
    FinalistRow,
    GammaRow,
    SweepRow,
    SweepSettings,
    epsilon_sweep,
    finalist_sweep,
    gamma_sweep,
)
from tulle.select.mechanisms.noisy_max import typical_score
from tulle.select.planner.click_prior import LogitNormalPrior

_DIFFERENCE_EDGES = tuple(number / 200 for number in range(21))
_MOST_FINALISTS = 25
"""Longest shortlist that is swept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """Grids of all experiments. Every field is public."""

    sweep: SweepSettings = dataclasses.field(default_factory=SweepSettings)
    shortlist_epsilons: Sequence[float] = (1.0, 2.0, 3.0, 5.0, 8.0)
    """Epsilons of the sweeps over gamma and over the number of finalists."""
    alphas: Sequence[float] = (1.0, 0.5, 0.25, 0.1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarketExperiments:
    """What was found on one market. As sensitive as its device predictions."""

    market: str
    num_auctions: int
    mean_candidates: float
    gain: float
    """Share by which greedy selection raises welfare above the server's winners."""
    pricing: tuple[PricingRow, ...]
    epsilon_rows: tuple[SweepRow, ...]
    gamma_rows: tuple[GammaRow, ...]
    finalist_rows: tuple[FinalistRow, ...]
    single_rows: tuple[SingleAuctionRow, ...]
    counts: CandidateCounts
    differences: tuple[ClickDifferences, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "market": self.market,
            "num_auctions": self.num_auctions,
            "mean_candidates": self.mean_candidates,
            "gain": self.gain,
            "pricing": [row.to_dict() for row in self.pricing],
            "epsilon_rows": [row.to_dict() for row in self.epsilon_rows],
            "gamma_rows": [row.to_dict() for row in self.gamma_rows],
            "finalist_rows": [row.to_dict() for row in self.finalist_rows],
            "single_rows": [row.to_dict() for row in self.single_rows],
            "counts": self.counts.to_dict(),
            "differences": [row.to_dict() for row in self.differences],
        }


def run_experiments(
    market: str,
    planning: MarketSample,
    judged: MarketSample,
    *,
    settings: ExperimentSettings,
    prior: LogitNormalPrior | None,
) -> MarketExperiments:
    """Everything that can be found out on one market.

    Args:
      market: Name of the market.
      planning: Where settings are tuned: other devices than the judged ones.
      judged: What the results are about.
      settings: Grids.
      prior: Public model of the devices' predictions; without it no mechanism that needs one.

    Privacy:
      Not a private release: computed from device predictions of both samples. For synthetic
      markets and panels that agreed.
    """
    sweep, epsilons = settings.sweep, settings.shortlist_epsilons
    return MarketExperiments(
        market=market,
        num_auctions=len(judged.auctions),
        mean_candidates=judged.auctions.num_candidates / len(judged.auctions),
        gain=judged.gain,
        pricing=pricing_effect(judged),
        epsilon_rows=epsilon_sweep(planning, judged, settings=sweep, prior=prior),
        gamma_rows=gamma_sweep(judged, epsilons=epsilons, gammas=sweep.gammas),
        finalist_rows=finalist_sweep(
            judged, epsilons=epsilons, nums_finalists=_nums_finalists(judged)
        ),
        single_rows=single_auctions(
            judged, epsilons=sweep.epsilons, width=typical_score(judged.auctions)
        ),
        counts=candidate_counts(judged.auctions),
        differences=click_differences(judged, alphas=settings.alphas, edges=_DIFFERENCE_EDGES),
    )


def _nums_finalists(sample: MarketSample) -> range:
    return range(1, min(int(sample.auctions.sizes.max()), _MOST_FINALISTS) + 1)
