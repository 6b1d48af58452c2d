"""The page of a released table of labels: what noise did to a label, and what is left to learn.

Everything comes from the record beside the table, which is public. The table is not read.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tulle.report.card import Card
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart, MatrixChart
from tulle.report.html.page import Block, Figure, Page, Paragraph, Section
from tulle.report.html.tables import Table, short_number

if TYPE_CHECKING:
    from tulle.labels.release.release_record import ReleaseRecord
    from tulle.mechanisms.binary_channel import BinaryChannel

_MOST_VALUES = 60
_NUM_POINTS = 81
_NUM_UNIT_ROWS = 30
_BASE_RATE = 0.05
_LEAST_BIAS = 1e-6
"""In standard deviations; what is below comes from rounding."""
_SCALES_SHOWN = 4.0
"""How far to each side additive noise is drawn, in scales."""


def labels_page(record: "ReleaseRecord", card: Card) -> Page:
    """The page of a release.

    Args:
      record: That lies beside the table.
      card: Of the release.

    Privacy:
      The record is public; nothing else is read.
    """
    return card_page(
        card,
        title=f"Noisy labels: {record.table}",
        sections=(_channel(record), _variance(record), _columns(record)),
    )


def _channel(record: "ReleaseRecord") -> Section:
    mechanism = record.mechanism
    found = _channel_chart(mechanism) or _noise_chart(mechanism) or _unit_chart(mechanism)
    if found is None:
        text = "There is no picture of this mechanism; its settings are below."
        return Section("Channel", (Paragraph(text),))
    return Section("Channel", (Figure(found, "What comes out, for each label that goes in."),))


def _channel_chart(mechanism: Mapping[str, Any]) -> MatrixChart | None:
    """The channel of a row, where it is the same for all rows and the record states it."""
    if _is_binary(mechanism):
        ones = (mechanism["prob_if_negative"], mechanism["prob_if_positive"])
        return _matrix(("0", "1"), ("0", "1"), [(1 - chance, chance) for chance in ones])
    if {"channel", "atoms", "outputs"} <= mechanism.keys():
        return _thinned(mechanism)
    if {"prob_of_the_truth", "prob_of_each_other_class", "num_classes"} <= mechanism.keys():
        names = [str(number) for number in range(mechanism["num_classes"])]
        return _response_matrix(
            names, mechanism["prob_of_the_truth"], mechanism["prob_of_each_other_class"]
        )
    if {"bin_lows", "realised_epsilon"} <= mechanism.keys():
        names = [f"from {short_number(float(low))}" for low in mechanism["bin_lows"]]
        epsilon = float(mechanism["realised_epsilon"])
        other = 1 / (math.expm1(epsilon) + len(names))
        return _response_matrix(names, math.exp(epsilon) * other, other)
    return None


def _is_binary(mechanism: Mapping[str, Any]) -> bool:
    return {"prob_if_negative", "prob_if_positive"} <= mechanism.keys()


def _matrix(
    labels: Sequence[str], reports: Sequence[str], values: Sequence[Sequence[float]]
) -> MatrixChart:
    return MatrixChart(
        name="Channel",
        row_name="label",
        column_name="noisy label",
        row_labels=tuple(labels),
        column_labels=tuple(reports),
        values=tuple(tuple(map(float, row)) for row in values),
    )


def _thinned(mechanism: Mapping[str, Any]) -> MatrixChart:
    """The channel of listed values: some of many labels, and many outputs in groups."""
    labels, outputs = mechanism["atoms"], mechanism["outputs"]
    every, group = (-(-len(values) // _MOST_VALUES) for values in (labels, outputs))
    starts = range(0, len(outputs), group)
    return _matrix(
        [short_number(float(value)) for value in labels[::every]],
        [short_number(float(outputs[start])) for start in starts],
        [
            [math.fsum(row[start : start + group]) for start in starts]
            for row in mechanism["channel"][::every]
        ],
    )


def _response_matrix(names: Sequence[str], true_prob: float, other: float) -> MatrixChart | None:
    """Randomized response among some values; None if there are too many to see."""
    if len(names) > _MOST_VALUES:
        return None
    values = [[true_prob if row == column else other for column in names] for row in names]
    return _matrix(names, names, values)


def _noise_chart(mechanism: Mapping[str, Any]) -> CurveChart | None:
    """The law of Laplace noise."""
    scale = mechanism.get("noise_scale")
    if not isinstance(scale, float):
        return None
    xs = [
        scale * _SCALES_SHOWN * (2 * number / (_NUM_POINTS - 1) - 1)
        for number in range(_NUM_POINTS)
    ]
    ys = [math.exp(-abs(x) / scale) for x in xs]
    return CurveChart(
        name="Law of the noise",
        x_axis=Axis(name="noise that is added to a label"),
        y_axis=Axis(name="density, as a share of its largest", low=0.0),
        curves=(Curve(label="", xs=tuple(xs), ys=tuple(ys)),),
    )


def _unit_chart(mechanism: Mapping[str, Any]) -> CurveChart | None:
    """How often reports of 1 come, by the number of rows that a unit has."""
    if not _is_of_units(mechanism):
        return None
    sizes = _unit_sizes(mechanism)
    channels = [_unit_channel(mechanism, size) for size in sizes]
    xs = tuple(map(float, sizes))
    positives = tuple(float(channel.prob_if_positive) for channel in channels)
    negatives = tuple(float(channel.prob_if_negative) for channel in channels)
    return CurveChart(
        name="Channel of a row, by the rows of its unit",
        x_axis=Axis(name="rows of the unit"),
        y_axis=Axis(name="chance of a report of 1", is_percent=True),
        curves=(
            Curve(label="label 1", xs=xs, ys=positives),
            Curve(label="label 0", xs=xs, ys=negatives),
        ),
    )


def _is_of_units(mechanism: Mapping[str, Any]) -> bool:
    """Whether units own several rows, and the channel depends on how many."""
    return mechanism["mechanism"] == "joint-rr" or "row_share" in mechanism


def _unit_sizes(mechanism: Mapping[str, Any]) -> range:
    most = mechanism.get("max_rows_per_unit") or _NUM_UNIT_ROWS
    return range(1, min(int(most), _NUM_UNIT_ROWS) + 1)


def _unit_channel(mechanism: Mapping[str, Any], num_rows: int) -> "BinaryChannel":
    from tulle.labels.units.unit_variance import row_channel
    from tulle.mechanisms.binary_channel import BinaryChannel
    from tulle.mechanisms.joint_response import JointResponseConfig
    from tulle.mechanisms.randomized_response import RandomizedResponseConfig

    epsilon = float(mechanism["epsilon"])
    if "row_share" in mechanism:
        num_sharing = (
            num_rows if mechanism["row_share"] == "own" else mechanism["max_rows_per_unit"]
        )
        return BinaryChannel.of_response(RandomizedResponseConfig(epsilon=epsilon / num_sharing))
    return row_channel(
        JointResponseConfig(
            epsilon=epsilon,
            num_rows=num_rows,
            max_conversions=min(mechanism["max_conversions_per_unit"], num_rows),
        )
    )


def _variance(record: "ReleaseRecord") -> Section:
    """How far a target is from its label, beside plain Laplace noise of the same epsilon."""
    mechanism = record.mechanism
    if _is_of_units(mechanism):
        return Section("Variance", (_unit_variance(mechanism),))
    bars = [
        Bar(label=label, value=float(value))
        for label, value in (
            (f"this release ({mechanism['mechanism']})", _own_variance(mechanism)),
            ("Laplace noise of the same epsilon", _laplace_variance(mechanism)),
        )
        if value is not None
    ]
    if not bars:
        return Section("Variance", (Paragraph("The record states no variance."),))
    chart = BarChart(
        name="Variance of a target", value_name="variance of the noise", bars=tuple(bars)
    )
    bias = float(mechanism.get("largest_bias", 0.0))
    has_bias = bias > _LEAST_BIAS * math.sqrt(bars[0].value or 1.0)
    caption = f"Largest bias: {short_number(bias)}." if has_bias else ""
    blocks: list[Block] = [Figure(chart, caption)]
    if _is_binary(mechanism):
        blocks.append(Figure(_variance_over_epsilon(float(mechanism["epsilon"]))))
    return Section("Variance", tuple(blocks))


def _unit_variance(mechanism: Mapping[str, Any]) -> Figure:
    sizes = _unit_sizes(mechanism)
    base_rate = float(mechanism.get("assumed_base_rate", _BASE_RATE))
    values = [float(_unit_channel(mechanism, n).mean_variance(base_rate)) for n in sizes]
    chart = CurveChart(
        name="Variance of a target, by the rows of its unit",
        x_axis=Axis(name="rows of the unit"),
        y_axis=Axis(name="variance of the noise"),
        curves=(Curve(label="", xs=tuple(map(float, sizes)), ys=tuple(values)),),
    )
    return Figure(chart, f"Where a share of {base_rate:g} of labels is 1.")


def _own_variance(mechanism: Mapping[str, Any]) -> float | None:
    for name in ("noise_variance", "expected_variance"):
        if isinstance(mechanism.get(name), float):
            return float(mechanism[name])
    scale = mechanism.get("noise_scale")
    return 2 * scale**2 if isinstance(scale, float) and not mechanism.get("clip") else None


def _laplace_variance(mechanism: Mapping[str, Any]) -> float | None:
    """2 (range / epsilon)^2; labels of 0 and 1 have the range 1."""
    grid = mechanism.get("grid", mechanism)
    if _is_binary(mechanism):
        width = 1.0
    elif isinstance(grid, Mapping) and {"low", "high"} <= grid.keys():
        width = float(grid["high"]) - float(grid["low"])
    else:
        return None
    return 2 * (width / float(mechanism["epsilon"])) ** 2


def _variance_over_epsilon(epsilon: float) -> CurveChart:
    """Of randomized bits, e^eps / (e^eps - 1)^2, and of Laplace noise, 2 / eps^2."""
    xs = tuple(0.25 * number for number in range(2, 33))
    return CurveChart(
        name="Variance over epsilon",
        x_axis=Axis(name="epsilon"),
        y_axis=Axis(name="variance of the noise", is_log=True),
        curves=(
            Curve(label="randomized response", xs=xs, ys=tuple(map(_bit_variance, xs))),
            Curve(label="Laplace noise", xs=xs, ys=tuple(2 / x**2 for x in xs)),
            Curve(label="this release", xs=(epsilon,), ys=(_bit_variance(epsilon),)),
        ),
    )


def _bit_variance(epsilon: float) -> float:
    return math.exp(epsilon) / math.expm1(epsilon) ** 2


def _columns(record: "ReleaseRecord") -> Section:
    return Section(
        "Columns of the table",
        (
            Paragraph(f"{record.num_rows:,} rows. Public columns go out as they are."),
            Table(head=("column", "meaning"), rows=tuple(record.columns.items())),
        ),
    )
