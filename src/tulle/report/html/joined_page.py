"""Several pages as one: verdicts first, then the figures of each.

Claims, conditions and accounting stay on the pages of their own, since each guarantee is of one
release.
"""

from collections.abc import Sequence

from tulle.errors import ConfigError
from tulle.report.html.page import Figure, Page, Paragraph, Section
from tulle.report.html.tables import Table
from tulle.runs.card_text import NOT_PRIVATE

_SUM = (
    "Each epsilon is of one release. Whoever publishes several about the same people spends the "
    "sum."
)


def joined_page(title: str, pages: Sequence[Page]) -> Page:
    """One page about several releases.

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
