"""Bars below one another, each with its range: readable on a phone however long its label."""

from collections.abc import Sequence

from tulle.report.html.charts import MOST_BARS, Axis, Bar, BarChart
from tulle.report.html.scales import Scale, scale_of, tick_text, ticks
from tulle.report.html.svg_marks import (
    AXIS,
    FAINT,
    GRID,
    INK,
    LETTER_WIDTH,
    SERIES,
    WIDTH,
    box,
    line,
    shortened,
    svg_document,
    text,
)
from tulle.report.html.tables import common_decimals, number_text

_ROW, _TOP, _BOTTOM, _SIDE = 38.0, 8.0, 44.0, 8.0


def bars_svg(chart: BarChart) -> str:
    """The chart as SVG text."""
    drawn = chart.bars[:MOST_BARS]
    bottom = _TOP + _ROW * len(drawn)
    ends = [v for bar in drawn for v in (bar.value, bar.low, bar.high) if v is not None]
    axis = Axis(name=chart.value_name, is_percent=chart.is_percent)
    scale = scale_of(axis, [0.0, *ends], start=_SIDE, end=WIDTH - _SIDE)
    marks = _axis(chart, scale, bottom)
    words = _bar_texts(drawn, is_percent=chart.is_percent)
    for number, (bar, value) in enumerate(zip(drawn, words, strict=True)):
        marks += _bar(bar, value, scale, _TOP + _ROW * number)
    return svg_document(chart.name, bottom + _BOTTOM, marks)


def _axis(chart: BarChart, scale: Scale, bottom: float) -> list[str]:
    marks = []
    for value in ticks(scale, most=5):
        place = scale.place(value)
        marks.append(line(place, _TOP, place, bottom, color=AXIS if value == 0 else GRID))
        words = tick_text(value, is_percent=chart.is_percent)
        half = LETTER_WIDTH * (len(words) + 1) / 2
        middle = min(max(place, half), WIDTH - half)
        marks.append(text(middle, bottom + 16, words, anchor="middle", color=FAINT))
    name = shortened(chart.value_name, width=WIDTH)
    marks.append(text(WIDTH / 2, bottom + 36, name, anchor="middle", color=INK))
    return marks


def _bar(bar: Bar, value: str, scale: Scale, top: float) -> list[str]:
    room = WIDTH - 2 * _SIDE - LETTER_WIDTH * (len(value) + 2)
    marks = [
        text(_SIDE, top + 14, shortened(bar.label, width=room)),
        text(WIDTH - _SIDE, top + 14, value, anchor="end"),
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
