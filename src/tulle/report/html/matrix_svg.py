"""Probabilities of a channel as shades: what goes in is a row, what comes out a column."""

from tulle.report.html.charts import MatrixChart
from tulle.report.html.svg_marks import (
    FAINT,
    INK,
    LETTER_WIDTH,
    ON_SHADE,
    SERIES,
    WIDTH,
    box,
    shortened,
    svg_document,
    text,
)

_TOP, _RIGHT, _MOST_HEIGHT = 44.0, 8.0, 320.0
_LEAST_SIDE_WITH_NUMBER = 34.0
_DARK = 0.6
"""Share of the largest probability from which on numbers are white."""


def matrix_svg(chart: MatrixChart) -> str:
    """The chart as SVG text."""
    longest = max(map(len, chart.row_labels))
    left = min(WIDTH / 3, 12 + LETTER_WIDTH * longest)
    width = (WIDTH - left - _RIGHT) / len(chart.column_labels)
    height = min(56.0, max(8.0, _MOST_HEIGHT / len(chart.row_labels)))
    marks = [
        text(left, 14, shortened(f"column: {chart.column_name}", width=WIDTH - left)),
        *_labels(chart, left, width, height),
    ]
    most = max(max(row) for row in chart.values)
    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            x, y = left + column * width, _TOP + row * height
            shade = value / most if most > 0 else 0.0
            marks.append(box(x, y, width, height, color=SERIES[0], opacity=shade))
            if min(width, height * 1.8) >= _LEAST_SIDE_WITH_NUMBER:
                color = ON_SHADE if shade >= _DARK else INK
                words = f"{100 * value:.3g}%"
                middle = x + width / 2, y + height / 2 + 4
                marks.append(text(*middle, words, anchor="middle", color=color, has_rim=False))
    bottom = _TOP + height * len(chart.values)
    marks.append(text(8, bottom + 20, shortened(f"row: {chart.row_name}", width=WIDTH)))
    return svg_document(chart.name, bottom + 30, marks)


def _labels(chart: MatrixChart, left: float, width: float, height: float) -> list[str]:
    """Labels of rows and columns, as many as have room."""
    every_row = max(1, round(14 / height))
    longest = max(map(len, chart.column_labels))
    every_column = max(1, -(-int(LETTER_WIDTH * (longest + 1)) // max(1, int(width))))
    rows = [
        text(
            left - 6,
            _TOP + (row + 0.5) * height + 4,
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
            _TOP - 8,
            shortened(label, width=max(width, width * every_column)),
            anchor="middle",
            color=FAINT,
        )
        for column, label in enumerate(chart.column_labels)
        if column % every_column == 0
    ]
    return rows + columns
