"""The page of a released table of labels: what noise did to a label, and what is left to learn.

The page has a picture of the mechanism, and the variance of a mean for different true labels.
Everything comes from the record beside the table, which is public. The table is not read.
"""

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tulle.labels.label_mechanism import (
    ChannelFacts,
    ChannelTable,
    Description,
    NoiseDensity,
    Picture,
    RowChannels,
)
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import (
    Axis,
    Curve,
    CurveChart,
    MatrixChart,
    Table,
    number_text,
    short_number,
)
from tulle.report.html.page import Figure, Page, Paragraph, Section
from tulle.report.label_variances import variance_section
from tulle.runs.card import Card

if TYPE_CHECKING:
    from tulle.labels.label_release import ReleaseRecord


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


def channel_facts(described: Description) -> ChannelFacts:
    """What the mechanism of a release says of itself; nothing if this tulle does not know it.

    Args:
      described: The mechanism in plain data, from the record of a release.
    """
    from tulle.labels.mechanisms.catalogue import mechanism_class

    known = mechanism_class(described)
    return ChannelFacts(pictures=()) if known is None else known.channel_facts(described)


def channel_figures(facts: ChannelFacts) -> list[Figure]:
    """The pictures of a mechanism as figures of a page."""
    return [_figure(picture) for picture in facts.pictures]


@functools.singledispatch
def _figure(picture: Picture) -> Figure:
    raise NotImplementedError(type(picture))


@_figure.register
def _(picture: ChannelTable) -> Figure:
    chart = MatrixChart(
        name="Channel",
        row_name="label",
        column_name="noisy label",
        row_labels=_names(picture.labels),
        column_labels=_names(picture.reports),
        values=tuple(tuple(map(float, row)) for row in picture.probs),
    )
    return Figure(chart, picture.about)


@_figure.register
def _(picture: NoiseDensity) -> Figure:
    amounts, scale = tuple(picture.noise), picture.laplace_scale
    curves = [Curve(label=picture.name, xs=amounts, ys=tuple(picture.density))]
    if scale is not None:
        laplace = tuple(math.exp(-abs(amount) / scale) / (2 * scale) for amount in amounts)
        label = "Laplace noise of the same epsilon"
        curves.append(Curve(label=label, xs=amounts, ys=laplace, is_reference=True))
    chart = CurveChart(
        name="Law of the noise",
        x_axis=Axis(name="noise that is added to a label"),
        y_axis=Axis(name="probability for each unit of the label", low=0.0),
        curves=tuple(curves),
    )
    return Figure(chart, "The noise is drawn once for each label, whatever the label is.")


@_figure.register
def _(picture: RowChannels) -> Figure:
    sizes = tuple(map(float, picture.num_rows))
    chart = CurveChart(
        name="Channel of a row, by the rows of its unit",
        x_axis=Axis(name="rows of the unit"),
        y_axis=Axis(name="probability of a report of 1", is_percent=True, low=0.0),
        curves=(
            Curve(label="label 1", xs=sizes, ys=tuple(picture.probs_if_positive)),
            Curve(label="label 0", xs=sizes, ys=tuple(picture.probs_if_negative)),
        ),
    )
    return Figure(chart, "The closer the curves, the less one report tells.")


def _names(values: Sequence[str | float]) -> tuple[str, ...]:
    """Words as they are; of numbers three digits of the largest, for which an axis has room."""
    numbers = [value for value in values if not isinstance(value, str)]
    most = max(map(abs, numbers), default=1.0) or 1.0
    decimals = max(0, 2 - math.floor(math.log10(most)))
    return tuple(
        value if isinstance(value, str) else number_text(float(value), decimals) for value in values
    )
