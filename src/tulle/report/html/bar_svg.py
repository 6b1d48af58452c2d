"""Bars below one another, each with its range: readable on a phone however long its label."""

import math

from tulle.report.html.charts import MOST_BARS, Axis, Bar, BarChart
from tulle.report.html.scales import Scale, scale_of, tick_text, ticks
from tulle.report.html.svg_marks import (
    AXIS,
    FAINT,
    GRID,
    INK,
    LETTER_WIDTH,
    WIDTH,
    box,
    line,
    shortened,
    svg_document,
    text,
)
from tulle.report.html.tables import short_number

_ROW, _TOP, _BOTTOM, _SIDE = 38.0, 8.0, 44.0, 8.0
_BAR_COLOR = "#0072b2"


def bars_svg(chart: BarChart) -> str:
    """The chart as SVG text."""
    drawn = chart.bars[:MOST_BARS]
    bottom = _TOP + _ROW * len(drawn)
    ends = [v for bar in drawn for v in (bar.value, bar.low, bar.high) if v is not None]
    axis = Axis(name=chart.value_name, is_percent=chart.is_percent)
    scale = scale_of(axis, [0.0, *ends], start=_SIDE, end=WIDTH - _SIDE)
    marks = _axis(chart, scale, bottom)
    for number, bar in enumerate(drawn):
        marks += _bar(bar, scale, _TOP + _ROW * number, is_percent=chart.is_percent)
    return svg_document(chart.name, bottom + _BOTTOM, marks)


def _axis(chart: BarChart, scale: Scale, bottom: float) -> list[str]:
    marks = []
    for value in ticks(scale, most=5):
        place = scale.place(value)
        marks.append(line(place, _TOP, place, bottom, color=AXIS if value == 0 else GRID))
        words = tick_text(value, is_percent=chart.is_percent)
        half = LETTER_WIDTH * len(words) / 2
        middle = min(max(place, half), WIDTH - half)
        marks.append(text(middle, bottom + 16, words, anchor="middle", color=FAINT))
    name = shortened(chart.value_name, width=WIDTH)
    marks.append(text(WIDTH / 2, bottom + 36, name, anchor="middle", color=INK))
    return marks


def _bar(bar: Bar, scale: Scale, top: float, *, is_percent: bool) -> list[str]:
    value = _bar_text(bar, is_percent=is_percent)
    room = WIDTH - 2 * _SIDE - LETTER_WIDTH * (len(value) + 2)
    marks = [
        text(_SIDE, top + 14, shortened(bar.label, width=room)),
        text(WIDTH - _SIDE, top + 14, value, anchor="end"),
    ]
    if bar.value is None:
        return marks
    start, end = sorted((scale.place(0.0), scale.place(bar.value)))
    marks.append(box(start, top + 20, end - start, 11, color=_BAR_COLOR, opacity=0.75))
    if bar.low is not None and bar.high is not None:
        low, high, middle = scale.place(bar.low), scale.place(bar.high), top + 25.5
        marks.append(line(low, middle, high, middle, color=INK, width=1.6))
        marks += [line(x, middle - 4, x, middle + 4, color=INK, width=1.6) for x in (low, high)]
    return marks


def _bar_text(bar: Bar, *, is_percent: bool) -> str:
    if bar.value is None:
        return "unknown"
    if bar.low is None or bar.high is None or not bar.low < bar.high:
        return f"{100 * bar.value:.1f}%" if is_percent else short_number(bar.value)
    # Two digits of the noise: more would say nothing.
    unit = 100 if is_percent else 1
    decimals = min(6, max(0, 1 - math.floor(math.log10(unit * (bar.high - bar.low) / 4))))
    value, low, high = (
        f"{round(unit * end, decimals) + 0.0:,.{decimals}f}"
        for end in (bar.value, bar.low, bar.high)
    )
    sign = "%" if is_percent else ""
    return f"{value}{sign} ({low} to {high})"
