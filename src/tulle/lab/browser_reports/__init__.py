"""What browsers told by the Attribution Reporting API, which Chrome retired, as what-if tools."""

from tulle.lab.browser_reports.attributed_log import (
    AttributedLog,
    LastTouchSettings,
    attribute_last_touch,
)
from tulle.lab.browser_reports.event_reports import EventOutcome, expected_events, simulate_events
from tulle.lab.browser_reports.event_settings import (
    EventSettings,
    SourceReports,
    debias_state_counts,
)
from tulle.lab.browser_reports.report_labels import BinReports, debias_counts, label_sources
from tulle.lab.browser_reports.report_states import ReportSpec
from tulle.lab.browser_reports.source_noise import (
    SourceKind,
    SourceNoise,
    check_gain,
    noise_sources,
)
from tulle.lab.browser_reports.summary_reports import (
    SummaryOutcome,
    expected_summary,
    simulate_summary,
)
from tulle.lab.browser_reports.summary_settings import (
    Goal,
    KeyLayout,
    SummarySettings,
    contributions_of,
)
from tulle.lab.browser_reports.verbs import simulate_event_reports, simulate_summary_reports

__all__ = [
    "AttributedLog",
    "BinReports",
    "EventOutcome",
    "EventSettings",
    "Goal",
    "KeyLayout",
    "LastTouchSettings",
    "ReportSpec",
    "SourceKind",
    "SourceNoise",
    "SourceReports",
    "SummaryOutcome",
    "SummarySettings",
    "attribute_last_touch",
    "check_gain",
    "contributions_of",
    "debias_counts",
    "debias_state_counts",
    "expected_events",
    "expected_summary",
    "label_sources",
    "noise_sources",
    "simulate_event_reports",
    "simulate_events",
    "simulate_summary",
    "simulate_summary_reports",
]
