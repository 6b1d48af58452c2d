"""The W3C's Attribution API: a browser, its budgets, and campaigns."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.measure.w3c.attribution_state import BudgetRefusal, FixedDraws, RandomDraws
    from tulle.measure.w3c.browser import Browser
    from tulle.measure.w3c.campaign import (
        AggregationConfig,
        CampaignResult,
        CampaignSettings,
        aggregate_reports,
        simulate_campaign,
        what_if,
    )
    from tulle.measure.w3c.conformance import CaseResult, run_w3c_cases
    from tulle.measure.w3c.options import (
        ConversionOptions,
        ImpressionOptions,
        PublicSuffixes,
        RejectedCallError,
        W3cLimits,
    )
    from tulle.measure.w3c.verbs import BrowserSimulation, number_buckets, simulate_w3c

__all__ = [
    "AggregationConfig",
    "Browser",
    "BrowserSimulation",
    "BudgetRefusal",
    "CampaignResult",
    "CampaignSettings",
    "CaseResult",
    "ConversionOptions",
    "FixedDraws",
    "ImpressionOptions",
    "PublicSuffixes",
    "RandomDraws",
    "RejectedCallError",
    "W3cLimits",
    "aggregate_reports",
    "number_buckets",
    "run_w3c_cases",
    "simulate_campaign",
    "simulate_w3c",
    "what_if",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
