"""Charts of an additive model: levels of values side by side, shades of pairs, and a sum by parts.

Up is one color and down is another, and every shade or bar also has its number, on it or in the
table below: color alone tells nothing.
"""

import math

from tulle.report.html.charts import (
    Axis,
    Bar,
    HeatChart,
    StepChart,
    WaterfallChart,
    common_decimals,
    number_text,
)
from tulle.report.html.svg_marks import (
    AXIS,
    FAINT,
    GRID,
    INK,
    LETTER_WIDTH,
    SERIES,
    WIDTH,
    Scale,
    box,
    line,
    scale_of,
    shortened,
    text,
    tick_text,
    ticks,
)

_UP, _DOWN = SERIES[1], SERIES[0]
"""Colors of what raises and of what lowers the log odds: orange and blue, which people who see
few colors tell apart."""
_TURN, _STEEP = 38.0, 55.0
"""Degrees by which labels below steps and above shades rise where they have no room."""
_LINE = 14.0
"""Height of a line of letters."""


def drawn_effects(chart: StepChart | HeatChart | WaterfallChart) -> tuple[float, list[str]]:
    """Height and marks of a chart of effects."""
    if isinstance(chart, StepChart):
        return _steps(chart)
    return _heat(chart) if isinstance(chart, HeatChart) else _waterfall(chart)


# Layout of steps in pixels: the plot with its margins, as that of curves.
_TOP, _HEIGHT, _RIGHT = 28.0, 190.0, 10.0
_MOST_LABEL = 16
"""Letters of a label below a step; longer ones are cut."""


def _steps(chart: StepChart) -> tuple[float, list[str]]:
    values = [v for bar in chart.bars for v in (bar.value, bar.low, bar.high) if v is not None]
    axis, bottom = Axis(name=chart.y_name), _TOP + _HEIGHT
    scale = scale_of(axis, [0.0, *values], start=bottom, end=_TOP)
    words = [tick_text(value, is_percent=False) for value in ticks(scale, most=6)]
    left = 14 + LETTER_WIDTH * max(map(len, words))
    marks = [text(4, 14, shortened(chart.y_name, width=WIDTH - 8))]
    for value, word in zip(ticks(scale, most=6), words, strict=True):
        place = scale.place(value)
        marks.append(line(left, place, WIDTH - _RIGHT, place, color=AXIS if value == 0 else GRID))
        marks.append(text(left - 5, place + 4, word, anchor="end", color=FAINT))
    has_gap = 0 < chart.num_joined < len(chart.bars)
    width = (WIDTH - _RIGHT - left) / (len(chart.bars) + 0.5 * has_gap)
    starts = [
        left + width * (number + 0.5 * (has_gap and number >= chart.num_joined))
        for number in range(len(chart.bars))
    ]
    for bar, start in zip(chart.bars, starts, strict=True):
        if bar.low is not None and bar.high is not None:
            low, high = scale.place(bar.low), scale.place(bar.high)
            marks.append(box(start, high, width, low - high, color=_DOWN, opacity=0.22))
    previous: float | None = None
    for number, (bar, start) in enumerate(zip(chart.bars, starts, strict=True)):
        place = scale.place(bar.value or 0.0)
        if previous is not None and number < chart.num_joined:
            marks.append(line(start, previous, start, place, color=_DOWN, width=1.8))
        marks.append(line(start, place, start + width, place, color=_DOWN, width=1.8))
        previous = place
    labels, height = _labels_below([bar.label for bar in chart.bars], starts, width, bottom)
    name = shortened(chart.x_name, width=WIDTH - left)
    marks += [*labels, line(left, bottom, WIDTH - _RIGHT, bottom, color=AXIS)]
    marks.append(text((left + WIDTH) / 2, bottom + height + 16, name, anchor="middle"))
    return bottom + height + 26, marks


def _labels_below(
    labels: list[str], starts: list[float], width: float, bottom: float
) -> tuple[list[str], float]:
    """Labels below steps, as many as have room, and the height that they take.

    Args:
      labels: Label of each step.
      starts: Left end of each step.
      width: Width of a step.
      bottom: Place of the axis.
    """
    longest = min(_MOST_LABEL, max(map(len, labels)))
    is_turned = LETTER_WIDTH * (longest + 1) > width and longest > 2
    every = math.ceil((_LINE + 2) / width) if is_turned else math.ceil(2 * LETTER_WIDTH / width)
    marks = []
    for number, (label, start) in enumerate(zip(labels, starts, strict=True)):
        if number % every:
            continue
        words, middle = shortened(label, width=LETTER_WIDTH * longest), start + width / 2
        marks.append(line(middle, bottom, middle, bottom + 4, color=AXIS))
        if is_turned:
            place = middle + 4, bottom + 14
            marks.append(text(*place, words, anchor="end", color=FAINT, turn=_TURN))
        else:
            marks.append(text(middle, bottom + 17, words, anchor="middle", color=FAINT))
    rise = math.sin(math.radians(_TURN)) * LETTER_WIDTH * longest
    return marks, 16 + rise if is_turned else 22.0


# Layout of a heat map in pixels.
_MOST_ROW, _LEAST_ROW, _MOST_HEAT = 30.0, 18.0, 360.0
_LEAST_FOR_NUMBER = 29.0
"""Width of a box from which on its number has room."""
_LEGEND_BOXES = 11
_FULL = 0.9
"""Opacity of the largest effect: letters on it can still be read."""


def _heat(chart: HeatChart) -> tuple[float, list[str]]:
    longest = min(18, max(map(len, chart.row_labels)))
    left = 12 + LETTER_WIDTH * longest
    letters = min(_MOST_LABEL, max(map(len, chart.column_labels)))
    width = (WIDTH - left - _RIGHT) / len(chart.column_labels)
    is_turned = LETTER_WIDTH * (letters + 1) > width
    rise = math.sin(math.radians(_STEEP)) * LETTER_WIDTH * letters
    if is_turned:
        # The last label leans out to the right of its box.
        reach = math.cos(math.radians(_STEEP)) * LETTER_WIDTH * letters
        width = (WIDTH - left - max(_RIGHT, reach - width / 2)) / len(chart.column_labels)
    height = min(_MOST_ROW, max(_LEAST_ROW, _MOST_HEAT / len(chart.row_labels)))
    top = 24 + (rise + 12 if is_turned else 18.0)
    marks = [text(4, 14, shortened(f"columns: {chart.column_name}", width=WIDTH - 8))]
    for column, label in enumerate(chart.column_labels):
        words = shortened(label, width=LETTER_WIDTH * letters)
        place = left + width * (column + 0.5), top - 6
        turn, anchor = (_STEEP, "start") if is_turned else (0.0, "middle")
        marks.append(text(*place, words, anchor=anchor, color=FAINT, turn=turn))
    most = max(abs(value) for row in chart.values for value in row) or 1.0
    decimals = 1 if most >= 1 else 2
    for row, (label, values) in enumerate(zip(chart.row_labels, chart.values, strict=True)):
        y = top + height * row
        words = shortened(label, width=LETTER_WIDTH * longest)
        marks.append(text(left - 6, y + height / 2 + 4, words, anchor="end", color=FAINT))
        for column, value in enumerate(values):
            x = left + width * column
            marks.append(_shade(x, y, width, height, value / most))
            if width >= _LEAST_FOR_NUMBER:
                middle = x + width / 2, y + height / 2 + 4
                number = number_text(value, decimals)
                marks.append(text(*middle, number, anchor="middle", has_rim=False))
    bottom = top + height * len(chart.values)
    marks.append(text(4, bottom + 18, shortened(f"rows: {chart.row_name}", width=WIDTH - 8)))
    return bottom + 64, [*marks, *_heat_legend(chart.value_name, most, bottom + 30)]


def _shade(x: float, y: float, width: float, height: float, size: float) -> str:
    """A box of a number from -1 to 1; 0 is the color of the panel.

    Args:
      x: Place of its left side.
      y: Place of its upper side.
      width: Width.
      height: Height.
      size: The number.
    """
    color = _UP if size > 0 else _DOWN
    return box(x + 0.5, y + 0.5, width - 1, height - 1, color=color, opacity=_FULL * abs(size))


def _heat_legend(name: str, most: float, top: float) -> list[str]:
    """The scale of shades, with its ends and its middle."""
    width, left = 12.0, WIDTH / 2 - 6.0 * _LEGEND_BOXES
    marks = []
    for number in range(_LEGEND_BOXES):
        size = 2 * number / (_LEGEND_BOXES - 1) - 1
        marks.append(_shade(left + width * number, top, width, 12, size))
    right = left + width * _LEGEND_BOXES
    words = number_text(most, 1 if most >= 1 else 2)
    marks.append(text(left - 6, top + 10, f"−{words}", anchor="end", color=FAINT))
    marks.append(text(right + 6, top + 10, f"+{words}", color=FAINT))
    named = shortened(name, width=WIDTH - 8)
    return [*marks, text(WIDTH / 2, top + 28, named, anchor="middle")]


# Layout of a waterfall in pixels: as bars, one part with its label above.
_ROW, _SIDE, _BOTTOM = 38.0, 8.0, 44.0


def _waterfall(chart: WaterfallChart) -> tuple[float, list[str]]:
    sums = chart.sums
    ends = [v for bar, before in zip(chart.parts, sums, strict=False) for v in _ends(bar, before)]
    axis = Axis(name=chart.value_name)
    scale = scale_of(axis, [*sums, *ends], start=_SIDE, end=WIDTH - _SIDE)
    top, num_rows = 8.0, len(chart.parts) + 2
    bottom = top + _ROW * num_rows
    marks = []
    for value in ticks(scale, most=5):
        place = scale.place(value)
        words = tick_text(value, is_percent=False)
        half = LETTER_WIDTH * (len(words) + 1) / 2
        marks.append(line(place, top, place, bottom, color=GRID))
        middle = min(max(place, half), WIDTH - half)
        marks.append(text(middle, bottom + 16, words, anchor="middle", color=FAINT))
    sizes = [abs(bar.value or 0.0) for bar in chart.parts] or [abs(chart.start)]
    decimals = common_decimals([max(sizes)], digits=3)
    marks += _level(chart.start_label, sums[0], scale, top, decimals)
    for number, (bar, before, after) in enumerate(zip(chart.parts, sums, sums[1:], strict=False)):
        marks += _part(bar, (before, after), scale, top + _ROW * (number + 1), decimals)
    marks += _level(chart.end_label, sums[-1], scale, top + _ROW * (num_rows - 1), decimals)
    name = shortened(chart.value_name, width=WIDTH)
    marks.append(text(WIDTH / 2, bottom + 36, name, anchor="middle"))
    return bottom + _BOTTOM, marks


def _ends(bar: Bar, before: float) -> tuple[float, ...]:
    """Ends of the range of a part, as sums."""
    return () if bar.low is None or bar.high is None else (before + bar.low, before + bar.high)


def _level(label: str, value: float, scale: Scale, top: float, decimals: int | None) -> list[str]:
    """Where the sum starts or ends: a mark with its number.

    Args:
      label: What it is.
      value: The sum.
      scale: Places of sums.
      top: Upper side of the row.
      decimals: Decimals of the number.
    """
    words, place = number_text(value, decimals), scale.place(value)
    room = WIDTH - 2 * _SIDE - LETTER_WIDTH * (len(words) + 2)
    return [
        text(_SIDE, top + 14, shortened(label, width=room)),
        text(WIDTH - _SIDE, top + 14, words, anchor="end"),
        box(place - 2.5, top + 20, 5, 11, color=INK),
    ]


def _part(
    bar: Bar, sums: tuple[float, float], scale: Scale, top: float, decimals: int | None
) -> list[str]:
    """One part of the sum, from where it was to where it is then.

    Args:
      bar: The part.
      sums: The sum before and after it.
      scale: Places of sums.
      top: Upper side of the row.
      decimals: Decimals of the number.
    """
    change = bar.value or 0.0
    words = f"{'+' if change > 0 else ''}{number_text(change, decimals)}"
    room = WIDTH - 2 * _SIDE - LETTER_WIDTH * (len(words) + 2)
    before, after = map(scale.place, sums)
    start, end = sorted((before, after))
    marks = [
        # From the end of the row above to the start of this one.
        line(before, top - 7, before, top + 20, color=AXIS),
        text(_SIDE, top + 14, shortened(bar.label, width=room)),
        text(WIDTH - _SIDE, top + 14, words, anchor="end"),
        box(start, top + 20, end - start, 11, color=_UP if change > 0 else _DOWN, opacity=0.75),
    ]
    if (ends := _ends(bar, sums[0])) and ends[0] < ends[1]:
        low, high, middle = scale.place(ends[0]), scale.place(ends[1]), top + 25.5
        marks.append(line(low, middle, high, middle, color=INK, width=1.4))
        marks += [line(x, middle - 4, x, middle + 4, color=INK, width=1.4) for x in (low, high)]
    return marks
