"""A page as data: verdict first, then sections of text, tables and charts.

HTML and Markdown are made from the same page, so they say the same. A page holds
what was released or is public, and says where it does not.
"""

import dataclasses

from tulle.errors import ConfigError
from tulle.report.html.charts import Chart
from tulle.report.html.tables import Table


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
