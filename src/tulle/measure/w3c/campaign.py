"""What a campaign would see under Attribution Level 1: credit, budgets that run out, and noise.

Every user of a log is one browser. Reports of a conversion site are added up in one aggregate.
Two things make it wrong: conversions for which a browser had no budget left, or not in every
epoch, and noise. More epsilon for each conversion means less noise and fewer conversions. Both
errors are told bucket by bucket.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog
from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.w3c.aggregation import AggregationConfig
from tulle.measure.w3c.attribution_state import (
    AttributionState,
    BrowserCredit,
    Conversion,
    most_important,
)
from tulle.measure.w3c.budgets import BudgetRefusal, RandomDraws
from tulle.measure.w3c.campaign_log import CampaignLog, load_campaign
from tulle.measure.w3c.limits import DAY_SECONDS, MICROEPSILONS, W3cLimits
from tulle.measure.w3c.options import ConversionOptions, check_conversion
from tulle.mechanisms.discrete_laplace import release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import FloatArray, IntArray


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

    num_conversions: int
    num_attributable: int
    """Conversions with a matching impression."""
    num_short: int
    """Conversions that are credited without the impressions of an epoch without budget left."""
    num_empty: int
    """Conversions that are not credited at all, because no epoch had budget left."""
    attributable_value: int
    limited_value: int
    """The part of it that is not above max_value."""
    reported_value: int
    refusals: dict[BudgetRefusal, int]
    """Epochs that could not be used, by the budget that was too small."""

    @classmethod
    def none(cls) -> "ReportCounts":
        """Counts before there is any report: all are 0."""
        return cls(0, 0, 0, 0, 0, 0, 0, dict.fromkeys(BudgetRefusal, 0))


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
        return self.aggregation.noise_stddev

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

    def noisy_histograms(self, *, rng: NoiseSource) -> IntArray:
        """What the aggregation service would answer, for each site and bucket.

        Privacy:
          As `aggregate_reports`; the budgets were those of the simulated browsers.
        """
        return release_discrete_laplace(self.raw_reported, self.aggregation.noise, rng=rng)

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
    rng = rng or release_rng()
    return _simulate(_load(log, settings), settings, rng)


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
    rng = rng or release_rng()
    loaded = _load(log, settings)
    return tuple(
        _simulate(loaded, variant, rng) for variant in _variants(settings, epsilons, site_budgets)
    )


def _variants(
    settings: CampaignSettings, epsilons: Sequence[float], site_budgets: Sequence[float]
) -> Iterable[CampaignSettings]:
    limits = settings.limits
    for site_budget in site_budgets:
        ratio = site_budget * MICROEPSILONS / limits.per_site_privacy_budget
        scaled = dataclasses.replace(
            limits,
            per_site_privacy_budget=round(site_budget * MICROEPSILONS),
            global_privacy_budget_per_epoch=round(limits.global_privacy_budget_per_epoch * ratio),
            impression_site_quota_per_epoch=round(limits.impression_site_quota_per_epoch * ratio),
        )
        for epsilon in epsilons:
            yield dataclasses.replace(settings, epsilon=epsilon, limits=scaled)


def _load(log: AdLog, settings: CampaignSettings) -> CampaignLog:
    return load_campaign(log, bucket=settings.bucket, histogram_size=settings.histogram_size)


def _simulate(loaded: CampaignLog, settings: CampaignSettings, rng: NoiseSource) -> CampaignResult:
    limits, max_value = settings.limits, settings.max_value
    lookback = min(settings.lookback_days, limits.max_lookback_days) * DAY_SECONDS
    draws = RandomDraws(rng)
    tally = _Tally(loaded.sites, settings)
    for timeline in loaded.timelines(lifetime_days=limits.max_lookback_days):
        state = AttributionState(limits, draws)
        impressions = timeline.impressions
        num_shown = 0
        for now, site, value in timeline.conversions:
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
            tally.add(state.attribute(conversion), conversion, value)
    return tally.result()


class _Tally:
    """Sums over all browsers."""

    def __init__(self, sites: tuple[str, ...], settings: CampaignSettings) -> None:
        self._sites, self._settings = sites, settings
        size = settings.histogram_size
        self._true = {site: [0.0] * size for site in sites}
        self._reported = {site: [0] * size for site in sites}
        self._counts = ReportCounts.none()

    def add(self, outcome: BrowserCredit, conversion: Conversion, value: int) -> None:
        """Adds one conversion; `value` is what it is worth, also above max_value.

        Args:
          outcome: What the browser credited.
          conversion: The call.
          value: The value of the conversion before it was limited.
        """
        counts = self._counts
        counts.num_conversions += 1
        if not outcome.matched:
            return
        counts.num_attributable += 1
        counts.attributable_value += value
        counts.limited_value += conversion.value
        if outcome.refusals:
            for refusal in outcome.refusals:
                counts.refusals[refusal] += 1
            if outcome.touches:
                counts.num_short += 1
            else:
                counts.num_empty += 1
        reported = self._reported[conversion.site]
        for touch, part in zip(outcome.touches, outcome.parts, strict=True):
            reported[touch.histogram_index] += part
            counts.reported_value += part
        touches = outcome.touches
        if outcome.refusals:
            touches = most_important(outcome.matched, len(conversion.credit))
        weights = conversion.credit[: len(touches)]
        total = sum(weights)
        true = self._true[conversion.site]
        for touch, weight in zip(touches, weights, strict=True):
            true[touch.histogram_index] += value * weight / total

    def result(self) -> CampaignResult:
        """The sums as arrays."""
        shape = len(self._sites), self._settings.histogram_size
        return CampaignResult(
            sites=self._sites,
            epsilon=self._settings.epsilon,
            site_budget=self._settings.limits.per_site_privacy_budget / MICROEPSILONS,
            aggregation=self._settings.aggregation,
            raw_true=np.array(list(self._true.values()), np.float64).reshape(shape),
            raw_reported=np.array(list(self._reported.values()), np.int64).reshape(shape),
            counts=self._counts,
        )
