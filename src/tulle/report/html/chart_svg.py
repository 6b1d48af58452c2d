"""Charts as SVG: inside a page, or as a file that stands on its own.

Bars lie below one another, readable on a phone however long their labels; a channel is a table of
shades, with what goes in as a row and what comes out as a column.
"""

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
    CurveChart,
    MatrixChart,
    common_decimals,
    number_text,
)
from tulle.report.html.curve_svg import drawn_curves
from tulle.report.html.effect_svg import drawn_effects
from tulle.report.html.svg_marks import (
    AXIS,
    FAINT,
    GRID,
    INK,
    LETTER_WIDTH,
    ON_SHADE,
    SERIES,
    WIDTH,
    Scale,
    box,
    escape_html,
    line,
    scale_of,
    shortened,
    svg_document,
    text,
    tick_text,
    ticks,
)

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


def _drawn(chart: Chart) -> tuple[float, list[str]]:
    """Height and marks of a chart."""
    if isinstance(chart, BarChart):
        return _bars(chart)
    if isinstance(chart, CurveChart):
        return drawn_curves(chart)
    return _matrix(chart) if isinstance(chart, MatrixChart) else drawn_effects(chart)


_BAR_ROW, _BAR_TOP, _BAR_BOTTOM, _BAR_SIDE = 38.0, 8.0, 44.0, 8.0
"""Layout in pixels of the drawing: a bar with its label above, and the margins around all bars."""


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


# Layout in pixels: room for the labels of columns, and a height beyond which rows get lower
# instead.
_MATRIX_TOP, _MATRIX_RIGHT, _MOST_MATRIX_HEIGHT = 44.0, 8.0, 320.0
_LEAST_SIDE_WITH_NUMBER = 34.0
"""A box with a smaller side has no room for its number; its shade alone tells the value."""
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
