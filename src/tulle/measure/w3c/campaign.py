"""What a campaign would see under Attribution Level 1: credit, budgets that run out, and noise.

Every user of a log is one browser. Reports of a conversion site are added up in one aggregate.
Two things make it wrong: conversions for which a browser had no budget left, or not in every
epoch, and noise. More epsilon for each conversion means less noise and fewer conversions.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog
from tulle.measure.w3c.aggregation import AggregationConfig
from tulle.measure.w3c.attribution_state import (
    Attribution,
    AttributionState,
    Conversion,
    most_important,
)
from tulle.measure.w3c.campaign_log import CampaignLog, load_campaign
from tulle.measure.w3c.campaign_result import CampaignResult, ReportCounts
from tulle.measure.w3c.draws import RandomDraws
from tulle.measure.w3c.limits import DAY_SECONDS, MICROEPSILONS, W3cLimits
from tulle.measure.w3c.options import ConversionOptions, check_conversion
from tulle.mechanisms.entropy import NoiseSource


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


def simulate_campaign(
    log: AdLog, settings: CampaignSettings, *, rng: NoiseSource
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
    return _simulate(_load(log, settings), settings, rng)


def what_if(
    log: AdLog,
    settings: CampaignSettings,
    *,
    epsilons: Sequence[float],
    site_budgets: Sequence[float],
    rng: NoiseSource,
) -> tuple[CampaignResult, ...]:
    """The same campaign for every epsilon of a conversion and every budget of a site, in epsilon.

    Budgets of all sites together and of impression sites keep their ratio to that of a site.

    Privacy:
      None: see `simulate_campaign`.
    """
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

    def add(self, outcome: Attribution, conversion: Conversion, value: int) -> None:
        """Adds one conversion; `value` is what it is worth, also above max_value."""
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
