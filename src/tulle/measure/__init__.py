"""Campaign numbers with noise: attribution, slices, hierarchies, reach, for one budget."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.measure import attribution, clipping, reach, trees, w3c
    from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, FrameTable, LogColumns, Side
    from tulle.measure.attribution.rules import (
        Attribution,
        ChannelWeights,
        FirstTouch,
        LastN,
        LastTouch,
        Linear,
        PositionBased,
        PriorityTouch,
        TimeDecay,
    )
    from tulle.measure.clipping import ClipPlan
    from tulle.measure.config_file import read_config
    from tulle.measure.count_verbs import count, count_reach
    from tulle.measure.engines.credit_tables import ExactCredit
    from tulle.measure.engines.engine import open_engine
    from tulle.measure.queries.measure_plan import MeasurePlan
    from tulle.measure.queries.measure_record import MeasureRecord, read_measurement
    from tulle.measure.queries.query import Levels, LevelSplit, MeasureConfig, Quantity, Query
    from tulle.measure.queries.what_if import ExpectedErrors
    from tulle.measure.reach import FrequencyConfig, release_frequencies
    from tulle.measure.slice_jobs import Amount, Bounds, Frequencies, SliceColumn, SliceJob, Subject
    from tulle.measure.verbs import (
        attribute,
        choose_clips,
        emit_sql,
        expected_errors,
        plan,
        release,
    )
    from tulle.measure.w3c.conformance import run_w3c_cases
    from tulle.measure.w3c.verbs import BrowserSimulation, simulate_w3c

__all__ = [
    "AdLog",
    "Amount",
    "Attribution",
    "Bounds",
    "BrowserSimulation",
    "ChannelWeights",
    "ClipPlan",
    "DatabaseTable",
    "ExactCredit",
    "ExpectedErrors",
    "FileTable",
    "FirstTouch",
    "FrameTable",
    "Frequencies",
    "FrequencyConfig",
    "LastN",
    "LastTouch",
    "LevelSplit",
    "Levels",
    "Linear",
    "LogColumns",
    "MeasureConfig",
    "MeasurePlan",
    "MeasureRecord",
    "PositionBased",
    "PriorityTouch",
    "Quantity",
    "Query",
    "Side",
    "SliceColumn",
    "SliceJob",
    "Subject",
    "TimeDecay",
    "attribute",
    "attribution",
    "choose_clips",
    "clipping",
    "count",
    "count_reach",
    "emit_sql",
    "expected_errors",
    "open_engine",
    "plan",
    "reach",
    "read_config",
    "read_measurement",
    "release",
    "release_frequencies",
    "run_w3c_cases",
    "simulate_w3c",
    "trees",
    "w3c",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
