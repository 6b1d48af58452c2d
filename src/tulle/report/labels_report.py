"""The page of a released table of labels: what noise did to a label, and what is left to learn.

Everything comes from the record beside the table, which is public. The table is not read.
"""

import math
from typing import TYPE_CHECKING

from tulle.report.card import Card
from tulle.report.html.card_sections import card_page
from tulle.report.html.page import Page, Paragraph, Section
from tulle.report.html.tables import Table, short_number
from tulle.report.label_channels import Facts, channel_figures, is_binary
from tulle.report.label_variances import stated_variance, variance_section

if TYPE_CHECKING:
    from tulle.labels.release.release_record import ReleaseRecord


def labels_page(record: "ReleaseRecord", card: Card) -> Page:
    """The page of a release.

    Args:
      record: That lies beside the table.
      card: Of the release.

    Privacy:
      The record is public; nothing else is read.
    """
    return card_page(
        card,
        title=f"Noisy labels: {record.table}",
        sections=(_channel(record.mechanism), variance_section(record.mechanism), _columns(record)),
        facts=_facts(record),
    )


def _facts(record: "ReleaseRecord") -> list[tuple[str, str]]:
    mechanism = record.mechanism
    facts = [("rows", f"{record.num_rows:,}"), ("mechanism", str(mechanism["mechanism"]))]
    if is_binary(mechanism):
        truth = (1 - mechanism["prob_if_negative"] + mechanism["prob_if_positive"]) / 2
        facts.append(("reports that are the truth", f"{truth:.1%}"))
    elif "true_report_prob" in mechanism or "prob_of_the_truth" in mechanism:
        truth = mechanism.get("true_report_prob", mechanism.get("prob_of_the_truth"))
        facts.append(("reports that are the truth", f"{truth:.1%}"))
    variance = stated_variance(mechanism)
    if variance is not None:
        facts.append(("noise in a target, standard deviation", short_number(math.sqrt(variance))))
    return facts


def _channel(mechanism: Facts) -> Section:
    figures = tuple(channel_figures(mechanism))
    nothing = Paragraph("There is no picture of this mechanism; its settings are below.")
    return Section("Channel", figures or (nothing,))


def _columns(record: "ReleaseRecord") -> Section:
    return Section(
        "Columns of the table",
        (
            Paragraph(f"{record.num_rows:,} rows. Public columns go out as they are."),
            Table(head=("column", "meaning"), rows=tuple(record.columns.items())),
        ),
    )
