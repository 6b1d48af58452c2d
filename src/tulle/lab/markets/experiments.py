"""The experiments of Laro et al. 2024 on one market, synthetic or built from a log.

Figures 2 and 6: what it does to revenue and surplus when private data leave the pricing. The
devices' favourites win, so clicks stay the same; what changes is the prediction of clicks that
prices are made from.

Figure 9: a few auctions one by one, in which what decides between mechanisms is seen best: with
few and with many candidates, where the server's winner is also the device's, is nearly as good,
or is far from it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tulle.errors import ConfigError
from tulle.lab.markets.market_sample import (
    CandidateCounts,
    ClickDifferences,
    MarketSample,
    candidate_counts,
    click_differences,
)
from tulle.lab.markets.sweeps import (
    FinalistRow,
    GammaRow,
    SweepRow,
    SweepSettings,
    epsilon_sweep,
    finalist_sweep,
    gamma_sweep,
)
from tulle.select.auctions import Auctions, FloatArray, server_ranks
from tulle.select.billing.prices import (
    AdPrices,
    PaidEvent,
    PricingRule,
    expected_metrics,
    price_candidates,
)
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism
from tulle.select.mechanisms.noisy_max import ClippedScores, NoisyMax, ScaledScores, typical_score
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.planner.click_prior import LogitNormalPrior

_DIFFERENCE_EDGES = tuple(number / 200 for number in range(21))
"""Edges of the histogram of |device - server|; nearly all differences are below 0.1."""
_MOST_FINALISTS = 25
"""Longest shortlist that is swept."""

BEST_OTHER = "best-other-score"
"""Each candidate would pay the best score among the others, whatever its own rank."""

_PRICING_RULES = (PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK)

_CLOSE = 0.5
"""A server's winner worth at least this share of the device's favourite is close to it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricingRow:
    """One rule and one prediction behind the prices."""

    rule: str
    predictions: str
    """Source of the predictions: device, server, or the same for all candidates (uninformed)."""
    revenue: float
    surplus: float
    revenue_lift: float
    """Lift over prices from the devices' predictions under the same rule."""
    surplus_lift: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleAuctionRow:
    """One mechanism in one auction. As sensitive as its device's predictions."""

    auction: int
    num_candidates: int
    server_is: str
    """How the server's winner does on the device: right, close or wrong."""
    mechanism: str
    epsilon: float
    score: float
    """Expected device score of the choice."""


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
        """Plain data, in which rows of the sweeps are flat."""
        return dataclasses.asdict(self) | {
            "epsilon_rows": [row.to_dict() for row in self.epsilon_rows],
            "gamma_rows": [row.to_dict() for row in self.gamma_rows],
            "finalist_rows": [row.to_dict() for row in self.finalist_rows],
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


def pricing_effect(sample: MarketSample) -> tuple[PricingRow, ...]:
    """Revenue and surplus by rule and prediction, with greedy selection.

    Privacy:
      Not a private release: computed from device predictions, and prices that are made from
      them are what the comparison warns of. For simulations and panels that agreed.
    """
    predictions = {
        "device": sample.device.click_probs,
        "server": sample.auctions.server_click_probs,
        "uninformed": np.full(
            sample.auctions.num_candidates, float(sample.device.click_probs.mean())
        ),
    }
    names = [*(rule.value for rule in _PRICING_RULES), BEST_OTHER]
    return tuple(row for name in names for row in _pricing_rows(sample, name, predictions))


def _pricing_rows(
    sample: MarketSample, rule: str, predictions: dict[str, FloatArray]
) -> list[PricingRow]:
    probs = Greedy().selection_probs(sample.auctions, sample.raw_scores)
    found = {}
    for name, click_probs in predictions.items():
        priced = dataclasses.replace(sample.auctions, server_click_probs=click_probs)
        prices = _prices(priced, rule)
        found[name] = expected_metrics(sample.auctions, sample.device, probs, prices)
    before = found["device"]
    if not (before.revenue > 0 and before.surplus > 0):
        raise ConfigError(
            "prices from the devices' predictions leave no revenue or no surplus to compare "
            "with; give auctions with two candidates or more."
        )
    return [
        PricingRow(
            rule=rule,
            predictions=name,
            revenue=metrics.revenue,
            surplus=metrics.surplus,
            revenue_lift=metrics.revenue / before.revenue - 1,
            surplus_lift=metrics.surplus / before.surplus - 1,
        )
        for name, metrics in found.items()
    ]


def _prices(auctions: Auctions, rule: str) -> AdPrices:
    if rule == BEST_OTHER:
        return AdPrices(amounts=best_other_scores(auctions), paid_event=PaidEvent.IMPRESSION)
    # No reserve: it is one on the server's scores, and those of other predictions differ.
    return price_candidates(auctions, PricingRule(rule), reserve=0.0)


def best_other_scores(auctions: Auctions) -> FloatArray:
    """[candidates], the best server score among the other candidates; 0 if there is none."""
    scores = auctions.server_scores
    ranks = server_ranks(auctions)
    starts = auctions.offsets[:-1]
    best = np.maximum.reduceat(scores, starts)
    second = np.maximum.reduceat(np.where(ranks == 0, 0.0, scores), starts)
    return np.where(ranks == 0, np.repeat(second, auctions.sizes), np.repeat(best, auctions.sizes))


def single_auctions(
    sample: MarketSample,
    *,
    epsilons: Sequence[float],
    width: float,
    few: int = 3,
    many: int = 10,
) -> tuple[SingleAuctionRow, ...]:
    """The first auction of each kind that there is, with every mechanism.

    Args:
      sample: Where auctions are looked for.
      epsilons: Values of epsilon to try each mechanism at.
      width: Width of clipped scores.
      few: Most candidates of a small auction.
      many: Fewest candidates of a large auction.

    Privacy:
      Not a private release: it shows single devices. For simulations and panels that agreed.
    """
    worth = _server_winner_worth(sample)
    sizes = sample.auctions.sizes
    rows = []
    for is_of_size in ((sizes > 1) & (sizes <= few), sizes >= many):
        for server_is, is_of_kind in (
            ("right", worth == 1),
            ("close", (worth >= _CLOSE) & (worth < 1)),
            ("wrong", worth < _CLOSE),
        ):
            found = np.flatnonzero(is_of_size & is_of_kind)[:1]
            if len(found):
                rows += _single_rows(sample, int(found[0]), server_is, epsilons, width)
    return tuple(rows)


def _server_winner_worth(sample: MarketSample) -> FloatArray:
    """[auctions], device score of the server's winner as a share of the best one."""
    is_winner = server_ranks(sample.auctions) == 0
    starts = sample.auctions.offsets[:-1]
    best = np.maximum.reduceat(sample.raw_scores, starts)
    chosen = sample.raw_scores[is_winner]
    return np.asarray(np.divide(chosen, best, out=np.ones_like(best), where=best > 0))


def _single_rows(
    sample: MarketSample, auction: int, server_is: str, epsilons: Sequence[float], width: float
) -> list[SingleAuctionRow]:
    alone = sample.subset(np.array([auction]))
    return [
        SingleAuctionRow(
            auction=auction,
            num_candidates=alone.auctions.num_candidates,
            server_is=server_is,
            mechanism=name,
            epsilon=epsilon,
            score=alone.metrics(mechanism).welfare,
        )
        for epsilon in epsilons
        for name, mechanism in _mechanisms(epsilon, width).items()
    ]


def _mechanisms(epsilon: float, width: float) -> dict[str, SelectionMechanism]:
    noise = NoiseKind.GUMBEL
    clipped = ClippedScores(width=width)
    return {
        "greedy": Greedy(),
        "not personalised": NonPersonalised(),
        "randomized response": FloorMechanism(epsilon=epsilon),
        "noisy max, scaled": NoisyMax(epsilon=epsilon, noise=noise, score_bound=ScaledScores()),
        "noisy max, clipped": NoisyMax(epsilon=epsilon, noise=noise, score_bound=clipped),
    }
