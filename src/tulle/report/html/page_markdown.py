"""A page as Markdown: the same words and numbers; charts become tables."""

from collections.abc import Iterable

from tulle.report.html.page import Block, Bullets, Code, Figure, Page, Paragraph
from tulle.report.html.tables import Table, shown_column
from tulle.runs.card_text import escape


def render_markdown(page: Page) -> str:
    """The page as text; its first line is the verdict."""
    parts = [f"# {escape(page.verdict)}"]
    if page.reasons:
        parts.append(_bullets(page.reasons))
    parts.append(escape(page.title))
    if page.sentence:
        parts.append(escape(page.sentence))
    if page.facts:
        parts.append(_bullets(f"{name}: {words}" for name, words in page.facts))
    for section in page.sections:
        parts.append(f"## {escape(section.title)}")
        parts += map(_block, section.blocks)
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return escape(block.text)
    if isinstance(block, Bullets):
        return _bullets(block.items)
    if isinstance(block, Code):
        # Four spaces: no text can end such a block.
        lines = "\n".join(f"    {line}" for line in block.text.splitlines())
        return f"{escape(block.summary)}:\n\n{lines}"
    if isinstance(block, Figure):
        words = f"{block.chart.name}. {block.caption}".strip()
        return f"{escape(words)}\n\n{_table(block.chart.to_table())}"
    return _table(block)


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)


def _table(table: Table) -> str:
    if not table.rows:
        return "None."
    lines = [f"| {' | '.join(map(escape, table.head))} |", f"|{'---|' * len(table.head)}"]
    columns = [shown_column(column) for column in zip(*table.rows, strict=True)]
    lines += [f"| {' | '.join(map(escape, row))} |" for row in zip(*columns, strict=True)]
    more = f"\n\n{table.num_left_out:,} more rows are left out." if table.num_left_out else ""
    return "\n".join(lines) + more
