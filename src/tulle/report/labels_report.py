"""The page of a released table of labels: what noise did to a label, and what is left to learn.

Everything comes from the record beside the table, which is public. The table is not read.
"""

import math
from typing import TYPE_CHECKING

from tulle.labels.label_mechanism import ChannelFacts
from tulle.report.html.card_sections import card_page
from tulle.report.html.page import Page, Paragraph, Section
from tulle.report.html.tables import Table, short_number
from tulle.report.label_channels import channel_facts, channel_figures
from tulle.report.label_variances import variance_section
from tulle.runs.card import Card

if TYPE_CHECKING:
    from tulle.labels.releases.label_release import ReleaseRecord


def labels_page(record: "ReleaseRecord", card: Card) -> Page:
    """The page of a release.

    Args:
      record: Record that lies beside the table.
      card: Card of the release.

    Privacy:
      The record is public; nothing else is read.
    """
    facts = channel_facts(record.mechanism)
    return card_page(
        card,
        title=f"Noisy labels: {record.table}",
        sections=(_channel(facts), variance_section(record.mechanism), _columns(record)),
        facts=_facts(record, facts),
    )


def _facts(record: "ReleaseRecord", known: ChannelFacts) -> list[tuple[str, str]]:
    facts = [("rows", f"{record.num_rows:,}"), ("mechanism", str(record.mechanism["mechanism"]))]
    if known.true_report_prob is not None:
        facts.append(("reports that are the truth", f"{known.true_report_prob:.1%}"))
    if known.variance is not None:
        stddev = short_number(math.sqrt(known.variance))
        facts.append(("noise in a target, standard deviation", stddev))
    return facts


def _channel(facts: ChannelFacts) -> Section:
    nothing = Paragraph("There is no picture of this mechanism; its settings are below.")
    return Section("Channel", tuple(channel_figures(facts)) or (nothing,))


def _columns(record: "ReleaseRecord") -> Section:
    return Section(
        "Columns of the table",
        (
            Paragraph(f"{record.num_rows:,} rows. Public columns go out as they are."),
            Table(head=("column", "meaning"), rows=tuple(record.columns.items())),
        ),
    )
