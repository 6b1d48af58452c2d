"""A page as data: verdict first, then sections of text, tables and charts.

HTML and Markdown are made from the same page, so they say the same. A page holds
what was released or is public, and says where it does not.
"""

import dataclasses
from collections.abc import Sequence

from tulle.errors import ConfigError
from tulle.report.html.charts import Chart, Table
from tulle.runs.card_text import NOT_PRIVATE

_SUM = (
    "Each epsilon is of one release. Whoever publishes several about the same people spends the "
    "sum."
)


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclasses.dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A chart and what it shows."""

    chart: Chart
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Code:
    """Text that keeps its lines, below a summary."""

    summary: str
    text: str


Block = Paragraph | Bullets | Figure | Code | Table


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a page with its title."""

    title: str
    blocks: tuple[Block, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """Everything on a page."""

    title: str
    verdict: str
    """The first line."""
    is_private: bool | None
    """Whether it may be read as a private release; None if nothing was released."""
    reasons: tuple[str, ...] = ()
    sentence: str = ""
    """The claim in plain words."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a reader wants to know first, beside the claim: few names and values in words."""
    sections: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        if self.is_private is False and not self.reasons:
            raise ConfigError("a page that is not private must say why; give reasons.")

    @property
    def charts(self) -> tuple[Chart, ...]:
        """All charts in their order."""
        return tuple(
            block.chart
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Figure)
        )


def joined_page(title: str, pages: Sequence[Page]) -> Page:
    """One page about several releases: their verdicts first, then the figures of each.

    Claims, conditions and accounting stay on the pages of their own, since each guarantee is of
    one release.

    Args:
      title: Title above all of them.
      pages: Pages of the releases, in their order.

    Privacy:
      Not private as soon as one of the pages is not.
    """
    if not pages:
        raise ConfigError("a page of several releases needs at least one; give some.")
    raw = tuple(
        f"{page.title}: {reason}"
        for page in pages
        if page.is_private is False
        for reason in page.reasons
    )
    overview = Table(
        head=("what", "verdict"), rows=tuple((page.title, page.verdict) for page in pages)
    )
    figures = tuple(
        Section(f"{page.title}: {section.title}", section.blocks)
        for page in pages
        for section in page.sections
        if any(isinstance(block, Figure) for block in section.blocks)
    )
    return Page(
        title=title,
        verdict=NOT_PRIVATE if raw else f"{len(pages)} results, each with a verdict of its own",
        is_private=False if raw else None,
        reasons=raw,
        sections=(Section("Verdicts", (overview, Paragraph(_SUM))), *figures),
    )
