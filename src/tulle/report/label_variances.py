"""The variance that each mechanism for labels leaves, beside that of a released one.

Everything comes from the record beside the table, which is public. The table is not read.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tulle.errors import ConfigError
from tulle.labels.label_mechanism import DescribedMechanism, Description, LabelKind
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart, Table
from tulle.report.html.page import Block, Figure, Paragraph, Section

if TYPE_CHECKING:
    from tulle.labels.label_grid import FloatArray, LabelGrid
    from tulle.labels.label_mechanism import NumberMechanism
    from tulle.labels.mechanisms.unit_response import UnitResponse
    from tulle.labels.numeric_planner import NumericOption, NumericPlan

_MOST_VALUES = 401
"""Most values of a grid that mechanisms are compared on; finer grids are thinned to that many."""
_EPSILONS = tuple(0.25 * number for number in range(2, 33))
"""Epsilons from 0.5 to 8, in steps that draw smooth curves."""
_LEAST_BIAS = 1e-6
"""Bias in ranges of the label; what is below comes from rounding."""
_SAME = 1e-3
"""Relative difference below which a stated variance is that of the planner."""
_TITLE = "Variance by mechanism"
_VALUE = "variance of the noise in a target"
_PLAIN_CLASSES = "class-rr"
_TRUTH = "prior-rr says more where its prior is sure; its reports lean towards the prior."


def variance_section(described: Description) -> Section:
    """What each mechanism for such labels leaves, at the epsilon of the release.

    Args:
      described: The released mechanism in plain data, from the record.
    """
    from tulle.labels.mechanisms.catalogue import mechanism_class

    known = mechanism_class(described)
    blocks: Sequence[Block] = ()
    if known is not None:
        blocks = _BLOCKS[known.label_kind](known, described)
    return Section(_TITLE, tuple(blocks) or (Paragraph("The record states no variance."),))


def _of_numbers(known: type[DescribedMechanism], described: Description) -> list[Block]:
    numeric = cast("type[NumberMechanism]", known)
    grid = numeric.grid_of(described)
    shown, prior, about = _weights(described, grid)
    plan = _numeric_plan(shown, float(described["epsilon"]), prior)
    if plan is None:
        return []
    stated = known.channel_facts(described).variance
    return _numeric_blocks(described, plan, grid.high - grid.low, about, stated)


def _weights(
    described: Description, grid: "LabelGrid"
) -> "tuple[LabelGrid, FloatArray | None, str]":
    """The values to compare on, how likely they are, and both in words."""
    import numpy as np

    from tulle.labels.label_grid import LabelGrid
    from tulle.labels.mechanisms.label_prior import LabelPriorConfig, PrivatePrior

    about = ""
    if grid.num_values > _MOST_VALUES:
        step = (grid.high - grid.low) / (_MOST_VALUES - 1)
        about = f" Compared on {_MOST_VALUES} of {grid.num_values:,} values."
        grid = LabelGrid(low=grid.low, high=grid.high, step=step)
    learnt = described.get("prior_release")
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


def _numeric_blocks(
    described: Description, plan: "NumericPlan", width: float, about: str, stated: float | None
) -> list[Block]:
    """Bars of all mechanisms for numbers, and the same as a table.

    Args:
      described: The released mechanism.
      plan: What the planner says of all of them.
      width: The range of the label.
      about: What the comparison is averaged over.
      stated: Variance that the record states; None for labels that were cut.
    """
    name = str(described["mechanism"])
    bars = [
        Bar(
            label=_option_label(option, name, width),
            value=option.variance,
            is_muted=option.name != name,
        )
        for option in plan.options
    ]
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


def _of_bits(known: type[DescribedMechanism], described: Description) -> tuple[Block, ...]:
    """Randomized response beside the mechanisms for numbers on a range of 0 and 1."""
    from tulle.labels.label_grid import LabelGrid

    epsilon, stated = float(described["epsilon"]), known.channel_facts(described).variance
    plan = _numeric_plan(LabelGrid(low=0.0, high=1.0), epsilon, None)
    about = "Labels 0 and 1, the same for both where there is no bias."
    blocks = [] if plan is None else _numeric_blocks(described, plan, 1.0, about, stated)
    return (*blocks[:1], Figure(_over_epsilon(epsilon)), *blocks[1:])


def _over_epsilon(epsilon: float) -> CurveChart:
    """Curves for bits: the best channel, the best added noise, and plain Laplace noise."""
    from tulle.labels.label_grid import LabelGrid
    from tulle.labels.mechanisms.added_noise import LaplaceLabels
    from tulle.labels.mechanisms.class_response import BinaryResponse
    from tulle.labels.mechanisms.stepped_noise import StaircaseLabels

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


def _of_classes(known: type[DescribedMechanism], described: Description) -> tuple[Block, ...]:
    """The mark of one class, and how often a report is the truth."""
    epsilon, num_classes = float(described["epsilon"]), int(described["num_classes"])
    name = str(described["mechanism"])
    curves = [
        Curve(
            label=_PLAIN_CLASSES,
            xs=_EPSILONS,
            ys=tuple(_mark_variance(x, num_classes) for x in _EPSILONS),
        )
    ]
    about = (
        "Variance of the mark of one class. Reports of this release lean towards the prior, which "
        "cannot be undone: its marks are biased and have no such variance."
    )
    if name == _PLAIN_CLASSES or described.get("is_invertible"):
        curves.append(_own_point(epsilon, _mark_variance(epsilon, num_classes)))
        about = "Variance of the mark of one class, for a row of another class."
    chart = CurveChart(
        name="Variance over epsilon",
        x_axis=Axis(name="epsilon"),
        y_axis=Axis(name=_VALUE, is_log=True),
        curves=tuple(curves),
    )
    truth = known.channel_facts(described).true_report_prob
    return (Figure(_truths(name, epsilon, num_classes, truth), _TRUTH), Figure(chart, about))


def _truths(name: str, epsilon: float, num_classes: int, own: float | None) -> BarChart:
    """How often a report is the truth, beside plain randomized response and a guess.

    Args:
      name: The word for the released mechanism.
      epsilon: What it costs.
      num_classes: Number of classes.
      own: Probability of a true report of the released mechanism.
    """
    from tulle.labels.mechanisms.class_response import ClassResponse

    plain = ClassResponse(epsilon=epsilon, num_classes=num_classes).response.support_probs
    bars = [Bar(label=_PLAIN_CLASSES, value=float(plain.if_held), is_muted=name != _PLAIN_CLASSES)]
    if name != _PLAIN_CLASSES:
        bars.append(Bar(label=f"{name}, if labels follow the prior", value=own))
    bars.append(Bar(label="a guess among all classes", value=1 / num_classes, is_muted=True))
    return BarChart(
        name="Reports that are the truth",
        value_name="probability that a noisy label is the label",
        bars=tuple(bars),
        is_percent=True,
    )


def _mark_variance(epsilon: float, num_classes: int) -> float:
    from tulle.labels.mechanisms.class_response import ClassResponse
    from tulle.mechanisms.noisy_reports import variance_per_report

    return variance_per_report(ClassResponse(epsilon=epsilon, num_classes=num_classes).response)


def _of_units(known: type[DescribedMechanism], described: Description) -> tuple[Block, ...]:
    """Every way to share the epsilon of a unit, by the rows it has."""
    own = cast("type[UnitResponse]", known).from_description(described)
    base_rate, sizes = own.guessed_rate, own.sizes_shown()
    ways: list[tuple[str, UnitResponse]] = [
        (f"this release ({described['mechanism']})", own),
        *((_way_name(way), way) for way in own.other_ways()),
    ]
    chart = CurveChart(
        name=f"{_TITLE}, by the rows of the unit",
        x_axis=Axis(name="rows of the unit"),
        y_axis=Axis(name=_VALUE, is_log=True),
        curves=tuple(_unit_curve(label, way, sizes, base_rate) for label, way in ways),
    )
    return (Figure(chart, f"Where a share of {base_rate:g} of labels is 1."),)


def _way_name(way: "UnitResponse") -> str:
    share = way.describe().get("row_share")
    return f"{way.name}, equal shares" if share == "equal" else way.name


def _unit_curve(label: str, way: "UnitResponse", sizes: Sequence[int], base_rate: float) -> Curve:
    ys = tuple(float(way.row_channel(size).mean_variance(base_rate)) for size in sizes)
    return Curve(label=label, xs=tuple(map(float, sizes)), ys=ys)


_BLOCKS = {
    LabelKind.BITS: _of_bits,
    LabelKind.CLASSES: _of_classes,
    LabelKind.NUMBERS: _of_numbers,
    LabelKind.UNITS: _of_units,
}
"""What a page compares, by what the labels are."""
