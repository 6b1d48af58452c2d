"""A page as one HTML file, or as Markdown with the same words and numbers.

Style and charts are inside the HTML. It has no script, and a policy in its head forbids every
script and every request, whatever text the page holds.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from tulle.report.html.chart_svg import chart_svg
from tulle.report.html.charts import (
    MOST_BARS,
    BarChart,
    CurveChart,
    HeatChart,
    StepChart,
    Table,
    is_number,
    shown_column,
)
from tulle.report.html.curve_svg import is_cut
from tulle.report.html.page import Block, Bullets, Code, Figure, Page, Paragraph, Section
from tulle.report.html.svg_marks import escape_html
from tulle.runs.card_text import escape

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MANY_BARS = 12
"""A chart of more bars is higher than the charts beside it."""
_TONES = {True: "verdict private", False: "verdict open", None: "verdict"}


def render_html(page: Page) -> str:
    """The page as text; the same page gives the same bytes."""
    title = escape_html(page.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n{_verdict(page)}\n"
        f"{''.join(map(_section, page.sections))}"
        "<footer>Made by tulle. This page needs no network and runs no script.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


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
    if isinstance(chart, BarChart):
        return len(chart.bars) > _MANY_BARS
    return isinstance(chart, StepChart | HeatChart)


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


def render_markdown(page: Page) -> str:
    """The page as text; its first line is the verdict."""
    parts = [f"# {escape(page.verdict)}"]
    if page.reasons:
        parts.append(_markdown_bullets(page.reasons))
    parts.append(escape(page.title))
    if page.sentence:
        parts.append(escape(page.sentence))
    if page.facts:
        parts.append(_markdown_bullets(f"{name}: {words}" for name, words in page.facts))
    for section in page.sections:
        parts.append(f"## {escape(section.title)}")
        parts += map(_markdown_block, section.blocks)
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return escape(block.text)
    if isinstance(block, Bullets):
        return _markdown_bullets(block.items)
    if isinstance(block, Code):
        # Four spaces: no text can end such a block.
        lines = "\n".join(f"    {line}" for line in block.text.splitlines())
        return f"{escape(block.summary)}:\n\n{lines}"
    if isinstance(block, Figure):
        words = f"{block.chart.name}. {block.caption}".strip()
        return f"{escape(words)}\n\n{_markdown_table(block.chart.to_table())}"
    return _markdown_table(block)


def _markdown_bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)


def _markdown_table(table: Table) -> str:
    if not table.rows:
        return "None."
    lines = [f"| {' | '.join(map(escape, table.head))} |", f"|{'---|' * len(table.head)}"]
    columns = [shown_column(column) for column in zip(*table.rows, strict=True)]
    lines += [f"| {' | '.join(map(escape, row))} |" for row in zip(*columns, strict=True)]
    more = f"\n\n{table.num_left_out:,} more rows are left out." if table.num_left_out else ""
    return "\n".join(lines) + more


_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --faint: #57606a;
  --rule: #d0d7de; --soft: #f6f8fa; --good: #1a7f37; --bad: #b42318; --open: #6a4bbc;
  --panel: #ffffff; --grid: #e3e6ea; --axis: #8c959f; --series-1: #0072b2; --series-2: #d55e00;
  --series-3: #009e73; --series-4: #cc79a7; --series-5: #e69f00; --series-6: #56b4e9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0f1419; --ink: #e6edf3; --faint: #9aa4af; --rule: #30363d; --soft: #171d24;
    --good: #4ac26b; --bad: #ff8a80; --open: #b39dff; --panel: #161c23; --grid: #2a3139;
    --axis: #7d8793; --series-1: #3a9bdc; --series-2: #f0803c; --series-3: #2fbf94;
    --series-4: #e09ac4; --series-5: #f0b43c; --series-6: #8fd0f5; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-size: 16px; }
main { max-width: 1080px; margin: 0 auto; padding: 16px; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0.4em 0; }
h2 { font-size: 1.15rem; margin: 2em 0 0.6em; padding-top: 0.6em;
  border-top: 1px solid var(--rule); }
p, ul { margin: 0.6em 0; max-width: 75ch; }
.verdict { border-left: 6px solid var(--open); background: var(--soft); padding: 12px 16px;
  border-radius: 4px; margin: 12px 0; }
.verdict strong { font-size: 1.1rem; color: var(--open); }
.verdict.private { border-color: var(--good); }
.verdict.private strong { color: var(--good); }
.verdict.open { border-color: var(--bad); }
.verdict.open strong { color: var(--bad); }
.verdict dl { display: flex; flex-wrap: wrap; gap: 10px 32px; margin: 12px 0 4px; }
.verdict dt { color: var(--faint); font-size: 0.85rem; }
.verdict dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.figures { display: grid; gap: 0 16px; align-items: start; margin: 16px 0 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); }
.figures.packed { display: block; columns: 2 380px; column-gap: 16px; }
figure { min-width: 0; margin: 0 0 16px; padding: 8px;
  border: 1px solid var(--rule); border-radius: 6px; background: var(--panel);
  break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; }
figcaption { font-size: 0.9rem; margin-bottom: 8px; }
figcaption b { display: block; }
summary { cursor: pointer; font-size: 0.9rem; padding: 4px 0; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 4px 10px 4px 0;
  border-bottom: 1px solid var(--rule); overflow-wrap: normal; word-break: normal; }
td.text { max-width: 34em; overflow-wrap: break-word; }
th.number { text-align: right; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; background: var(--soft); padding: 10px; font-size: 0.8rem; }
footer { color: var(--faint); font-size: 0.85rem; margin: 3em 0 1em; }
@media print { figure, .verdict { break-inside: avoid; } }
"""
"""The look of a page: one column on a phone, light or dark as the reader's system is."""
