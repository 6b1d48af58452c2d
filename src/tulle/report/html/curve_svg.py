"""Curves and clouds of points over one axis, with a legend below."""

import itertools
import math

from tulle.report.html.charts import Axis, Curve, CurveChart
from tulle.report.html.svg_marks import (
    AXIS,
    FAINT,
    GRID,
    LETTER_WIDTH,
    SERIES,
    WIDTH,
    Scale,
    dot,
    line,
    path,
    scale_of,
    shortened,
    text,
    tick_text,
    ticks,
)

# Layout in pixels: the plot with its margins, and the rows of the legend below its axis.
_TOP, _HEIGHT, _RIGHT = 28.0, 220.0, 14.0
_BELOW_AXIS, _LEGEND_ROW, _LEGEND_MARK = 44.0, 20.0, 22.0
_DASHES = ("", "6 3", "2 3")
_REFERENCE_DASHES = "4 4"
_DOT, _LONE_DOT = 2.6, 4.6
"""Radius. A curve of a single point lies on others, and must be seen there."""
_MOST_DOTS = 60
"""A joined curve with more points is drawn as a line alone."""

Point = tuple[float, float]


def drawn_curves(chart: CurveChart) -> tuple[float, list[str]]:
    """Height and marks of curves."""
    bottom = _TOP + _HEIGHT
    y_scale = _y_scale(chart)
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
    return bottom + _BELOW_AXIS + height, marks + legend


def is_cut(chart: CurveChart) -> bool:
    """Whether values lie beyond the vertical axis, and are not drawn."""
    scale = _y_scale(chart)
    return any(not scale.contains(y) for curve in chart.curves for y in _drawable(curve.ys, scale))


def _y_scale(chart: CurveChart) -> Scale:
    ends = [end for curve in chart.curves for pair in curve.ranges for end in pair]
    values = [y for curve in chart.curves for y in curve.ys]
    return scale_of(chart.y_axis, [*values, *ends], start=_TOP + _HEIGHT, end=_TOP)


def _drawable(values: tuple[float, ...], scale: Scale) -> list[float]:
    return [v for v in values if math.isfinite(v) and (v > 0 or not scale.is_log)]


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
    color, dashes = _look(curve, index)
    points = [
        (x, y)
        for x, y in zip(curve.xs, curve.ys, strict=True)
        if math.isfinite(y) and (y > 0 or not y_scale.is_log) and (x > 0 or not x_scale.is_log)
    ]
    marks = []
    if curve.ranges:
        for x, y, ends in zip(curve.xs, curve.ys, curve.ranges, strict=True):
            if y_scale.contains(y):
                marks += _range(x_scale.place(x), ends, y_scale, color)
    if curve.has_line:
        placed = [(x_scale.place(x), y_scale.free_place(y)) for x, y in points]
        parts = _inside(placed, y_scale.end, y_scale.start)
        marks += [path(part, color=color, dashes=dashes) for part in parts]
    if _has_dots(curve):
        radius = _DOT if len(points) > 1 else _LONE_DOT
        marks += [
            dot(x_scale.place(x), y_scale.place(y), color=color, radius=radius)
            for x, y in points
            if y_scale.contains(y)
        ]
    return marks


def _look(curve: Curve, index: int) -> tuple[str, str]:
    """Color and dashes."""
    if curve.is_reference:
        return AXIS, _REFERENCE_DASHES
    return SERIES[index % len(SERIES)], _DASHES[index % len(_DASHES)]


def _has_dots(curve: Curve) -> bool:
    return not curve.is_reference and (not curve.has_line or len(curve.xs) <= _MOST_DOTS)


def _range(x: float, ends: tuple[float, float], scale: Scale, color: str) -> list[str]:
    """A line from low to high; an end beyond the frame has no mark."""
    low, high = map(scale.place, ends)
    marks = [line(x, low, x, high, color=color, width=1.4)]
    for end in filter(scale.contains, ends):
        place = scale.place(end)
        marks.append(line(x - 3, place, x + 3, place, color=color, width=1.4))
    return marks


def _inside(points: list[Point], top: float, bottom: float) -> list[list[Point]]:
    """The parts of a line that are within the frame."""
    parts: list[list[Point]] = []
    for first, second in itertools.pairwise(points):
        piece = _cut(first, second, top, bottom)
        if piece is None:
            continue
        if parts and parts[-1][-1] == piece[0]:
            parts[-1].append(piece[1])
        else:
            parts.append(list(piece))
    return parts


def _cut(first: Point, second: Point, top: float, bottom: float) -> tuple[Point, Point] | None:
    (x1, y1), (x2, y2) = first, second
    if y1 == y2:
        return (first, second) if top <= y1 <= bottom else None
    near, far = sorted(((top - y1) / (y2 - y1), (bottom - y1) / (y2 - y1)))
    if not (near < 1 and far > 0):
        return None
    start = first if near <= 0 else (x1 + near * (x2 - x1), y1 + near * (y2 - y1))
    end = second if far >= 1 else (x1 + far * (x2 - x1), y1 + far * (y2 - y1))
    return start, end


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
    color, dashes = _look(curve, index)
    marks = []
    if curve.has_line and len(curve.xs) > 1:
        marks.append(path([(x, y), (x + _LEGEND_MARK, y)], color=color, dashes=dashes))
    if _has_dots(curve):
        radius = _DOT if len(curve.xs) > 1 else _LONE_DOT
        marks.append(dot(x + _LEGEND_MARK / 2, y, color=color, radius=radius))
    return marks
