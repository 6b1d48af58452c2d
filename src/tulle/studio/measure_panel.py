"""Errors of a hierarchy by level, before and after its numbers are made to add up.

The tree is a total, campaigns, and regions in each campaign, all regions alike. `tulle measure
plan` says the same of a log, with the settings and the expected counts that come with the answer.
"""

import dataclasses
import math

import numpy as np

from tulle.measure.expected_error import root_mean_square
from tulle.measure.trees.consistency import consistent_variances
from tulle.measure.trees.level_budgets import (
    LaplaceLevels,
    TreeErrors,
    level_variances,
    optimised_split,
)
from tulle.measure.trees.slice_tree import NO_PARENT, FloatArray, SliceTree
from tulle.privacy.fields import null_if_infinite
from tulle.studio.panel import Given, NumberField, Panel, command_line, count_field, number_text

_LEVELS = ("total", "campaign", "campaign+geo")
_WEIGHTS = ("total_weight", "campaign_weight", "geo_weight")
_SETTINGS_FILE, _PAST_FILE = "campaigns.toml", "expected.csv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevelOutlook:
    """One level of the tree."""

    name: str
    num_slices: int
    expected_count: float
    """Expected count of one slice."""
    share: float
    """Share of the budget."""
    measured_stddev: float | None
    """Noise of a number as measured; None if the level gets nothing."""
    stddev: float
    """Noise after all numbers add up."""
    measured_error: float | None
    """Relative, as measured."""
    error: float
    """Relative, after all numbers add up."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureAnswer:
    """All levels, and the shares that would serve them best."""

    levels: tuple[LevelOutlook, ...]
    error: float
    """Root mean square over the levels."""
    best_shares: tuple[float, ...]
    best_error: float
    commands: tuple[str, ...]
    files: dict[str, str]
    """What the commands read, by name."""


def answer_measurement(given: Given) -> MeasureAnswer:
    """The error to expect at each level. Reads no log."""
    tree = _tree(given["num_campaigns"], given["num_geos"])
    budget = LaplaceLevels(epsilon=given["epsilon"], max_steps_per_unit=given["max_per_user"])
    history = np.full(len(tree.leaf_nodes), float(given["expected_count"]))
    errors = TreeErrors.from_history(tree, history, tau=given["tau"])
    shares = _shares(given)
    best = optimised_split(errors, budget)
    after = errors.level_rmsre(budget, shares)
    return MeasureAnswer(
        levels=_levels(tree, history, shares, budget, errors),
        error=root_mean_square(after),
        best_shares=tuple(float(share) for share in best),
        best_error=root_mean_square(errors.level_rmsre(budget, best)),
        commands=(_command(given),),
        files={_SETTINGS_FILE: _settings_text(given, shares), _PAST_FILE: _past_text(given)},
    )


def _tree(num_campaigns: int, num_geos: int) -> SliceTree:
    num_leaves = num_campaigns * num_geos
    campaigns = 1 + np.arange(num_campaigns)
    return SliceTree(
        parents=np.concatenate(
            [[NO_PARENT], np.zeros(num_campaigns, np.int64), np.repeat(campaigns, num_geos)]
        ).astype(np.int64),
        levels=np.repeat(np.arange(3), [1, num_campaigns, num_leaves]),
        leaf_nodes=1 + num_campaigns + np.arange(num_leaves),
    )


def _shares(given: Given) -> FloatArray:
    weights = np.array([given[name] for name in _WEIGHTS], np.float64)
    shares: FloatArray = weights / weights.sum()
    return shares


def _levels(
    tree: SliceTree,
    history: FloatArray,
    shares: FloatArray,
    budget: LaplaceLevels,
    errors: TreeErrors,
) -> tuple[LevelOutlook, ...]:
    measured = level_variances(budget, shares)
    final = consistent_variances(tree, measured[tree.levels])
    totals = tree.node_totals(history)
    before = errors.level_rmsre(budget, shares, after_consistency=False)
    after = errors.level_rmsre(budget, shares)
    return tuple(
        LevelOutlook(
            name=name,
            num_slices=nodes.stop - nodes.start,
            expected_count=float(totals[nodes.start]),
            share=float(shares[level]),
            measured_stddev=null_if_infinite(math.sqrt(measured[level])),
            stddev=math.sqrt(final[nodes.start]),
            measured_error=null_if_infinite(float(before[level])),
            error=float(after[level]),
        )
        for level, (name, nodes) in enumerate(zip(_LEVELS, tree.level_slices, strict=True))
    )


def _command(given: Given) -> str:
    words = ("measure", "plan", _SETTINGS_FILE)
    return command_line(words, {"--past": _PAST_FILE, "--tau": given["tau"]})


def _keys(kind: str, number: int) -> list[str]:
    return [f"{kind}-{place}" for place in range(1, number + 1)]


def _past_text(given: Given) -> str:
    count = number_text(float(given["expected_count"]))
    lines = [
        f"{campaign},{geo},{count}"
        for campaign in _keys("campaign", given["num_campaigns"])
        for geo in _keys("region", given["num_geos"])
    ]
    return "\n".join(["campaign,geo,count", *lines, ""])


def _settings_text(given: Given, shares: FloatArray) -> str:
    def names(kind: str, number: int) -> str:
        return ", ".join(f'"{key}"' for key in _keys(kind, number))

    split = ", ".join(number_text(float(share)) for share in shares)
    return f"""\
[log]
impressions = "log/impressions.csv"
conversions = "log/conversions.csv"

[attribution]
rule = "last-touch"
lookback = "7 days"

[privacy]
unit = "user"
epsilon = {number_text(float(given["epsilon"]))}

[[query]]
name = "campaigns"
measure = "conversions"
slices = ["campaign", "geo"]
levels = [[], ["campaign"], ["campaign", "geo"]]
split = [{split}]
max_per_slice = {given["max_per_user"]}
max_slices_per_unit = 1
[query.keys]
campaign = [{names("campaign", given["num_campaigns"])}]
geo = [{names("region", given["num_geos"])}]
"""


def _weight_field(name: str, label: str, default: float, least: float) -> NumberField:
    return NumberField(name=name, label=label, default=default, least=least, most=100.0, step=1)


MEASURE = Panel(
    name="measure",
    title="Measure",
    purpose="How far off the numbers of a report by campaign and region will be.",
    fields=(
        NumberField(name="epsilon", label="epsilon", default=1.0, least=0.05, most=20.0),
        count_field("num_campaigns", "campaigns", default=10, most=100),
        count_field("num_geos", "regions of a campaign", default=20, most=100),
        NumberField(
            name="expected_count",
            label="conversions in a region",
            default=50.0,
            least=0.1,
            most=100_000.0,
        ),
        count_field("max_per_user", "conversions of one user, at most", default=1, most=50),
        NumberField(
            name="tau", label="smallest count that matters", default=5.0, least=1.0, most=1_000.0
        ),
        _weight_field(_WEIGHTS[0], "weight of the total", 20.0, 0.0),
        _weight_field(_WEIGHTS[1], "weight of campaigns", 30.0, 0.0),
        _weight_field(_WEIGHTS[2], "weight of regions", 50.0, 1.0),
    ),
    answer=answer_measurement,
)
