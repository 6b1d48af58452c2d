"""Curves and clouds of points over one axis, with a legend below."""

import math

from tulle.report.html.charts import Axis, Curve, CurveChart
from tulle.report.html.scales import Scale, scale_of, tick_text, ticks
from tulle.report.html.svg_marks import (
    AXIS,
    FAINT,
    GRID,
    LETTER_WIDTH,
    WIDTH,
    dot,
    line,
    path,
    shortened,
    svg_document,
    text,
)
from tulle.report.svg_figures import COLORS

_TOP, _HEIGHT, _RIGHT = 28.0, 220.0, 14.0
_BELOW_AXIS, _LEGEND_ROW, _LEGEND_MARK = 44.0, 20.0, 22.0
_DASHES = ("", "6 3", "2 3")
_MOST_DOTS = 60
"""A joined curve with more points is drawn as a line alone."""


def curves_svg(chart: CurveChart) -> str:
    """The chart as SVG text."""
    bottom = _TOP + _HEIGHT
    ys = [y for curve in chart.curves for y in curve.ys]
    y_scale = scale_of(chart.y_axis, ys, start=bottom, end=_TOP)
    left = _left_of(chart.y_axis, y_scale)
    xs = [x for curve in chart.curves for x in curve.xs]
    x_scale = scale_of(chart.x_axis, xs, start=left, end=WIDTH - _RIGHT)
    marks = [
        *_frame(chart.x_axis, x_scale, chart.y_axis, y_scale),
        text(4, 14, shortened(chart.y_axis.name, width=WIDTH - 8)),
    ]
    for index, curve in enumerate(chart.curves):
        marks += _curve(curve, x_scale, y_scale, index)
    legend, height = _legend(chart.curves, bottom + _BELOW_AXIS)
    return svg_document(chart.name, bottom + _BELOW_AXIS + height, marks + legend)


def _left_of(axis: Axis, scale: Scale) -> float:
    """Room for the longest number of the vertical axis."""
    words = [tick_text(value, is_percent=axis.is_percent) for value in ticks(scale, most=6)]
    return 14 + LETTER_WIDTH * max(map(len, words), default=1)


def _frame(x_axis: Axis, x_scale: Scale, y_axis: Axis, y_scale: Scale) -> list[str]:
    left, right, bottom, top = x_scale.start, x_scale.end, y_scale.start, y_scale.end
    marks = []
    for value in ticks(y_scale, most=6):
        place = y_scale.place(value)
        marks.append(line(left, place, right, place, color=AXIS if value == 0 else GRID))
        words = tick_text(value, is_percent=y_axis.is_percent)
        marks.append(text(left - 5, place + 4, words, anchor="end", color=FAINT))
    for value in ticks(x_scale, most=6):
        place = x_scale.place(value)
        marks.append(line(place, top, place, bottom + 4, color=GRID))
        words = tick_text(value, is_percent=x_axis.is_percent)
        marks.append(text(place, bottom + 17, words, anchor="middle", color=FAINT))
    marks.append(line(left, bottom, right, bottom, color=AXIS))
    name = shortened(x_axis.name, width=right - left)
    return [*marks, text((left + right) / 2, bottom + 35, name, anchor="middle")]


def _curve(curve: Curve, x_scale: Scale, y_scale: Scale, index: int) -> list[str]:
    color = COLORS[index % len(COLORS)]
    points = [
        (x_scale.place(x), y_scale.place(y))
        for x, y in zip(curve.xs, curve.ys, strict=True)
        if math.isfinite(y) and (y > 0 or not y_scale.is_log) and (x > 0 or not x_scale.is_log)
    ]
    marks = []
    if curve.has_line and len(points) > 1:
        marks.append(path(points, color=color, dashes=_DASHES[index % len(_DASHES)]))
    if not curve.has_line or len(points) <= _MOST_DOTS:
        marks += [dot(x, y, color=color) for x, y in points]
    return marks


def _legend(curves: tuple[Curve, ...], top: float) -> tuple[list[str], float]:
    """Marks below the axis, and how high they are."""
    if len(curves) == 1 and not curves[0].label:
        return [], 4.0
    marks, x, y = [], 8.0, top + 12
    for index, curve in enumerate(curves):
        label = shortened(curve.label, width=WIDTH - 60)
        width = _LEGEND_MARK + LETTER_WIDTH * len(label) + 18
        if x > 8 and x + width > WIDTH:
            x, y = 8.0, y + _LEGEND_ROW
        marks += _legend_mark(curve, x, y - 4, index)
        marks.append(text(x + _LEGEND_MARK + 6, y, label))
        x += width
    return marks, y - top + 10


def _legend_mark(curve: Curve, x: float, y: float, index: int) -> list[str]:
    """The mark of a curve as it is drawn, so that color is not all that tells them apart."""
    color = COLORS[index % len(COLORS)]
    if not curve.has_line:
        return [dot(x + _LEGEND_MARK / 2, y, color=color)]
    ends = [(x, y), (x + _LEGEND_MARK, y)]
    return [path(ends, color=color, dashes=_DASHES[index % len(_DASHES)])]
