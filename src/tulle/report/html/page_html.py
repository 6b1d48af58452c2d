"""A page as one HTML file: style and charts inside, no script, nothing from a network.

A policy in its head forbids every script and every request, whatever text the page holds.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from tulle.report.html.bar_svg import bars_svg
from tulle.report.html.charts import MOST_BARS, BarChart, Chart, CurveChart
from tulle.report.html.curve_svg import curves_svg, is_cut
from tulle.report.html.escaping import escape_html
from tulle.report.html.matrix_svg import matrix_svg
from tulle.report.html.page import Block, Bullets, Code, Figure, Page, Paragraph, Section
from tulle.report.html.style import STYLE
from tulle.report.html.tables import Table, is_number, shown_column

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MANY_BARS = 12
_TONES = {True: "verdict private", False: "verdict open", None: "verdict"}


def render_html(page: Page) -> str:
    """The page as text; the same page gives the same bytes."""
    title = escape_html(page.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n{_verdict(page)}\n"
        f"{''.join(map(_section, page.sections))}"
        "<footer>Made by tulle. This page needs no network and runs no script.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def chart_svg(chart: Chart) -> str:
    """A chart as inline SVG."""
    if isinstance(chart, BarChart):
        return bars_svg(chart)
    return curves_svg(chart) if isinstance(chart, CurveChart) else matrix_svg(chart)


def _verdict(page: Page) -> str:
    sentence = f"<p>{escape_html(page.sentence)}</p>" if page.sentence else ""
    reasons = _bullets(page.reasons) if page.reasons else ""
    return (
        f'<div class="{_TONES[page.is_private]}"><strong>{escape_html(page.verdict)}</strong>'
        f"{reasons}{sentence}{_facts(page)}</div>"
    )


def _facts(page: Page) -> str:
    if not page.facts:
        return ""
    items = "".join(
        f"<div><dt>{escape_html(name)}</dt><dd>{escape_html(words)}</dd></div>"
        for name, words in page.facts
    )
    return f"<dl>{items}</dl>"


def _section(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape_html(section.title)}</h2>\n"]
    for is_figure, group in groupby(section.blocks, lambda block: isinstance(block, Figure)):
        blocks = list(group)
        inside = "\n".join(map(_block, blocks))
        kind = "figures packed" if any(map(_is_tall, blocks)) else "figures"
        parts.append(f'<div class="{kind}">\n{inside}\n</div>\n' if is_figure else f"{inside}\n")
    return "".join([*parts, "</section>\n"])


def _is_tall(block: Block) -> bool:
    """Whether a figure would leave a hole beside it, were the others not packed."""
    chart = block.chart if isinstance(block, Figure) else None
    return isinstance(chart, BarChart) and len(chart.bars) > _MANY_BARS


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"<p>{escape_html(block.text)}</p>"
    if isinstance(block, Bullets):
        return _bullets(block.items)
    if isinstance(block, Code):
        return _details(block.summary, f"<pre>{escape_html(block.text)}</pre>")
    return _figure(block) if isinstance(block, Figure) else _table(block)


def _figure(figure: Figure) -> str:
    chart = figure.chart
    caption = f" {escape_html(figure.caption)}" if figure.caption else ""
    if isinstance(chart, BarChart) and len(chart.bars) > MOST_BARS:
        caption += f" The first {MOST_BARS} of {len(chart.bars):,}."
    if isinstance(chart, CurveChart) and is_cut(chart):
        caption += " What lies beyond the axis is in the numbers below."
    return (
        f"<figure><figcaption><b>{escape_html(chart.name)}</b>{caption}</figcaption>"
        f"{chart_svg(chart)}{_details('Numbers', _table(chart.to_table()))}</figure>"
    )


def _details(summary: str, inside: str) -> str:
    return f"<details><summary>{escape_html(summary)}</summary>{inside}</details>"


def _bullets(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape_html(item)}</li>' for item in items)}</ul>"


def _table(table: Table) -> str:
    if not table.rows:
        return "<p>None.</p>"
    columns = list(zip(*table.rows, strict=True))
    kinds = [_kind(column) for column in columns]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape_html(name)}</th>'
        for name, kind in zip(table.head, kinds, strict=True)
    )
    texts = zip(*map(shown_column, columns), strict=True)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row, kinds))}</tr>" for row in texts)
    more = f"<p>{table.num_left_out:,} more rows are left out.</p>" if table.num_left_out else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>'
        f"</table></div>{more}"
    )


def _kind(values: Sequence[object]) -> str:
    """Numbers stand to the right where a column has nothing else."""
    found = [value for value in values if value is not None]
    return "number" if found and all(map(is_number, found)) else "text"


def _cell(words: str, kind: str) -> str:
    return f'<td class="{kind}">{escape_html(words)}</td>'
