"""Sketches of sets of users that parties merge, and what may be released of them."""

from tulle.lab.sketches.consistent_reach import (
    adds_up,
    covered_by,
    in_order,
    make_consistent,
    part_of,
    within_impressions,
)
from tulle.lab.sketches.counted_legions import (
    CountedLegions,
    SketchFrequencyConfig,
    merge_counted,
    release_sketch_frequencies,
)
from tulle.lab.sketches.liquid_legions import (
    LiquidLegions,
    LiquidLegionsConfig,
    SketchReachConfig,
    merge_sketches,
    release_sketch_reach,
)
from tulle.lab.sketches.plain_sketches import PlainSketch, PlainSketchKind, merge_plain
from tulle.lab.sketches.private_union import (
    PrivateUnionConfig,
    add_halves,
    encode_party,
    reach_of_union,
)

__all__ = [
    "CountedLegions",
    "LiquidLegions",
    "LiquidLegionsConfig",
    "PlainSketch",
    "PlainSketchKind",
    "PrivateUnionConfig",
    "SketchFrequencyConfig",
    "SketchReachConfig",
    "add_halves",
    "adds_up",
    "covered_by",
    "encode_party",
    "in_order",
    "make_consistent",
    "merge_counted",
    "merge_plain",
    "merge_sketches",
    "part_of",
    "reach_of_union",
    "release_sketch_frequencies",
    "release_sketch_reach",
    "within_impressions",
]
