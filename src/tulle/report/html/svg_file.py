"""Charts as one SVG file that stands on its own: the charts of a page, outside of any page."""

import re
from collections.abc import Sequence
from pathlib import Path

from tulle.atomic_files import write_text
from tulle.errors import ConfigError, DataError
from tulle.report.html.charts import Chart
from tulle.report.html.escaping import escape_html
from tulle.report.html.page_html import chart_svg
from tulle.report.html.svg_marks import INK, WIDTH, shortened, text

_COLUMNS = 2
"""Charts side by side."""
_GAP, _TITLE = 24.0, 26.0
"""Room between charts, and for the name above each."""
_PIXELS_A_UNIT = 1.4
"""Letters of 12 units are then as large as those of a web page."""
_PAGE_COLOR = re.compile(r"var\(--[\w-]+, (#\w+)\)")
_HEIGHT = re.compile(r'viewBox="0 0 [\d.]+ ([\d.]+)"')


def charts_svg(charts: Sequence[Chart]) -> str:
    """Charts as the text of one SVG file, two side by side, each below its name.

    The same charts give the same bytes. Colors are those of a light page.

    Raises:
      DataError: There is no chart.
    """
    if not charts:
        raise DataError("there is nothing to plot; leave out the plot.")
    drawn = [chart_svg(chart) for chart in charts]
    heights = [_height(svg) for svg in drawn]
    columns = min(_COLUMNS, len(charts))
    marks, top = [], 0.0
    for first in range(0, len(charts), columns):
        row = range(first, min(first + columns, len(charts)))
        for column, place in enumerate(row):
            left = column * (WIDTH + _GAP)
            name = shortened(charts[place].name, width=WIDTH)
            marks.append(text(left + 4, top + 16, name, color=INK, has_rim=False))
            inner = f'<svg x="{left:g}" y="{top + _TITLE:g}" width="{WIDTH:g}" '
            marks.append(drawn[place].replace("<svg ", f'{inner}height="{heights[place]:g}" ', 1))
        top += _TITLE + max(heights[place] for place in row) + _GAP
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


def _height(svg: str) -> float:
    found = _HEIGHT.search(svg)
    if found is None:
        raise DataError("a chart has no height; draw it with chart_svg().")
    return float(found[1])
