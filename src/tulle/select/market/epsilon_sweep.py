"""What each mechanism is worth over epsilon. Figures 3 and 7 of Laro et al. 2024.

Settings that have to be tuned are tuned on a planning sample and judged on another one.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from tulle.select.auctions import FloatArray
from tulle.select.baselines.noisy_max import NoiseKind, NoisyMax
from tulle.select.baselines.prior_response import PriorResponse
from tulle.select.baselines.score_bounds import ClippedScores, ScaledScores
from tulle.select.billing.prices import PricingRule
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import Cutoff
from tulle.select.market.market_sample import MarketSample, lifts
from tulle.select.market.tuned_mechanisms import tuned_clipping, tuned_cutoff, typical_score
from tulle.select.mechanism import SelectionMechanism
from tulle.select.metrics import MarketMetrics
from tulle.select.planner.adaptive_shortlist import AdaptiveTop
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.top_chances import winner_chances

RANDOMIZED_RESPONSE = "randomized response"
PAPER_CUTOFF = "randomized response, gamma 0.8"
TUNED_CUTOFF = "randomized response, gamma tuned"
ADAPTIVE = "adaptive top-k randomized response"
SCALED = "noisy max, scaled"
CLIPPED = "noisy max, clipped"
TUNED_CLIPPED = "noisy max, clipped, width tuned"
WITH_PRIOR = "randomized response with prior"

_Named = tuple[str, SelectionMechanism]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What is compared. Every field is public."""

    epsilons: Sequence[float] = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
    gammas: Sequence[float] = tuple(number / 20 for number in range(21))
    """To tune the cutoff over."""
    relative_widths: Sequence[float] = (
        *(0.002, 0.005, 0.01, 0.02, 0.035, 0.05),
        *(0.075, 0.1, 0.15, 0.25, 0.4, 0.8),
    )
    """To tune the clipping over, in typical server scores."""
    fixed_relative_widths: Sequence[float] = (0.02, 0.1, 0.4, 1.0)
    """Also shown on their own."""
    rules: Sequence[PricingRule] = (
        PricingRule.SECOND_PRICE,
        PricingRule.SECOND_PRICE_PER_CLICK,
    )
    noise: NoiseKind = NoiseKind.EXPONENTIAL


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One mechanism at one epsilon under one rule of pricing. As sensitive as the sample."""

    mechanism: str
    """Its family; see `setting` for what was tuned."""
    setting: str
    epsilon: float
    rule: str
    metrics: MarketMetrics
    lifts: dict[str, float | None]
    """Against the server's winners."""
    captured_share: float
    """Of the gain in welfare from the server's winners to the devices' favourites."""
    captured_share_error: float
    """Its standard error, over the auctions and devices that were drawn."""

    def to_dict(self) -> dict[str, object]:
        """One flat row."""
        return {
            "mechanism": self.mechanism,
            "setting": self.setting,
            "epsilon": self.epsilon,
            "rule": self.rule,
            **self.metrics.to_dict(),
            **self.lifts,
            "captured_share": self.captured_share,
            "captured_share_error": self.captured_share_error,
        }


def epsilon_sweep(
    planning: MarketSample,
    judged: MarketSample,
    *,
    settings: SweepSettings,
    prior: LogitNormalPrior | None,
) -> tuple[SweepRow, ...]:
    """Every mechanism at every epsilon.

    Args:
      planning: Where gamma and widths are tuned.
      judged: What the rows are about.
      settings: Epsilons and grids.
      prior: Public model of the devices' predictions; without it no mechanism that needs one.

    Privacy:
      Not a private release: computed from device predictions of both samples.
    """
    samples = [dataclasses.replace(judged, pricing=rule) for rule in settings.rules]
    winner_probs = None if prior is None else winner_chances(judged.auctions, prior)
    rows = []
    for epsilon in settings.epsilons:
        mechanisms = [*_fixed(planning, epsilon, settings), *_tuned(planning, epsilon, settings)]
        if prior is not None and winner_probs is not None:
            mechanisms += _from_prior(epsilon, prior, winner_probs)
        for family, mechanism in mechanisms:
            probs = mechanism.selection_probs(judged.auctions, judged.raw_scores)
            rows += [_row(family, mechanism, epsilon, probs, sample) for sample in samples]
    return tuple(rows)


def _fixed(planning: MarketSample, epsilon: float, settings: SweepSettings) -> Iterator[_Named]:
    unit = typical_score(planning.auctions)
    yield RANDOMIZED_RESPONSE, FloorMechanism(epsilon=epsilon)
    yield PAPER_CUTOFF, FloorMechanism(epsilon=epsilon, shortlist=Cutoff(gamma=0.8))
    yield SCALED, NoisyMax(epsilon=epsilon, noise=settings.noise, score_bound=ScaledScores())
    for width in settings.fixed_relative_widths:
        bound = ClippedScores(width=width * unit)
        yield CLIPPED, NoisyMax(epsilon=epsilon, noise=settings.noise, score_bound=bound)


def _tuned(planning: MarketSample, epsilon: float, settings: SweepSettings) -> Iterator[_Named]:
    unit = typical_score(planning.auctions)
    widths = [width * unit for width in settings.relative_widths]
    clipped = tuned_clipping(planning, epsilon=epsilon, widths=widths, noise=settings.noise)
    yield TUNED_CLIPPED, clipped
    yield TUNED_CUTOFF, tuned_cutoff(planning, epsilon=epsilon, gammas=settings.gammas)


def _from_prior(
    epsilon: float, prior: LogitNormalPrior, winner_probs: FloatArray
) -> Iterator[_Named]:
    yield WITH_PRIOR, PriorResponse(epsilon=epsilon, winner_probs=winner_probs)
    shortlist = AdaptiveTop(epsilon=epsilon, prior=prior)
    yield ADAPTIVE, FloorMechanism(epsilon=epsilon, shortlist=shortlist)


def _row(
    family: str,
    mechanism: SelectionMechanism,
    epsilon: float,
    selection_probs: FloatArray,
    sample: MarketSample,
) -> SweepRow:
    metrics = sample.metrics_of(selection_probs)
    return SweepRow(
        mechanism=family,
        setting=mechanism.name,
        epsilon=epsilon,
        rule=sample.pricing.value,
        metrics=metrics,
        lifts=lifts(metrics, sample.baseline),
        captured_share=sample.captured_share(metrics),
        captured_share_error=sample.captured_share_error(selection_probs),
    )
