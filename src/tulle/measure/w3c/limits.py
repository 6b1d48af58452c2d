"""What a browser fixes for everybody: budgets of each epoch and limits on calls.

The specification leaves most of these to browsers. Sizes default to its minima where it has
some. No browser has chosen budgets: those here are one epsilon for a site, and the multiples of
it that the conformance cases use.
"""

import dataclasses
from collections.abc import Mapping

from tulle.errors import ConfigError
from tulle.measure.w3c.json_names import fields_from_json
from tulle.privacy.fields import check_count

MICROEPSILONS = 1_000_000
"""In one epsilon."""
MAX_EPSILON = 4294
"""Budgets are 32-bit numbers of microepsilons."""
DAY_SECONDS = 86_400

_PROTOCOLS = ("dap-18-histogram",)
_BUDGETS = (
    "per_site_privacy_budget",
    "global_privacy_budget_per_epoch",
    "impression_site_quota_per_epoch",
)
_MAY_BE_ZERO = (
    "max_conversion_sites_per_impression",
    "max_conversion_callers_per_impression",
    "max_impression_sites_for_conversion",
    "max_impression_callers_for_conversion",
    "max_match_values",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class W3cLimits:
    """Limits of one browser. Budgets are in microepsilons, for each epoch. Public."""

    per_site_privacy_budget: int = MICROEPSILONS
    """What reports to one conversion site may spend on the impressions of one epoch.

    It does not bound what the site learns if sites react to each other's reports.
    """
    global_privacy_budget_per_epoch: int = 8 * MICROEPSILONS
    """What all conversion sites together may learn about the impressions of one epoch."""
    impression_site_quota_per_epoch: int = 4 * MICROEPSILONS
    """How much of the global budget the impressions of one site may use up."""
    privacy_budget_epoch_days: int = 7
    max_lookback_days: int = 30
    """Longest lifetime of an impression, and longest lookback of a conversion."""
    max_histogram_size: int = 1024
    max_credit_size: int = 10
    max_match_values: int = 30
    max_conversion_sites_per_impression: int = 5
    max_conversion_callers_per_impression: int = 10
    max_impression_sites_for_conversion: int = 30
    max_impression_callers_for_conversion: int = 10
    aggregation_services: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"https://aggregation.example": _PROTOCOLS[0]}
    )
    """Address of each service that reports can be made for, and its protocol."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "aggregation_services":
                least = 0 if field.name in _MAY_BE_ZERO else 1
                check_count(field.name, getattr(self, field.name), least=least)
        for name in _BUDGETS:
            if getattr(self, name) > MAX_EPSILON * MICROEPSILONS:
                raise ConfigError(
                    f"{name}={getattr(self, name)} must be <= {MAX_EPSILON * MICROEPSILONS} "
                    "microepsilons; one epsilon is 1000000 of them."
                )
        if not isinstance(self.aggregation_services, Mapping):
            raise ConfigError("aggregation_services must map addresses to protocols.")
        for address, protocol in self.aggregation_services.items():
            if protocol not in _PROTOCOLS:
                raise ConfigError(
                    f"aggregation_services[{address!r}]={protocol!r} is unknown; "
                    f"use one of {', '.join(_PROTOCOLS)}."
                )

    @classmethod
    def from_json(cls, data: object) -> "W3cLimits":
        """Reads limits in the spelling of the specification; refuses unknown keys."""
        return fields_from_json(cls, "limits", data)
