"""What a campaign would see under Attribution Level 1: credit, budgets that run out, and noise.

The aggregation service adds reports up and puts noise on the sum: discrete Laplace, because sums
are whole numbers. Its scale 2 * max_value / epsilon is the one that browsers charge budgets for.

Every user of a log is one browser. Reports of a conversion site are added up in one aggregate.
Two things make it wrong: conversions for which a browser had no budget left, or not in every
epoch, and noise. More epsilon for each conversion means less noise and fewer conversions. Both
errors are told bucket by bucket.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog
from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.w3c.attribution_state import (
    AttributionState,
    BrowserCredit,
    BudgetRefusal,
    Conversion,
    RandomDraws,
    most_important,
)
from tulle.measure.w3c.campaign_log import CampaignLog, load_campaign
from tulle.measure.w3c.options import (
    DAY_SECONDS,
    MAX_EPSILON,
    MICROEPSILONS,
    ConversionOptions,
    W3cLimits,
    check_conversion,
    range_error,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import FloatArray, IntArray
from tulle.privacy.fields import check_count, check_finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregationConfig:
    """What all conversions of one aggregate have in common. Public."""

    epsilon: float
    max_value: int

    def __post_init__(self) -> None:
        check_count("max_value", self.max_value)
        if not 0 < check_finite("epsilon", self.epsilon) <= MAX_EPSILON:
            raise range_error(f"epsilon={self.epsilon} must be in (0, {MAX_EPSILON}].")

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """Noise on each bucket; a report may move a sum by twice its value."""
        return DiscreteLaplaceConfig(
            scale=2 * self.max_value / self.epsilon, max_contribution=2 * self.max_value
        )


def aggregate_reports(
    raw_reports: ArrayLike, config: AggregationConfig, *, rng: NoiseSource | None = None
) -> IntArray:
    """The noisy sum of histograms.

    Args:
      raw_reports: One histogram in each row.
      config: Settings that all of them were measured with.
      rng: Source of the noise; None: the operating system's. Sensitive: never log or save its
        state.

    Privacy:
      Unit: the impressions that one browser saved in one epoch, seen by one conversion site,
      add-remove. L1 sensitivity: 2 * max_value for each report. Event: one DiscreteLaplace
      for each report of a unit. Relies on: browsers, which stop reports of a unit when their
      epsilons add up to its budget, and on each report being aggregated once.
    """
    rng = rng or release_rng()
    reports = np.asarray(raw_reports)
    if reports.ndim != 2 or reports.dtype.kind not in "iu":
        raise DataError(
            f"reports have shape {reports.shape} and type {reports.dtype}; "
            "give whole numbers, one histogram in each row."
        )
    if reports.size and (reports.min() < 0 or reports.sum(axis=1).max() > config.max_value):
        raise DataError(
            "a report has a negative bucket or adds up to more than "
            f"max_value={config.max_value}; leave it out, noise does not cover it."
        )
    return release_discrete_laplace(reports.sum(axis=0), config.noise, rng=rng)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CampaignSettings:
    """How conversions are measured. Public."""

    bucket: str
    """Column of impressions with the bucket, from 0, that gets their credit."""
    histogram_size: int
    epsilon: float = 1.0
    max_value: int = 1
    """Values above it count as much as it."""
    credit: tuple[float, ...] = (1.0,)
    """Weights of the last, the last but one, ... impression; see ConversionOptions."""
    lookback_days: int = 30
    limits: W3cLimits = dataclasses.field(default_factory=W3cLimits)

    def __post_init__(self) -> None:
        if not self.limits.aggregation_services:
            raise ConfigError("limits.aggregation_services is empty; name one service.")
        options = ConversionOptions(
            aggregation_service=next(iter(self.limits.aggregation_services)),
            histogram_size=self.histogram_size,
            epsilon=self.epsilon,
            max_value=self.max_value,
            credit=self.credit,
            lookback_days=self.lookback_days,
        )
        check_conversion(options, self.limits)

    @property
    def aggregation(self) -> AggregationConfig:
        """What the noise is made of."""
        return AggregationConfig(epsilon=self.epsilon, max_value=self.max_value)


@dataclasses.dataclass(slots=True)
class ReportCounts:
    """How the reports of a campaign came about. Sensitive."""

    num_conversions: int = 0
    num_attributable: int = 0
    """Conversions with a matching impression."""
    num_short: int = 0
    """Conversions that are credited without the impressions of an epoch without budget left."""
    num_empty: int = 0
    """Conversions that are not credited at all, because no epoch had budget left."""
    attributable_value: int = 0
    limited_value: int = 0
    """The part of it that is not above max_value."""
    reported_value: int = 0
    refusals: dict[BudgetRefusal, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(BudgetRefusal, 0)
    )
    """Epochs that could not be used, by the budget that was too small."""

    def add(self, outcome: BrowserCredit, limited_value: int, value: int) -> None:
        """Counts one conversion.

        Args:
          outcome: What the browser credited.
          limited_value: Value of the conversion, at most max_value.
          value: What it is worth, also above max_value.
        """
        self.num_conversions += 1
        if not outcome.matched:
            return
        self.num_attributable += 1
        self.attributable_value += value
        self.limited_value += limited_value
        self.reported_value += sum(outcome.parts)
        for refusal in outcome.refusals:
            self.refusals[refusal] += 1
        if outcome.refusals and outcome.touches:
            self.num_short += 1
        elif outcome.refusals:
            self.num_empty += 1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CampaignResult:
    """Truth and reports, before noise. Sensitive: nothing here is protected."""

    sites: tuple[str, ...]
    epsilon: float
    """Epsilon of each conversion."""
    site_budget: float
    """Budget of a conversion site for each epoch, as epsilon."""
    aggregation: AggregationConfig
    raw_true: FloatArray
    """Credit without budgets and without max_value, for each site and bucket."""
    raw_reported: IntArray
    """Sums of reports."""
    counts: ReportCounts

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each bucket."""
        return self.aggregation.noise.noise_stddev

    @property
    def share_lost_to_budget(self) -> float:
        """Share of the value up to max_value that no bucket got."""
        counts = self.counts
        lost = counts.limited_value - counts.reported_value
        return lost / counts.limited_value if counts.limited_value else 0.0

    @property
    def share_lost_to_max_value(self) -> float:
        """Share of the value that is above max_value."""
        counts = self.counts
        lost = counts.attributable_value - counts.limited_value
        return lost / counts.attributable_value if counts.attributable_value else 0.0

    def relative_errors(self, *, tau: float) -> FloatArray:
        """Root mean squared error over the noise, relative to max(tau, truth), by bucket."""
        return expected_relative_errors(
            self.raw_true,
            self.noise_stddev**2,
            bias=self.raw_reported - self.raw_true,
            tau=tau,
        )

    def rmsre(self, *, tau: float) -> float:
        """Root mean square of the relative errors of all buckets of all sites."""
        return root_mean_square(self.relative_errors(tau=tau))

    def to_dict(self, *, tau: float) -> dict[str, Any]:
        """Figures for a table or for JSON. Not protected."""
        counts = self.counts
        return {
            "epsilon": self.epsilon,
            "site_budget": self.site_budget,
            "num_conversions": counts.num_conversions,
            "num_attributable": counts.num_attributable,
            "num_short": counts.num_short,
            "num_empty": counts.num_empty,
            "refusals": {kind.value: count for kind, count in counts.refusals.items()},
            "share_lost_to_budget": self.share_lost_to_budget,
            "share_lost_to_max_value": self.share_lost_to_max_value,
            "noise_stddev": self.noise_stddev,
            "tau": tau,
            "rmsre": self.rmsre(tau=tau),
        }


def simulate_campaign(
    log: AdLog, settings: CampaignSettings, *, rng: NoiseSource | None = None
) -> CampaignResult:
    """Lets every user of a log be a browser, and compares reports with the truth.

    Args:
      log: Advertisers are conversion sites, and publishers are impression sites; without such a
        column all rows are of one site. Without a value column every conversion is worth 1.
      settings: How conversions are measured.
      rng: Draws when weeks start, and how credit is rounded.

    Privacy:
      None: the result is exact and shows what budgets would hide. Keep it with the data.
    """
    return _simulated(log, settings, [settings], rng)[0]


def what_if(
    log: AdLog,
    settings: CampaignSettings,
    *,
    epsilons: Sequence[float],
    site_budgets: Sequence[float],
    rng: NoiseSource | None = None,
) -> tuple[CampaignResult, ...]:
    """Simulates a campaign for every epsilon of a conversion and budget of a site, in epsilon.

    Budgets of all sites together and of impression sites keep their ratio to that of a site.

    Args:
      log: Impressions and conversions.
      settings: The campaign.
      epsilons: Epsilons of a conversion to try.
      site_budgets: Budgets of a site to try, as epsilon.
      rng: Source of the noise; None: the operating system's. Sensitive: never log or save its
        state.

    Privacy:
      None: see `simulate_campaign`.
    """
    return _simulated(log, settings, _variants(settings, epsilons, site_budgets), rng)


def _variants(
    settings: CampaignSettings, epsilons: Sequence[float], site_budgets: Sequence[float]
) -> list[CampaignSettings]:
    limits, variants = settings.limits, []
    for site_budget in site_budgets:
        ratio = site_budget * MICROEPSILONS / limits.per_site_privacy_budget
        scaled = dataclasses.replace(
            limits,
            per_site_privacy_budget=round(site_budget * MICROEPSILONS),
            global_privacy_budget_per_epoch=round(limits.global_privacy_budget_per_epoch * ratio),
            impression_site_quota_per_epoch=round(limits.impression_site_quota_per_epoch * ratio),
        )
        for epsilon in epsilons:
            variants.append(dataclasses.replace(settings, epsilon=epsilon, limits=scaled))
    return variants


def _simulated(
    log: AdLog,
    settings: CampaignSettings,
    variants: Sequence[CampaignSettings],
    rng: NoiseSource | None,
) -> tuple[CampaignResult, ...]:
    rng = rng or release_rng()
    # Variants differ in epsilon and budgets, which the log is not read by.
    size = settings.histogram_size
    loaded = load_campaign(log, bucket=settings.bucket, histogram_size=size)
    return tuple(_simulate(loaded, variant, rng) for variant in variants)


def _simulate(loaded: CampaignLog, settings: CampaignSettings, rng: NoiseSource) -> CampaignResult:
    limits, max_value = settings.limits, settings.max_value
    lookback = min(settings.lookback_days, limits.max_lookback_days) * DAY_SECONDS
    draws = RandomDraws(rng)
    # Lists by site: numbers are added one by one, which arrays are slow at.
    true = {site: [0.0] * settings.histogram_size for site in loaded.sites}
    reported = {site: [0] * settings.histogram_size for site in loaded.sites}
    counts = ReportCounts()
    for impressions, conversions in loaded.timelines(lifetime_days=limits.max_lookback_days):
        state = AttributionState(limits, draws)
        num_shown = 0
        for now, site, value in conversions:
            num_saved = num_shown
            while num_shown < len(impressions) and impressions[num_shown].timestamp <= now:
                num_shown += 1
            state.impressions += impressions[num_saved:num_shown]
            conversion = Conversion(
                now=now,
                site=site,
                caller=site,
                lookback=lookback,
                histogram_size=settings.histogram_size,
                epsilon=settings.epsilon,
                value=min(value, max_value),
                max_value=max_value,
                credit=settings.credit,
            )
            outcome = state.attribute(conversion)
            counts.add(outcome, conversion.value, value)
            for touch, part in zip(outcome.touches, outcome.parts, strict=True):
                reported[site][touch.histogram_index] += part
            for bucket, credit in _true_credit(outcome, settings.credit, value):
                true[site][bucket] += credit
    shape = len(loaded.sites), settings.histogram_size
    return CampaignResult(
        sites=loaded.sites,
        epsilon=settings.epsilon,
        site_budget=limits.per_site_privacy_budget / MICROEPSILONS,
        aggregation=settings.aggregation,
        raw_true=np.array(list(true.values()), np.float64).reshape(shape),
        raw_reported=np.array(list(reported.values()), np.int64).reshape(shape),
        counts=counts,
    )


def _true_credit(
    outcome: BrowserCredit, weights: tuple[float, ...], value: int
) -> Iterator[tuple[int, float]]:
    """Buckets of a conversion and their credit, as if no budget were ever too small."""
    touches = outcome.touches
    if outcome.refusals:
        touches = most_important(outcome.matched, len(weights))
    total = sum(weights[: len(touches)])
    for touch, weight in zip(touches, weights, strict=False):
        yield touch.histogram_index, value * weight / total
