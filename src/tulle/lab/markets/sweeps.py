"""What each mechanism is worth over epsilon, over the cutoff and over the number of finalists.

Figures 3, 4, 7 and 8 of Laro et al. 2024. A small cutoff gamma leaves out ads that some devices
would prefer, a large one gives much of the probability to ads that none does; in between is an
optimum, and it moves with epsilon. The same holds for the number of finalists.

Settings that have to be tuned (gamma, a width, a number of ads) are tuned on a planning sample and
judged on another one. A setting that is tuned on private data is only public if those data are
nobody's who is served later: a panel that agreed, an earlier release, or a model.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from tulle.lab.markets.market_sample import MarketSample, best_of, lifts
from tulle.select.auctions import FloatArray
from tulle.select.billing.prices import MarketMetrics, PricingRule
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.noisy_max import (
    ClippedScores,
    NoisyMax,
    ScaledScores,
    typical_score,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from tulle.select.planner.candidate_outcomes import favourite_probs
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.shortlist_outcomes import AdaptiveTop

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
    """Cutoffs to tune over."""
    relative_widths: Sequence[float] = (
        *(0.002, 0.005, 0.01, 0.02, 0.035, 0.05),
        *(0.075, 0.1, 0.15, 0.25, 0.4, 0.8),
    )
    """Widths of clipping to tune over, in typical server scores."""
    fixed_relative_widths: Sequence[float] = (0.02, 0.1, 0.4, 1.0)
    """Widths that are also shown on their own."""
    rules: Sequence[PricingRule] = (
        PricingRule.SECOND_PRICE,
        PricingRule.SECOND_PRICE_PER_CLICK,
    )
    noise: NoiseKind = NoiseKind.EXPONENTIAL


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One mechanism at one epsilon under one rule of pricing. As sensitive as the sample."""

    mechanism: str
    """Family of the mechanism; see `setting` for what was tuned."""
    setting: str
    epsilon: float
    rule: str
    metrics: MarketMetrics
    lifts: dict[str, float | None]
    """Lifts over the server's winners."""
    captured_share: float
    """Share that is kept of the gain in welfare from the server's winners to the devices'
    favourites."""
    captured_share_error: float
    """Standard error of the captured share, over the auctions and devices that were drawn."""

    def to_dict(self) -> dict[str, object]:
        """One flat row."""
        return _flat(self)


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
    winner_probs = None if prior is None else favourite_probs(judged.auctions, prior)
    rows = []
    for epsilon in settings.epsilons:
        mechanisms = [*_fixed(planning, epsilon, settings), *_tuned(planning, epsilon, settings)]
        if prior is not None and winner_probs is not None:
            mechanisms += _from_prior(epsilon, prior, winner_probs)
        for family, mechanism in mechanisms:
            probs = mechanism.selection_probs(judged.auctions, judged.raw_scores)
            rows += [_row(family, mechanism, epsilon, probs, sample) for sample in samples]
    return tuple(rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GammaRow:
    """Randomized response with one cutoff at one epsilon. As sensitive as the sample."""

    epsilon: float
    gamma: float
    mean_finalists: float
    rule: str
    metrics: MarketMetrics
    lifts: dict[str, float | None]
    """Lifts over the server's winners."""
    captured_share: float
    """Share that is kept of the gain in welfare from the server's winners to the devices'
    favourites."""

    def to_dict(self) -> dict[str, object]:
        """One flat row."""
        return _flat(self)


def gamma_sweep(
    sample: MarketSample, *, epsilons: Sequence[float], gammas: Sequence[float]
) -> tuple[GammaRow, ...]:
    """Every gamma at every epsilon.

    Args:
      sample: What the rows are about.
      epsilons: Epsilons of one decision.
      gammas: Cutoffs.

    Privacy:
      Not a private release: computed from device predictions.
    """
    return tuple(_gamma_row(sample, epsilon, gamma) for epsilon in epsilons for gamma in gammas)


def best_gamma(rows: Sequence[GammaRow], *, epsilon: float, objective: str = "welfare") -> float:
    """The gamma with the most of a metric at one epsilon; the smallest of equals.

    Args:
      rows: What `gamma_sweep` gave.
      epsilon: One of those that were swept.
      objective: The metric that is made large.
    """
    found = [row for row in rows if row.epsilon == epsilon]
    return max(found, key=lambda row: (row.metrics.to_dict()[objective], -row.gamma)).gamma


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinalistRow:
    """One number of finalists at one epsilon. As sensitive as the sample."""

    epsilon: float
    num_finalists: int
    metrics: MarketMetrics
    captured_share: float
    """Share that is kept of the gain in welfare from the server's winners to the devices'
    favourites."""

    def to_dict(self) -> dict[str, object]:
        """One flat row."""
        return _flat(self)


def finalist_sweep(
    sample: MarketSample, *, epsilons: Sequence[float], nums_finalists: Sequence[int]
) -> tuple[FinalistRow, ...]:
    """Every number of finalists at every epsilon.

    Args:
      sample: What the rows are about.
      epsilons: Epsilons of one decision.
      nums_finalists: Lengths of the shortlist.

    Privacy:
      Not a private release: computed from device predictions.
    """
    return tuple(
        _finalist_row(sample, epsilon, number) for epsilon in epsilons for number in nums_finalists
    )


def tuned_clipping(
    sample: MarketSample,
    *,
    epsilon: float,
    widths: Sequence[float],
    noise: NoiseKind = NoiseKind.EXPONENTIAL,
    objective: str = "welfare",
) -> NoisyMax:
    """Noisy max over clipped scores with the width that is best on the sample.

    Args:
      sample: Where the width is tuned.
      epsilon: Epsilon of the mechanism.
      widths: What is tried.
      noise: Law of the noise.
      objective: The metric that is made large.

    Privacy:
      Not a private release: the width depends on the sample's device predictions.
    """
    options = [
        NoisyMax(epsilon=epsilon, noise=noise, score_bound=ClippedScores(width=width))
        for width in widths
    ]
    return best_of(sample, options, objective=objective)


def _flat(row: SweepRow | GammaRow | FinalistRow) -> dict[str, object]:
    """The fields of a row, with each metric and each lift as a column of its own."""
    flat: dict[str, object] = {}
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if isinstance(value, MarketMetrics):
            flat |= value.to_dict()
        elif isinstance(value, dict):
            flat |= value
        else:
            flat[field.name] = value
    return flat


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
    cutoffs = [
        FloorMechanism(epsilon=epsilon, shortlist=Cutoff(gamma=gamma)) for gamma in settings.gammas
    ]
    yield TUNED_CUTOFF, best_of(planning, cutoffs)


def _from_prior(
    epsilon: float, prior: LogitNormalPrior, winner_probs: FloatArray
) -> Iterator[_Named]:
    yield WITH_PRIOR, PriorChoice(epsilon=epsilon, winner_probs=winner_probs)
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


def _gamma_row(sample: MarketSample, epsilon: float, gamma: float) -> GammaRow:
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


def _finalist_row(sample: MarketSample, epsilon: float, num_finalists: int) -> FinalistRow:
    shortlist = TopCandidates(num_finalists=num_finalists)
    metrics = sample.metrics(FloorMechanism(epsilon=epsilon, shortlist=shortlist))
    return FinalistRow(
        epsilon=epsilon,
        num_finalists=num_finalists,
        metrics=metrics,
        captured_share=sample.captured_share(metrics),
    )
