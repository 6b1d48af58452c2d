"""A release as a page inside a notebook."""

from tulle.report.html.card_sections import card_page
from tulle.report.html.page import Page, Section
from tulle.report.html.page_text import render_html
from tulle.report.html.svg_marks import escape_html
from tulle.report.run_report import utility_table
from tulle.runs.card import Card
from tulle.runs.record import Record, TrainingRecord

_HEIGHT = 480
"""Pixels of a page in a notebook; a longer page scrolls."""


def notebook_html(record: Record, card: Card) -> str:
    """The page of a release in a frame of its own, so that its style stays inside.

    Args:
      record: What the release says about itself.
      card: The card of the release.

    Privacy:
      Shows record and card alone; both are public.
    """
    return page_frame(record_page(record, card))


def page_frame(page: Page) -> str:
    """A page in a frame of its own, so that its style stays inside."""
    text = escape_html(render_html(page))
    style = f"width:100%;height:{_HEIGHT}px;border:0"
    return f'<iframe sandbox srcdoc="{text}" style="{style}"></iframe>'


def record_page(record: Record, card: Card) -> Page:
    """The page of a release, from its record alone.

    Args:
      record: What the release says about itself.
      card: The card of the release.
    """
    from tulle.labels.label_release import ReleaseRecord
    from tulle.select.decisions.chosen_ads import SelectionRecord
    from tulle.select.evaluation.evaluation_plan import EvaluationRecord

    if isinstance(record, TrainingRecord):
        sections = (Section("Utility", (utility_table(card),)),) if card.utility else ()
        return card_page(card, title=f"Training run: {record.method}", sections=sections)
    if isinstance(record, ReleaseRecord):
        from tulle.report.labels_report import labels_page

        return labels_page(record, card)
    if isinstance(record, SelectionRecord):
        from tulle.report.select_report import choices_page

        return choices_page(record, card)
    if isinstance(record, EvaluationRecord):
        from tulle.report.select_report import evaluation_page

        return evaluation_page(record, card)
    from tulle.measure.queries.measure_record import MeasureRecord
    from tulle.report.measure_report import measure_page

    if isinstance(record, MeasureRecord):
        return measure_page(record, card)
    return card_page(card, title=f"Release: {record.plan.name}", sections=())
