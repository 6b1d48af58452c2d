"""Clips of values, and what share of a contribution each value gets."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.measure.clipping.clip_plan import (
        ClipErrors,
        ClipPlan,
        expected_errors,
        optimise_clips,
        quantile_clips,
    )
    from tulle.measure.clipping.value_history import (
        ValueHistory,
        read_value_history,
    )

__all__ = [
    "ClipErrors",
    "ClipPlan",
    "ValueHistory",
    "expected_errors",
    "optimise_clips",
    "quantile_clips",
    "read_value_history",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
