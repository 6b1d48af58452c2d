"""How much noise is left in a target, by every mechanism that could have been used instead.

The numbers come from the planners of `tulle labels plan`: exact, and from settings alone.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tulle.errors import ConfigError
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart
from tulle.report.html.page import Block, Figure, Paragraph, Section
from tulle.report.html.tables import Table
from tulle.report.label_channels import (
    Facts,
    is_binary,
    is_of_units,
    label_grid,
    unit_mechanism,
    unit_sizes,
)

if TYPE_CHECKING:
    from tulle.labels.label_grid import FloatArray, LabelGrid
    from tulle.labels.numeric_planner import NumericOption, NumericPlan
    from tulle.labels.units.unit_response import UnitMechanism

_MOST_VALUES = 401
"""Of a grid that mechanisms are compared on; finer ones are compared on so many."""
_EPSILONS = tuple(0.25 * number for number in range(2, 33))
_LEAST_BIAS = 1e-6
"""In ranges of the label; what is below comes from rounding."""
_SAME = 1e-3
_TITLE = "Variance by mechanism"
_VALUE = "variance of the noise in a target"
_TRUTH = "prior-rr says more where its prior is sure; its reports lean towards the prior."


def variance_section(mechanism: Facts) -> Section:
    """What each mechanism for such labels leaves, at the epsilon of the release.

    Args:
      mechanism: What the released one says of itself.
    """
    if is_of_units(mechanism):
        return Section(_TITLE, (_by_unit_rows(mechanism),))
    if is_binary(mechanism):
        return Section(_TITLE, _of_bits(mechanism))
    if "num_classes" in mechanism:
        return Section(_TITLE, _of_classes(mechanism))
    grid = label_grid(mechanism)
    blocks = [] if grid is None else _of_numbers(mechanism, grid)
    return Section(_TITLE, tuple(blocks) or (Paragraph("The record states no variance."),))


def stated_variance(mechanism: Facts) -> float | None:
    """What the record of a release says about its own noise; None for labels that were cut."""
    if mechanism.get("clip"):
        return None
    for name in ("noise_variance", "expected_variance"):
        if isinstance(mechanism.get(name), float):
            return float(mechanism[name])
    scale = mechanism.get("noise_scale")
    return 2 * scale**2 if isinstance(scale, float) else None


def _of_numbers(mechanism: Facts, grid: "LabelGrid") -> list[Block]:
    shown, prior, about = _weights(mechanism, grid)
    plan = _numeric_plan(shown, float(mechanism["epsilon"]), prior)
    return [] if plan is None else _numeric_blocks(mechanism, plan, grid.high - grid.low, about)


def _weights(mechanism: Facts, grid: "LabelGrid") -> "tuple[LabelGrid, FloatArray | None, str]":
    """The values to compare on, how likely they are, and both in words."""
    import numpy as np

    from tulle.labels.label_grid import LabelGrid
    from tulle.labels.label_prior import LabelPriorConfig, PrivatePrior

    about = ""
    if grid.num_values > _MOST_VALUES:
        step = (grid.high - grid.low) / (_MOST_VALUES - 1)
        about = f" Compared on {_MOST_VALUES} of {grid.num_values:,} values."
        grid = LabelGrid(low=grid.low, high=grid.high, step=step)
    learnt = mechanism.get("prior_release")
    if learnt is None:
        return grid, None, f"Averaged over the range, all labels alike.{about}"
    counts = np.array(learnt["noisy_counts"], np.int64)
    config = LabelPriorConfig(epsilon=learnt["epsilon"], labels=grid, num_cells=counts.size)
    prior = PrivatePrior(config=config, noisy_counts=counts).weights
    return grid, prior, f"Averaged over the prior that was learnt.{about}"


def _numeric_plan(
    grid: "LabelGrid", epsilon: float, prior: "FloatArray | None"
) -> "NumericPlan | None":
    from tulle.labels.numeric_planner import plan_numeric

    try:
        return plan_numeric(grid, epsilon=epsilon, prior=prior)
    except ConfigError:
        return None


def _numeric_blocks(mechanism: Facts, plan: "NumericPlan", width: float, about: str) -> list[Block]:
    name = str(mechanism["mechanism"])
    bars = [
        Bar(
            label=_option_label(option, name, width),
            value=option.variance,
            is_muted=option.name != name,
        )
        for option in plan.options
    ]
    stated = stated_variance(mechanism)
    planned = next((option.variance for option in plan.options if option.name == name), None)
    if stated is not None and (planned is None or abs(stated - planned) > _SAME * stated):
        prior = "" if planned is None else ", for its own prior"
        bars.insert(0, Bar(label=f"this release ({name}){prior}", value=stated))
    chart = BarChart(name=_TITLE, value_name=_VALUE, bars=tuple(bars))
    bias = "Bias does not average out in training, so biased ones come last, whatever their noise."
    head = ("mechanism", "variance", "bias", "mean squared error")
    rows = tuple(
        (
            option.name,
            option.variance,
            math.sqrt(option.squared_bias) if _is_biased(option, width) else 0.0,
            option.mean_squared_error,
        )
        for option in plan.options
    )
    return [Figure(chart, f"{about} {bias}"), Table(head=head, rows=rows)]


def _option_label(option: "NumericOption", own: str, width: float) -> str:
    label = f"this release ({option.name})" if option.name == own else option.name
    return f"{label}, biased" if _is_biased(option, width) else label


def _is_biased(option: "NumericOption", width: float) -> bool:
    return option.is_clipped or option.squared_bias > (_LEAST_BIAS * width) ** 2


def _of_bits(mechanism: Facts) -> tuple[Block, ...]:
    """Randomized response beside the mechanisms for numbers on a range of 0 and 1."""
    from tulle.labels.label_grid import LabelGrid

    epsilon = float(mechanism["epsilon"])
    plan = _numeric_plan(LabelGrid(low=0.0, high=1.0), epsilon, None)
    about = "Labels 0 and 1, the same for both where there is no bias."
    blocks = [] if plan is None else _numeric_blocks(mechanism, plan, 1.0, about)
    return (*blocks[:1], Figure(_over_epsilon(epsilon)), *blocks[1:])


def _over_epsilon(epsilon: float) -> CurveChart:
    """Of bits: the best channel, the best added noise, and plain Laplace noise."""
    from tulle.labels.additive_noise import LaplaceLabels
    from tulle.labels.binary_response import BinaryResponse
    from tulle.labels.label_grid import LabelGrid
    from tulle.labels.staircase import StaircaseLabels

    grid = LabelGrid(low=0.0, high=1.0)
    response = [BinaryResponse(epsilon=x).variance(0) for x in _EPSILONS]
    stairs = [StaircaseLabels(epsilon=x, grid=grid).variance(0.0) for x in _EPSILONS]
    laplace = [LaplaceLabels(epsilon=x, grid=grid).variance(0.0) for x in _EPSILONS]
    return CurveChart(
        name="Variance over epsilon",
        x_axis=Axis(name="epsilon"),
        y_axis=Axis(name=_VALUE, is_log=True),
        curves=(
            Curve(label="randomized response", xs=_EPSILONS, ys=tuple(response)),
            Curve(label="staircase noise", xs=_EPSILONS, ys=tuple(stairs)),
            Curve(label="Laplace noise", xs=_EPSILONS, ys=tuple(laplace)),
            _own_point(epsilon, BinaryResponse(epsilon=epsilon).variance(0)),
        ),
    )


def _own_point(epsilon: float, variance: float) -> Curve:
    return Curve(label="this release", xs=(epsilon,), ys=(variance,))


def _of_classes(mechanism: Facts) -> tuple[Block, ...]:
    """The mark of one class, and how often a report is the truth."""
    epsilon, num_classes = float(mechanism["epsilon"]), int(mechanism["num_classes"])
    curves = [
        Curve(
            label="class-rr",
            xs=_EPSILONS,
            ys=tuple(_mark_variance(x, num_classes) for x in _EPSILONS),
        )
    ]
    name = str(mechanism["mechanism"])
    if name == "class-rr" or mechanism.get("is_invertible"):
        curves.append(_own_point(epsilon, _mark_variance(epsilon, num_classes)))
        about = "Of the mark of one class, for a row of another class."
    else:
        about = (
            "Of the mark of one class. Reports of this release lean towards the prior, which "
            "cannot be undone: its marks are biased and have no such variance."
        )
    chart = CurveChart(
        name="Variance over epsilon",
        x_axis=Axis(name="epsilon"),
        y_axis=Axis(name=_VALUE, is_log=True),
        curves=tuple(curves),
    )
    return (Figure(_truths(mechanism, name), _TRUTH), Figure(chart, about))


def _truths(mechanism: Facts, name: str) -> BarChart:
    from tulle.labels.class_response import ClassResponse

    epsilon, num_classes = float(mechanism["epsilon"]), int(mechanism["num_classes"])
    plain = ClassResponse(epsilon=epsilon, num_classes=num_classes).describe()
    found = [("class-rr", float(plain["prob_of_the_truth"]))]
    if "true_report_prob" in mechanism:
        found.append(("prior-rr, if labels follow the prior", mechanism["true_report_prob"]))
    bars = [
        Bar(label=label, value=value, is_muted=not label.startswith(name))
        for label, value in [*found, ("a guess among all classes", 1 / num_classes)]
    ]
    return BarChart(
        name="Reports that are the truth",
        value_name="chance that a noisy label is the label",
        bars=tuple(bars),
        is_percent=True,
    )


def _mark_variance(epsilon: float, num_classes: int) -> float:
    from tulle.labels.class_response import ClassResponse
    from tulle.mechanisms.frequency import variance_per_report

    return variance_per_report(ClassResponse(epsilon=epsilon, num_classes=num_classes).response)


def _by_unit_rows(mechanism: Facts) -> Figure:
    """Every way to share the epsilon of a unit, by the rows it has."""
    base_rate = float(mechanism.get("assumed_base_rate", 0.05))
    sizes = unit_sizes(mechanism)
    curves = [
        _unit_curve(label, other, sizes, base_rate)
        for label, other in _unit_ways(mechanism, base_rate)
    ]
    chart = CurveChart(
        name=f"{_TITLE}, by the rows of the unit",
        x_axis=Axis(name="rows of the unit"),
        y_axis=Axis(name=_VALUE, is_log=True),
        curves=tuple(curves),
    )
    return Figure(chart, f"Where a share of {base_rate:g} of labels is 1.")


def _unit_ways(mechanism: Facts, base_rate: float) -> "list[tuple[str, UnitMechanism]]":
    """The released one first, then the others with its caps."""
    from tulle.labels.units.unit_response import JointResponse, PerRowResponse, RowShare

    epsilon, max_rows = float(mechanism["epsilon"]), mechanism["max_rows_per_unit"]
    cap = int(mechanism.get("max_conversions_per_unit", 1))
    others: list[UnitMechanism] = [
        PerRowResponse(epsilon=epsilon, max_rows_per_unit=max_rows),
        *(
            JointResponse(
                epsilon=epsilon,
                max_conversions_per_unit=cap,
                max_rows_per_unit=max_rows,
                subset=subset,
                assumed_base_rate=base_rate,
            )
            for subset in ((False, True) if cap == 1 else (False,))
        ),
    ]
    if max_rows is not None:
        share = RowShare.EQUAL
        others.append(PerRowResponse(epsilon=epsilon, max_rows_per_unit=max_rows, share=share))
    own = unit_mechanism(mechanism)
    ways = [(f"this release ({own.name})", own)]
    return [*ways, *((_way_name(way), way) for way in others if way.describe() != own.describe())]


def _way_name(way: "UnitMechanism") -> str:
    share = way.describe().get("row_share")
    return f"{way.name}, equal shares" if share == "equal" else way.name


def _unit_curve(label: str, way: "UnitMechanism", sizes: Sequence[int], base_rate: float) -> Curve:
    ys = tuple(float(way.row_channel(size).mean_variance(base_rate)) for size in sizes)
    return Curve(label=label, xs=tuple(map(float, sizes)), ys=ys)
