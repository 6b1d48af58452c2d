"""Errors of a simulated campaign: what budgets take away, what noise adds, bucket by bucket."""

import dataclasses
from typing import Any

from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.w3c.aggregation import AggregationConfig
from tulle.measure.w3c.budgets import Refusal
from tulle.mechanisms.discrete_laplace import release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import FloatArray, IntArray


@dataclasses.dataclass(slots=True)
class ReportCounts:
    """How the reports of a campaign came about. Sensitive."""

    num_conversions: int
    num_attributable: int
    """With a matching impression."""
    num_short: int
    """Credited without the impressions of an epoch that had no budget left."""
    num_empty: int
    """Not credited at all, because no epoch had budget left."""
    attributable_value: int
    limited_value: int
    """Of it, what is not above max_value."""
    reported_value: int
    refusals: dict[Refusal, int]
    """Epochs that could not be used, by the budget that was too small."""

    @classmethod
    def none(cls) -> "ReportCounts":
        """Before any report."""
        return cls(0, 0, 0, 0, 0, 0, 0, dict.fromkeys(Refusal, 0))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CampaignResult:
    """Truth and reports, before noise. Sensitive: nothing here is protected."""

    sites: tuple[str, ...]
    epsilon: float
    """Of each conversion."""
    site_budget: float
    """Of a conversion site for each epoch, as epsilon."""
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
