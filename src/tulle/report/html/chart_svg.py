"""Charts as SVG: inside a page, or as a file that stands on its own.

Bars lie below one another, readable on a phone however long their labels; curves and clouds of
points have a legend below; a channel is a table of shades, with what goes in as a row and what
comes out as a column.
"""

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path

from tulle.atomic_files import write_text
from tulle.errors import ConfigError, DataError
from tulle.report.html.charts import (
    MOST_BARS,
    Axis,
    Bar,
    BarChart,
    Chart,
    Curve,
    CurveChart,
    MatrixChart,
)
from tulle.report.html.scales import Scale, scale_of, tick_text, ticks
from tulle.report.html.svg_marks import (
    AXIS,
    FAINT,
    GRID,
    INK,
    LETTER_WIDTH,
    ON_SHADE,
    SERIES,
    WIDTH,
    box,
    dot,
    escape_html,
    line,
    path,
    shortened,
    svg_document,
    text,
)
from tulle.report.html.tables import common_decimals, number_text

_COLUMNS = 2
"""Charts side by side in a file."""
_GAP, _TITLE = 24.0, 26.0
"""Room between charts of a file, and for the name above each."""
_PIXELS_A_UNIT = 1.4
"""Letters of 12 units are then as large as those of a web page."""
_PAGE_COLOR = re.compile(r"var\(--[\w-]+, (#\w+)\)")


def chart_svg(chart: Chart) -> str:
    """A chart as inline SVG."""
    height, marks = _drawn(chart)
    return svg_document(chart.name, height, marks)


def charts_svg(charts: Sequence[Chart]) -> str:
    """Charts as the text of one SVG file, two side by side, each below its name.

    The same charts give the same bytes. Colors are those of a light page.

    Raises:
      DataError: There is no chart.
    """
    if not charts:
        raise DataError("there is nothing to plot; leave out the plot.")
    columns = min(_COLUMNS, len(charts))
    marks, top = [], 0.0
    for first in range(0, len(charts), columns):
        heights = []
        for column, chart in enumerate(charts[first : first + columns]):
            left, (height, drawn) = column * (WIDTH + _GAP), _drawn(chart)
            name = shortened(chart.name, width=WIDTH)
            marks.append(text(left + 4, top + 16, name, color=INK, has_rim=False))
            place = f'<svg x="{left:g}" y="{top + _TITLE:g}" width="{WIDTH:g}" height="{height:g}" '
            marks.append(svg_document(chart.name, height, drawn).replace("<svg ", place, 1))
            heights.append(height)
        top += _TITLE + max(heights) + _GAP
    width = columns * (WIDTH + _GAP) - _GAP
    title = escape_html("; ".join(chart.name for chart in charts))
    whole = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {top:g}" '
        f'width="{_PIXELS_A_UNIT * width:g}" height="{_PIXELS_A_UNIT * top:g}" role="img" '
        f'font-family="sans-serif"><title>{title}</title>'
        f'<rect width="{width:g}" height="{top:g}" fill="#ffffff"/>{"".join(marks)}</svg>\n'
    )
    # Outside of a page nothing defines its colors, and not every viewer knows variables.
    return _PAGE_COLOR.sub(r"\1", whole)


def write_charts(path: Path, charts: Sequence[Chart]) -> None:
    """Writes charts as an SVG file, as a whole or not at all, over the one that may be there.

    Raises:
      ConfigError: The name of the file does not end in .svg.
      DataError: There is no chart.
      RunStateError: The disk refuses the file.
    """
    check_plot_name(path)
    write_text(path, charts_svg(charts))


def check_plot_name(path: Path) -> None:
    """Refuses a file of another form, before anything is computed for it."""
    if path.suffix != ".svg":
        raise ConfigError(f"plot={str(path)!r} must end in .svg, which it will be.")


def is_cut(chart: CurveChart) -> bool:
    """Whether values lie beyond the vertical axis, and are not drawn."""
    scale = _y_scale(chart)
    return any(not scale.contains(y) for curve in chart.curves for y in _drawable(curve.ys, scale))


def _drawn(chart: Chart) -> tuple[float, list[str]]:
    """Height and marks of a chart."""
    if isinstance(chart, BarChart):
        return _bars(chart)
    return _curves(chart) if isinstance(chart, CurveChart) else _matrix(chart)


_BAR_ROW, _BAR_TOP, _BAR_BOTTOM, _BAR_SIDE = 38.0, 8.0, 44.0, 8.0


def _bars(chart: BarChart) -> tuple[float, list[str]]:
    drawn = chart.bars[:MOST_BARS]
    bottom = _BAR_TOP + _BAR_ROW * len(drawn)
    ends = [v for bar in drawn for v in (bar.value, bar.low, bar.high) if v is not None]
    axis = Axis(name=chart.value_name, is_percent=chart.is_percent)
    scale = scale_of(axis, [0.0, *ends], start=_BAR_SIDE, end=WIDTH - _BAR_SIDE)
    marks = _bar_axis(chart, scale, bottom)
    words = _bar_texts(drawn, is_percent=chart.is_percent)
    for number, (bar, value) in enumerate(zip(drawn, words, strict=True)):
        marks += _bar(bar, value, scale, _BAR_TOP + _BAR_ROW * number)
    return bottom + _BAR_BOTTOM, marks


def _bar_axis(chart: BarChart, scale: Scale, bottom: float) -> list[str]:
    marks = []
    for value in ticks(scale, most=5):
        place = scale.place(value)
        marks.append(line(place, _BAR_TOP, place, bottom, color=AXIS if value == 0 else GRID))
        words = tick_text(value, is_percent=chart.is_percent)
        half = LETTER_WIDTH * (len(words) + 1) / 2
        middle = min(max(place, half), WIDTH - half)
        marks.append(text(middle, bottom + 16, words, anchor="middle", color=FAINT))
    name = shortened(chart.value_name, width=WIDTH)
    marks.append(text(WIDTH / 2, bottom + 36, name, anchor="middle", color=INK))
    return marks


def _bar(bar: Bar, value: str, scale: Scale, top: float) -> list[str]:
    room = WIDTH - 2 * _BAR_SIDE - LETTER_WIDTH * (len(value) + 2)
    marks = [
        text(_BAR_SIDE, top + 14, shortened(bar.label, width=room)),
        text(WIDTH - _BAR_SIDE, top + 14, value, anchor="end"),
    ]
    if bar.value is None:
        return marks
    start, end = sorted((scale.place(0.0), scale.place(bar.value)))
    color = AXIS if bar.is_muted else SERIES[0]
    marks.append(box(start, top + 20, end - start, 11, color=color, opacity=0.75))
    if bar.low is not None and bar.high is not None:
        low, high, middle = scale.place(bar.low), scale.place(bar.high), top + 25.5
        marks.append(line(low, middle, high, middle, color=INK, width=1.6))
        marks += [line(x, middle - 4, x, middle + 4, color=INK, width=1.6) for x in (low, high)]
    return marks


def _bar_texts(bars: Sequence[Bar], *, is_percent: bool) -> list[str]:
    """Values and ranges in words, with as many decimals in all of them."""
    unit = 100 if is_percent else 1
    values = [unit * bar.value for bar in bars if bar.value is not None]
    # Two digits of the noise: more would say nothing.
    widths = [unit * width / 4 for bar in bars if (width := _width(bar)) > 0]
    decimals = common_decimals(values)
    if widths and (found := common_decimals(widths, digits=2)) is not None:
        decimals = found if decimals is None else min(decimals, found)
    if is_percent:
        decimals = 1 if decimals is None else min(decimals, 1)
    return [_bar_text(bar, unit, decimals, "%" if is_percent else "") for bar in bars]


def _width(bar: Bar) -> float:
    """Width of a bar's range; 0 where there is none."""
    return 0.0 if bar.low is None or bar.high is None else bar.high - bar.low


def _bar_text(bar: Bar, unit: int, decimals: int | None, sign: str) -> str:
    if bar.value is None:
        return "unknown"
    value, low, high = (
        None if end is None else number_text(unit * end, decimals)
        for end in (bar.value, bar.low, bar.high)
    )
    return f"{value}{sign} ({low} to {high})" if _width(bar) > 0 else f"{value}{sign}"


_TOP, _HEIGHT, _RIGHT = 28.0, 220.0, 14.0
_BELOW_AXIS, _LEGEND_ROW, _LEGEND_MARK = 44.0, 20.0, 22.0
_DASHES = ("", "6 3", "2 3")
_REFERENCE_DASHES = "4 4"
_DOT, _LONE_DOT = 2.6, 4.6
"""Radius. A curve of a single point lies on others, and must be seen there."""
_MOST_DOTS = 60
"""A joined curve with more points is drawn as a line alone."""

Point = tuple[float, float]


def _curves(chart: CurveChart) -> tuple[float, list[str]]:
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


_MATRIX_TOP, _MATRIX_RIGHT, _MOST_MATRIX_HEIGHT = 44.0, 8.0, 320.0
_LEAST_SIDE_WITH_NUMBER = 34.0
_DARK_SHADE = 0.6
"""Share of the largest probability from which on numbers are white."""


def _matrix(chart: MatrixChart) -> tuple[float, list[str]]:
    longest = max(map(len, chart.row_labels))
    left = min(WIDTH / 3, 12 + LETTER_WIDTH * longest)
    width = (WIDTH - left - _MATRIX_RIGHT) / len(chart.column_labels)
    height = min(56.0, max(8.0, _MOST_MATRIX_HEIGHT / len(chart.row_labels)))
    marks = [
        text(left, 14, shortened(f"column: {chart.column_name}", width=WIDTH - left)),
        *_matrix_labels(chart, left, width, height),
    ]
    most = max(max(row) for row in chart.values)
    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            x, y = left + column * width, _MATRIX_TOP + row * height
            shade = value / most if most > 0 else 0.0
            marks.append(box(x, y, width, height, color=SERIES[0], opacity=shade))
            if min(width, height * 1.8) >= _LEAST_SIDE_WITH_NUMBER:
                color = ON_SHADE if shade >= _DARK_SHADE else INK
                words = f"{100 * value:.3g}%"
                middle = x + width / 2, y + height / 2 + 4
                marks.append(text(*middle, words, anchor="middle", color=color, has_rim=False))
    bottom = _MATRIX_TOP + height * len(chart.values)
    marks.append(text(8, bottom + 20, shortened(f"row: {chart.row_name}", width=WIDTH)))
    return bottom + 30, marks


def _matrix_labels(chart: MatrixChart, left: float, width: float, height: float) -> list[str]:
    """Labels of rows and columns, as many as have room."""
    every_row = max(1, round(14 / height))
    longest = max(map(len, chart.column_labels))
    every_column = max(1, -(-int(LETTER_WIDTH * (longest + 1)) // max(1, int(width))))
    rows = [
        text(
            left - 6,
            _MATRIX_TOP + (row + 0.5) * height + 4,
            shortened(label, width=left - 8),
            anchor="end",
            color=FAINT,
        )
        for row, label in enumerate(chart.row_labels)
        if row % every_row == 0
    ]
    columns = [
        text(
            left + (column + 0.5) * width,
            _MATRIX_TOP - 8,
            shortened(label, width=max(width, width * every_column)),
            anchor="middle",
            color=FAINT,
        )
        for column, label in enumerate(chart.column_labels)
        if column % every_column == 0
    ]
    return rows + columns
