"""Hierarchies of slices: noise by level, and estimates that add up."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.measure.trees.consistency import (
        RunningTotal,
        TreeEstimate,
        combination_variance,
        consistent_estimate,
        consistent_variances,
        running_total,
        running_totals,
    )
    from tulle.measure.trees.level_budgets import (
        GaussianLevels,
        LaplaceLevels,
        TreeErrors,
        closed_form_split,
        expected_rmsre,
        leaf_only_split,
        level_variances,
        optimised_split,
        rescaled_steps,
        uniform_split,
    )
    from tulle.measure.trees.nonnegative import NonnegativeEstimate, nonnegative_estimate
    from tulle.measure.trees.slice_tree import SliceTree, day_tree

__all__ = [
    "GaussianLevels",
    "LaplaceLevels",
    "NonnegativeEstimate",
    "RunningTotal",
    "SliceTree",
    "TreeErrors",
    "TreeEstimate",
    "closed_form_split",
    "combination_variance",
    "consistent_estimate",
    "consistent_variances",
    "day_tree",
    "expected_rmsre",
    "leaf_only_split",
    "level_variances",
    "nonnegative_estimate",
    "optimised_split",
    "rescaled_steps",
    "running_total",
    "running_totals",
    "uniform_split",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
